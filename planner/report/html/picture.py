"""Charts as SVG: stacked bars, bars, curves on logarithmic scales. Text arguments are HTML already.

A chart has a title, a description and its values in a table beside it; classes name its colors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from planner.report import units

_LEFT, _RIGHT, _TOP, _BOTTOM = 50, 300, 8, 132  # the frame of the curves
_GAP = 20  # between two of them
_GRID_LINES = 4

Part = tuple[str, int]  # the class that colors it, and its size


@dataclass(frozen=True, slots=True)
class Stack:
    """A stacked bar, with marks as lines across it, on a scale that ends at ``scale``."""

    label: str
    parts: Sequence[Part]
    scale: int
    marks: Sequence[Part] = ()


@dataclass(frozen=True, slots=True)
class Curve:
    """Bytes over a size: points ascending in both, one of them the chosen one."""

    name: str
    points: Sequence[tuple[int, int]]
    chosen: tuple[int, int]


def stacks(title: str, description: str, drawn: Sequence[Stack]) -> str:
    """Draw stacks one below another, each below its label."""
    bars = (f"<g class=g{number}>{''.join(_stack(one))}</g>" if number else "".join(_stack(one)) for number, one in enumerate(drawn))
    return _svg(f"class=s{len(drawn)} " if len(drawn) > 1 else "", title, description, bars)


def _stack(one: Stack) -> Iterator[str]:
    """Draw each part from the start of the bar to its own end, the longest first: its own share stays visible."""
    yield f"<text y=11>{one.label}</text>"
    ends = [(css, end) for (css, size), end in zip(one.parts, accumulate(size for _, size in one.parts), strict=True) if size]
    yield from (f"<rect class={css} width={_percent(end, one.scale)} />" for css, end in reversed(ends))
    for css, size in one.marks:
        yield f"<rect class={css} x={_percent(size, one.scale)} />"


def bars(title: str, description: str, parts: Sequence[Part]) -> str:
    """Draw one bar below another, the longest as wide as the chart; the class of each places it."""
    longest = max(size for _, size in parts)
    return _svg("class=m ", title, description, (f"<rect class={css} width={_percent(size, longest)} />" for css, size in parts))


def curves(title: str, description: str, drawn: Sequence[Curve]) -> str:
    """Draw curves side by side on a shared log scale of bytes, each with its own log scale of sizes, the chosen points marked."""
    sizes = [size for one in drawn for _, size in one.points]
    low, high = _ends(min(sizes), max(sizes))
    width = (_RIGHT - _LEFT - _GAP * (len(drawn) - 1)) // len(drawn)
    parts = [_curve(one, _LEFT + (width + _GAP) * number, width, low, high) for number, one in enumerate(drawn)]
    return _svg('viewBox="0 0 300 150" ', title, description, [*_grid(low, high), *parts])


def _curve(one: Curve, left: int, width: int, low: int, high: int) -> str:
    first, last = one.points[0][0], one.points[-1][0]

    def at(point: tuple[int, int]) -> tuple[int, int]:
        across = units.along_log(point[0], first, last, width)
        return left + across, _BOTTOM - units.along_log(point[1], low, high, _BOTTOM - _TOP)

    line = " ".join(f"{x},{y}" for x, y in map(at, one.points))
    x, y = at(one.chosen)
    name = f"<text x={left} y=146>{one.name} {units.exact(first)} – {units.exact(last)}</text>"
    return f'<polyline points="{line}"/><circle cx={x} cy={y} />{name}'


def _ends(least: int, most: int) -> tuple[int, int]:
    """Return different powers of two around the values."""
    low = 1 << max(0, least.bit_length() - 1)
    high = 1 << max(1, (most - 1).bit_length())
    return low, max(high, 2 * low)


def _grid(low: int, high: int) -> Iterable[str]:
    """Draw grid lines with their bytes at powers of two, few enough to be readable."""
    doublings = (high // low).bit_length() - 1
    step = -(-doublings // (_GRID_LINES - 1))
    at = {low << power: _BOTTOM - units.along_log(low << power, low, high, _BOTTOM - _TOP) for power in range(0, doublings + 1, step)}
    yield f"<path d={''.join(f'M{_LEFT},{y}H{_RIGHT}' for y in at.values())} />"
    yield from (f"<text y={y + 4}>{units.power_of_two(size)}</text>" for size, y in at.items())


def _percent(part: int, whole: int) -> str:
    permille = units.along(part, whole, 1000)
    return f"{permille // 10}.{permille % 10}%" if permille % 10 else f"{permille // 10}%"


def _svg(box: str, title: str, description: str, drawn: Iterable[str]) -> str:
    return f"<svg {box}role=img><title>{title}</title><desc>{description}</desc>{''.join(drawn)}</svg>"
