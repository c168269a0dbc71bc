"""The figures of a model that answers requests, for a terminal and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from fractions import Fraction
from textwrap import fill

from planner.capacity.figures import Plan
from planner.capacity.roofline import Bound
from planner.capacity.served import Bounds, Pooled, Served
from planner.report import quantity, units
from planner.report.breakdown import Section
from planner.report.columns import SERVED
from planner.report.serving_accuracy import accuracy
from planner.report.terminal import PLAIN, Style, table
from planner.spec.printable import printable
from planner.spec.records import Serving

_WIDTH = 100


def text(served: Served | Pooled, measured: str, style: Style = PLAIN) -> str:
    """Return the figures as tables, and what was measured of them."""
    head = f"{printable(served.name)}, {setting(served.serving)}"
    if isinstance(served, Pooled):
        return _of_engine(served, head, measured, style)
    memory = table(("memory", "bytes", ""), "lrr", _rows(served), style)
    kinds = table(("cache after the outputs", "layers", "a token", "a sequence", "all"), "lrrrr", _kinds(served), style)
    caches = [*kinds, ""] if len(served.caches) > 1 else []
    passes = table(("pass", "FLOPs", "", "peak", "", "at"), "lrrrrl", _passes(served), style)
    return "\n".join(
        [head, "", *memory, "", *caches, *passes, "", *_verdict(served), *_least(served.bounds), *_notes(served, measured), ""]
    )


def setting(one: Serving) -> str:
    """Describe how a model is served in a phrase."""
    requests = f"{units.exact(one.batch_size)} × ({units.exact(one.prompt)} + {units.exact(one.output)}) tokens"
    return f"{one.engine}, {one.weights}, {requests}"


def section(plan: Plan) -> Section:
    """Show the figures of a spec's section ``serving``."""
    if plan.served is None:
        return Section("Serving")
    found = ((column, column.value(plan)) for column in SERVED)
    rows = [(one.description, units.exact(value), quantity.rounded(one, value)) for one, value in found if value is not None]
    notes = (f"Accuracy: {accuracy(plan.model, plan.served.serving)}.", f"Not counted: {'; '.join(plan.served.not_counted)}.")
    return Section(f"Serving: {setting(plan.served.serving)}", ("figure", "exact", "rounded"), "lrr", tuple(rows), notes=notes)


def _notes(served: Served | Pooled, measured: str) -> Iterator[str]:
    """Yield what was measured, and what is not counted."""
    for sentence in (f"Accuracy: {measured}.", f"Not counted: {'; '.join(served.not_counted)}."):
        yield fill(sentence, _WIDTH)


def _of_engine(served: Pooled, head: str, measured: str, style: Style) -> str:
    """Return the figures of an engine with a pool."""
    one, pool = served.serving, served.pool
    sizes = {
        "weights": served.weights_bytes,
        f"cache of {units.exact(one.batch_size)} requests": pool.all_bytes,
        "cache of one request": pool.request_bytes,
    }
    sizes |= {} if pool.pool_bytes is None else {"memory for the cache": pool.pool_bytes}
    rows = [(name, units.exact(size), units.memory(size)) for name, size in sizes.items()]
    token = pool.token_bytes
    rows.insert(1, ("cache of a token", units.exact(int(token)) if token.denominator == 1 else f"{float(token):,.2f}", ""))
    each = [f"Bytes of one of {units.exact(one.tensor_parallel)} devices"] if one.tensor_parallel > 1 else []
    lines = [head, *each, "", *table(("memory", "bytes", ""), "lrr", rows, style), ""]
    if pool.concurrency is not None:
        held = f"{units.exact(pool.blocks)} blocks of {pool.block} tokens: " if pool.blocks is not None else ""
        tokens = f"{held}{units.exact(pool.tokens)} tokens hold" if pool.tokens is not None else "The cache holds"
        length = units.exact(one.prompt + one.output)
        lines.append(f"{tokens} {float(pool.concurrency):.2f} requests of {length} tokens at once.")
    lines += _least(served.bounds)
    return "\n".join([*lines, *_notes(served, measured), ""])


def _rows(served: Served) -> Iterator[tuple[str, str, str]]:
    rows = {
        "weights": served.weights_bytes,
        "buffers": served.buffers_bytes,
        "cache after the prompts": served.cache_bytes,
        "cache after the outputs": served.cache_after_bytes,
        "peak": served.peak_bytes,
    }
    for name, size in rows.items():
        yield name, units.exact(size), units.memory(size)


def _kinds(served: Served) -> Iterator[tuple[str, ...]]:
    """Yield the cache by kind of layer."""
    for one in served.caches:
        sizes = (one.layers, one.token_bytes, one.of_sequence(served.serving.batch_size), one.all_bytes)
        yield one.kind, *map(units.exact, sizes)


def _passes(served: Served) -> Iterator[tuple[str, ...]]:
    passes = {"prompts": served.prefill, "first token": served.first}
    passes |= {"last token": served.last} if served.serving.output > 1 else {}
    for name, one in passes.items():
        flops, peak = (units.exact(one.flops), units.flops(one.flops)), (units.exact(one.peak_bytes), units.memory(one.peak_bytes))
        yield name, *flops, *peak, one.operator


def _verdict(served: Served) -> Iterator[str]:
    """Yield whether the peak fits in a device's memory, if the spec says how much that is."""
    memory, left = served.serving.memory_bytes, served.free_bytes
    if memory is not None and left is not None:
        fits = f"fits, {units.memory(left)} left" if left >= 0 else f"does not fit: {units.memory(-left)} too much"
        yield f"Memory {units.memory(memory)}: {fits}"


def _least(bounds: Bounds | None) -> Iterator[str]:
    """Yield the bounds of times and rates."""
    if bounds:
        first, last = bounds.prefill, bounds.last
        yield f"Bounds: first token after at least {_seconds(first)}, then at most {bounds.tokens_per_second:,.4g} tokens a second"
        yield f"per request, {bounds.all_tokens_per_second:,.4g} of all. Decoding: {_by(last)}, {last.intensity:,.4g} FLOPs a byte."
        if bounds.serving.draft_tokens:
            yield f"Speculative decoding: {bounds.tokens_per_pass:.4g} tokens a pass; the draft's own time and memory are not counted."
        if bounds.price_per_million is not None:
            yield f"Price of a million decoded tokens: at least {bounds.price_per_million:,.4g}."


def _seconds(one: Bound) -> str:
    least = f"{1000 * one.seconds:.4g} ms" if one.seconds < 1 else units.seconds(one.seconds)
    return f"{least} ({_by(one)})"


def _by(one: Bound) -> str:
    """Return which share of the time products need, and which reading weights and cache."""
    return f"{100 * one.compute / one.seconds:.0f} % products, {100 * one.memory / one.seconds:.0f} % reading memory"


def as_json(served: Served | Pooled, measured: str) -> str:
    """Return the figures as JSON, exact; fractions as text."""
    one = served.serving
    made: dict[str, object] = {"model": served.name, "engine": one.engine, "weights": one.weights}
    made |= {"batch_size": one.batch_size, "prompt": one.prompt, "output": one.output, "params": served.params}
    if isinstance(served, Pooled):
        made |= {"tensor_parallel": one.tensor_parallel, "weights_bytes": served.weights_bytes}
        pool = {name: value for name, value in asdict(served.pool).items() if name not in ("room", "share")}
        pool |= {"requests": served.pool.requests, "concurrency": served.pool.concurrency}
        made |= {name: str(value) if isinstance(value, Fraction) else value for name, value in pool.items()}
        made |= _bounds(served.bounds)
        return json.dumps(made | {"accuracy": measured, "not_counted": served.not_counted}, ensure_ascii=False, indent=2) + "\n"
    made |= {name: getattr(served, name) for name in ("weights_bytes", "buffers_bytes", "inputs_bytes", "cache_bytes", "cache_after_bytes")}
    made["caches"] = [asdict(kind) | {"sequence_bytes": kind.of_sequence(one.batch_size)} for kind in served.caches]
    made |= {"peak_bytes": served.peak_bytes, "memory_bytes": one.memory_bytes, "free_bytes": served.free_bytes}
    made |= {name: asdict(getattr(served, name)) for name in ("prefill", "first", "last")}
    made |= _bounds(served.bounds)
    return json.dumps(made | {"accuracy": measured, "not_counted": served.not_counted}, ensure_ascii=False, indent=2) + "\n"


def _bounds(bounds: Bounds | None) -> dict[str, object]:
    if bounds is None:
        return {"bounds": None}
    rates = {name: getattr(bounds, name) for name in ("tokens_per_second", "all_tokens_per_second", "tokens_per_pass", "price_per_million")}
    return {"bounds": {"prefill": asdict(bounds.prefill), "last": asdict(bounds.last), **rates}}


def fits(served: Served | Pooled) -> bool:
    """Whether all requests fit in the memory, as far as the spec states any."""
    if isinstance(served, Pooled):
        return served.pool.concurrency is None or served.pool.concurrency >= served.serving.batch_size
    return served.free_bytes is None or served.free_bytes >= 0
