"""The list of ``planner layouts``, as text, CSV and JSON, and the sections of a spec with a layout."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from planner.explore.best_layouts import Search
from planner.explore.found import TIE, Found, Sort
from planner.report import time, units
from planner.report.terminal import table
from planner.spec.printable import printable
from planner.spec.records import Cluster

SHORT = (
    ("tp", "tensor_parallel"),
    ("pp", "pipeline_parallel"),
    ("vp", "virtual_stages"),
    ("cp", "context_parallel"),
    ("ep", "expert_parallel"),
)
OVERHEADS = ("tensor", "context", "expert_exchange", "stages", "data", "data_exposed", "shards", "bubble", "recomputed")


def name(one: Found) -> str:
    """Return a layout in short: degrees above 1, data parallelism, microbatch and recomputation."""
    layout = one.layout
    degrees = [f"{short}{getattr(layout, key)}" for short, key in SHORT if getattr(layout, key) > 1]
    return " ".join([*degrees, f"dp{layout.data_degree} {layout.data_parallel}", f"b{one.training.batch_size}", one.training.recompute])


def overhead(one: Found) -> str:
    """Return the largest loss besides computation, and its share."""
    largest = max(OVERHEADS, key=lambda term: one.time.shares[term])
    return f"{largest} {100 * one.time.shares[largest]:.1f} %" if one.time.shares[largest] >= time.SMALL else ""


class Head(NamedTuple):
    """What was searched: a model on clusters, with so many sequences in a step."""

    model: str
    clusters: Sequence[Cluster]
    sequences: int
    more_modeled: Sequence[str] = ()  # settings with which more layouts are


def text(head: Head, made: Search, listed: Sequence[Found], by: Sort) -> str:
    """Return the list, the spec's own layout, and why other layouts are not listed."""
    several = len(head.clusters) > 1
    headings = ("", *(("devices",) if several else ()), "layout", "peak", "free", "step", "range", "tokens/s/device", "MFU", "largest loss")
    rows = [_row(str(number), one, several=several) for number, one in enumerate(listed, 1)]
    on = " or ".join(f"{cluster.devices} × {cluster.device}" for cluster in head.clusters)
    lines = [f"{printable(head.model)} on {on}, {head.sequences:,} sequences per step", ""]
    lines += table(headings, f"r{'r' * several}lrrrrrrl", rows) if rows else ["no layout fits"]
    return "\n".join([*lines, "", *_notes(head, made, listed, by), ""])


def _row(number: str, one: Found, *, several: bool) -> tuple[str, ...]:
    found = one.time
    return (
        number,
        *((f"{one.devices:,}",) if several else ()),
        name(one),
        units.memory(one.peak_bytes),
        units.memory(one.free_bytes),
        units.seconds(found.seconds),
        f"{units.seconds(found.low)} to {units.seconds(found.high)}",
        f"{found.tokens_per_second_per_device:,.0f}",
        f"{100 * found.mfu:.1f} %",
        overhead(one),
    )


def _notes(head: Head, made: Search, listed: Sequence[Found], by: Sort) -> Iterator[str]:
    if made.own and made.found:
        loses = 100 * (made.own.time.seconds / made.found.values("time").min() - 1)
        place = 1 + int((made.found.values(by) < made.own.value(by)).sum())
        slower = f"{loses:.1f} % slower than the fastest" if loses > 0 else "as fast as the fastest"
        yield (f"The spec's own layout, {name(made.own)}: {units.seconds(made.own.time.seconds)}, place {place:,} by {by}, {slower}.")
    count = made.possible
    nearest = f", the nearest by {units.memory(made.nearest_bytes)}" if made.nearest_bytes else ""
    yield (
        f"{count:,} layouts: {len(made.found):,} fit, {made.too_large:,} ({100 * made.too_large / max(count, 1):.0f} %) do not{nearest}, "
        f"and {made.refused.total():,} are not modeled."
    )
    yield from (f"  {count:,} not modeled: {printable(why)}" for why, count in made.refused.most_common(3))
    if 2 * made.refused.total() > count and head.more_modeled:
        yield f"  More layouts are modeled with {' '.join(f'--set {one}' for one in head.more_modeled)}"
    losses = made.found.largest(OVERHEADS, time.SMALL)
    worst = ", ".join(f"{what or 'none'} {count:,}" for what, count in losses.most_common(4))
    yield from [f"Largest loss of those that fit: {worst}."] if worst else []
    if by in ("time", "cost"):
        yield f"Layouts within {100 * TIE:.0f} % count as equal: fewer devices, fewer stages and less recomputation come first."
    yield from [f"Calibrated on {printable(listed[0].time.calibrated_on)}; the range holds 80 % of runs of the class."] if listed else []


def _cells(one: Found) -> dict[str, int | str]:
    """Return the settings and figures of a layout; those in other units than bytes are rounded."""
    found, layout, training = one.time, one.layout, one.training
    return {
        "device": layout.cluster.device,
        "devices": one.devices,
        **{key: getattr(layout, key) for _, key in SHORT},
        **{key: getattr(layout, key) for key in ("schedule", "data_parallel")},
        **{key: getattr(training, key) for key in ("batch_size", "gradient_accumulation", "recompute")},
        "peak_bytes": one.peak_bytes,
        "free_bytes": one.free_bytes,
        **{
            name: round(1e6 * value)
            for name, value in (("step_us", found.seconds), ("step_us_low", found.low), ("step_us_high", found.high))
        },
        "tokens_per_s_per_device": round(found.tokens_per_second_per_device),
        "mfu_permille": round(1000 * found.mfu),
        **{f"{term}_permille": round(1000 * share) for term, share in found.shares.items()},
    }


def as_csv(listed: Sequence[Found]) -> Iterator[str]:
    """Yield the lines of layouts as CSV."""
    for number, one in enumerate(listed):
        cells = _cells(one)
        yield from [f"{','.join(cells)}\n"] if number == 0 else []
        yield f"{','.join(map(str, cells.values()))}\n"


def as_json(listed: Sequence[Found]) -> Iterator[str]:
    """Yield the text of layouts as JSON."""
    yield json.dumps([_cells(one) for one in listed], ensure_ascii=False, indent=1) + "\n"


def explained(one: Found) -> str:
    """Return all terms of a layout's time."""
    found = one.time
    shares = sorted(found.shares.items(), key=lambda pair: -pair[1])
    rows = [
        (time.NAMES[term], units.seconds(share * found.seconds), f"{100 * share:.1f} %") for term, share in shares if share >= time.SMALL
    ]
    return "\n".join([f"Time of {name(one)}", *table(("term", "time", "share"), "lrr", rows), ""])


def as_yaml(one: Found) -> str:
    """Return the sections of a spec that a layout changes."""
    layout, cluster, training = one.layout, one.layout.cluster, one.training
    several = cluster.devices > layout.tensor_parallel * layout.pipeline_parallel * layout.context_parallel
    keys: dict[str, object] = {key: getattr(layout, key) for _, key in SHORT if getattr(layout, key) > 1}
    keys |= {key: True for key in ("sequence_parallel", "loss_parallel") if getattr(layout, key)}
    keys |= {"schedule": layout.schedule} if layout.pipeline_parallel > 1 else {}
    keys |= {"reshard_after_forward": "never"} if layout.reshard_after_forward == "never" else {}
    keys |= {"data_parallel": layout.data_parallel} if several or layout.data_parallel != "ddp" else {}
    lines = ["training:", f"  batch_size: {training.batch_size}", f"  gradient_accumulation: {training.gradient_accumulation}"]
    lines += [f"  recompute: {training.recompute}", "cluster:", f"  device: {cluster.device}", f"  devices: {cluster.devices}"]
    return "\n".join([*lines, "layout:" if keys else "layout: {}", *(f"  {key}: {_scalar(value)}" for key, value in keys.items())]) + "\n"


def _scalar(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
