"""``planner fit --serving``: the most sequences and the longest prompt that fit in a device, and the fewest devices of an engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from textwrap import fill

from planner.capacity import vary
from planner.capacity.served import Pooled, Served
from planner.capacity.serving import of_section
from planner.report import units
from planner.report.served import fits, setting
from planner.report.terminal import PLAIN, Style, table
from planner.spec.edits import Difference, edited, problems_of
from planner.spec.printable import printable
from planner.spec.records import Serving, Spec
from planner.trace.unsupported import UnsupportedError

SETTINGS = ("batch_size", "prompt")
LENGTHS = 4  # of prompts for which the most sequences are listed: the context and its halves
MOST_DEVICES = 64  # that share a layer, at most
_WIDTH = 80  # cells of a terminal
_FURTHEST = 2**30  # a setting that fits here is not limited by memory

Result = Served | Pooled


@dataclass(frozen=True, slots=True)
class Fit:
    """The largest value of a setting with which all requests fit, or the least number of devices."""

    setting: str
    now: int
    best: int | None  # None: no value fits
    bytes: int | None  # at that value: the largest peak, or weights and cache
    limited_by: str


@dataclass(frozen=True, slots=True)
class Users:
    """The most sequences with prompts of a length; None: not even one fits."""

    prompt: int
    most: int | None


def needed(made: Result) -> int:
    """Return the bytes of a device that requests need: the largest peak, or weights and cache of an engine with a pool."""
    return made.peak_bytes if isinstance(made, Served) else made.weights_bytes + made.pool.all_bytes


def largest(spec: Spec, serving: Serving) -> tuple[Fit, ...]:
    """Return the largest value of each setting that fits in the section's memory, others unchanged."""
    return tuple(_largest(spec, name, getattr(serving, name)) for name in SETTINGS)


def fewest_devices(spec: Spec, serving: Serving) -> Fit | None:
    """Return the fewest devices that share layers so that all requests fit, a power of two.

    None for transformers, and if the memory of the cache is known for these devices alone.
    """
    if serving.engine == "transformers" or serving.cache_bytes is not None:
        return None
    degrees = [1 << power for power in range(MOST_DEVICES.bit_length())]
    tried = ((degree, _served(spec, {"tensor_parallel": degree})) for degree in degrees)
    found = next(((degree, made) for degree, made in tried if made and fits(made)), None)
    least, made = found or (None, None)
    why = "" if found else f"not even {MOST_DEVICES} devices suffice, each of which has a key head at least"
    return Fit("tensor_parallel", serving.tensor_parallel, least, needed(made) if made else None, why)


def users(spec: Spec, serving: Serving) -> tuple[Users, ...]:
    """Return the most sequences by length of the prompt: what outputs leave of the context, and halves of the context."""
    longest = spec.model.context_length - serving.output
    lengths = dict.fromkeys([longest, *(spec.model.context_length >> power for power in range(1, LENGTHS))])
    return tuple(Users(prompt, _most_at(spec, prompt) or None) for prompt in sorted(lengths) if prompt > 0)


def _most_at(spec: Spec, prompt: int) -> int:
    return _most(lambda count: _served(spec, {"batch_size": count, "prompt": prompt}))


def _served(spec: Spec, settings: dict[str, int]) -> Result | None:
    """Return the figures with other settings; None if the spec would be invalid or the passes are not modeled."""
    other = edited(spec, _edits(spec, settings))
    try:
        return of_section(other) if other else None
    except UnsupportedError:
        return None


def _edits(spec: Spec, settings: dict[str, int]) -> list[Difference]:
    return [vary.setting(spec, "base", f"serving.{name}", value) for name, value in settings.items()]


def _largest(spec: Spec, name: str, now: int) -> Fit:
    def served(count: int) -> Result | None:
        return _served(spec, {name: count})

    found = _most(served)
    best, beyond = served(found) if found else None, served(found + 1)
    if found >= _FURTHEST:
        why = "not limited by memory"
    elif beyond is None:
        problems = problems_of(spec, _edits(spec, {name: found + 1}))
        why = f"cannot be {units.exact(found + 1)}: {problems[0].message if problems else 'not supported'}"
    else:
        why = _excess(beyond, units.exact(found + 1))
    return Fit(name, now, found or None, needed(best) if best else None, why)


def _most(served: Callable[[int], Result | None]) -> int:
    """Return the largest count that fits, 0 if not even 1 does."""

    def exceeds(count: int) -> int | None:
        made = served(count)
        return None if made is None else int(not fits(made))

    bound = 1
    while bound < _FURTHEST and exceeds(bound) == 0:
        bound *= 2
    return _FURTHEST if bound >= _FURTHEST else vary.largest(exceeds, Fraction(0), bound // 2, bound)


def _excess(made: Result, what: str) -> str:
    """Describe requests that do not fit: by how much, and where."""
    if isinstance(made, Pooled):
        over = made.pool.all_bytes - (made.pool.pool_bytes or 0)
        return f"{what} would need {units.memory(made.pool.all_bytes)} of cache ({units.memory(over)} over)"
    passes = {"the pass over the prompts": made.prefill, "the first token's pass": made.first, "the last token's pass": made.last}
    name, top = max(passes.items(), key=lambda one: one[1].peak_bytes)
    over = top.peak_bytes - (made.serving.memory_bytes or 0)
    return f"{what} peaks at {units.memory(top.peak_bytes)} ({units.memory(over)} over) in {name}, {top.operator}"


def text(spec: Spec, found: Sequence[Fit], devices: Fit | None, lengths: Sequence[Users], style: Style = PLAIN) -> str:
    """Return the result for a terminal."""
    serving = spec.serving
    assert serving is not None  # noqa: S101 - the command requires it
    rows = [(f"serving.{one.setting}", units.exact(one.now), *_best(one)) for one in found]
    lines = table(("setting", "current", "maximum", "memory"), "lrrr", rows, style)
    by_length = [(units.exact(one.prompt), "none" if one.most is None else units.exact(one.most)) for one in lengths]
    return "\n".join(
        [
            f"{printable(spec.name)}, {setting(serving)}",
            *_memory(serving),
            "Largest values that fit, other settings unchanged:",
            "",
            *lines,
            "",
            *(fill(f"serving.{one.setting}: {one.limited_by}", _WIDTH, subsequent_indent="  ") for one in found),
            *([_devices(devices)] if devices else []),
            "",
            "Most sequences at once by length of the prompt:",
            "",
            *table(("prompt", "sequences"), "rr", by_length, style),
            "",
        ]
    )


def _memory(serving: Serving) -> Iterator[str]:
    if serving.cache_bytes is not None:
        yield f"Memory of the cache: {units.memory(serving.cache_bytes)}"
    elif serving.memory_bytes is not None:
        yield f"Memory: {printable(serving.memory or serving.device or '')} ({units.memory(serving.memory_bytes)})"


def _best(one: Fit) -> Iterator[str]:
    yield from ("none", "") if one.best is None or one.bytes is None else (units.exact(one.best), units.memory(one.bytes))


def _devices(one: Fit) -> str:
    if one.best is None or one.bytes is None:
        return f"Fewest devices: none found; {one.limited_by}"
    return f"Fewest devices: serving.tensor_parallel {one.best}, {units.memory(one.bytes)} on each (current: {one.now})"


def as_json(spec: Spec, found: Sequence[Fit], devices: Fit | None, lengths: Sequence[Users]) -> str:
    """Return the result as JSON, exact."""
    made: dict[str, object] = {
        "model": spec.name,
        "memory_bytes": spec.serving and spec.serving.memory_bytes,
        "fits": [asdict(one) for one in found],
    }
    made |= {"devices": asdict(devices) if devices else None, "users": [asdict(one) for one in lengths]}
    return json.dumps(made, ensure_ascii=False, indent=2) + "\n"
