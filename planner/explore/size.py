"""``planner size``: configurations like a reference model's, closest to a parameter count or training FLOPs, or the largest in a memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path

from planner.capacity.symbolic import SymbolicPlan, formulas
from planner.explore import optimal
from planner.report import omitted, quantity, units
from planner.report.quantity import Amount
from planner.report.terminal import PLAIN, Style, table
from planner.spec import catalogue
from planner.spec.printable import printable
from planner.spec.records import Spec
from planner.trace.sizes import evaluate

WIDTH_STEP = 128  # of d_model and d_ff: tiles of matrix units
WIDEST, DEEPEST = 65_536, 1_000
FLATTEST, STEEPEST = 32, 256  # d_model per layer: published models are between (Kaplan et al. 2020, figure 5: the loss hardly moves)
LIKE = {"gpt2": "gpt2", "llama": "llama-3-8b"}  # catalog models by family
_NEEDED = ("d_model", "n_layers", "n_heads", "head_dim", "d_ff")
_SIZES = (*_NEEDED, "n_kv_heads")


class SizeError(ValueError):
    """Why no configuration can be suggested."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A suggestion, its metrics, and their difference from the target."""

    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_ff: int
    params_total: int
    train_flops: int  # for train_tokens
    train_tokens: int
    peak_bytes: int  # of a training step with the reference's settings
    off: int  # from the target, with its sign


def path_of(like: str) -> str:
    """Return the path of a spec file, a catalog model or a family. Raises SizeError."""
    if Path(like).is_file():
        return like
    found = catalogue.paths().get(LIKE.get(like.lower(), like).removeprefix(catalogue.PREFIX))
    if found is None:
        near = ", ".join((*LIKE, *catalogue.nearest(like)))
        raise SizeError(f"no spec file or catalog model named {like!r}; similar: {near}")
    return str(found)


def shapes(spec: Spec, target: int, *, of: str, tokens: int | None = None, most: int = 8) -> tuple[Configuration, ...]:
    """Return the configurations closest to a target ``of`` parameters ("params") or training FLOPs ("flops"), the closest first.

    For a target ``of`` "memory", they are those whose step fits in so many bytes, the largest first. Without ``tokens``, FLOPs are for 20
    tokens per parameter. Raises SizeError.
    """
    made = formulas(spec, spec.scenarios[0])
    missing = [name for name in _NEEDED if name not in made.values]
    if missing or "layers.count" in made.values or any(f"{name}_2" in made.values for name in _NEEDED):
        raise SizeError(f"{spec.name} cannot be used as a reference: its layers differ in {', '.join(_NEEDED)}, or lack one of them")
    candidates = (shape for values in _widths(made.values) if (shape := _closest(made, values, target, of, tokens)) is not None)
    order = (lambda shape: (-shape.params_total, shape.d_model)) if of == "memory" else (lambda shape: (abs(shape.off), shape.d_model))
    found = sorted(candidates, key=order)[:most]
    if not found:
        what = "fits in the memory" if of == "memory" else "is close to the target"
        raise SizeError(f"no configuration with d_model / n_layers between {FLATTEST} and {STEEPEST} {what}")
    return tuple(found)


def _widths(base: dict[str, int]) -> Iterator[dict[str, int]]:
    """Yield the sizes for each width: the reference's head_dim, query-to-KV-head ratio and feed-forward proportion."""
    for d_model in range(WIDTH_STEP, WIDEST + 1, WIDTH_STEP):
        heads, rest = divmod(d_model, base["head_dim"])
        per_kv_head = base["n_heads"] // base.get("n_kv_heads", base["n_heads"])
        if rest or heads % per_kv_head:
            continue
        d_ff = round(Fraction(base["d_ff"] * d_model, base["d_model"] * WIDTH_STEP)) * WIDTH_STEP
        kv_heads = {"n_kv_heads": heads // per_kv_head} if "n_kv_heads" in base else {}
        yield {**base, "d_model": d_model, "n_heads": heads, "d_ff": d_ff, **kv_heads}


def _closest(made: SymbolicPlan, values: dict[str, int], target: int, of: str, tokens: int | None) -> Configuration | None:
    """Return the closest configuration of a width; None if it would be too flat or too steep."""

    def shape(n_layers: int) -> Configuration:
        return _shape(made, {**values, "n_layers": n_layers}, target, of, tokens)

    below, above = max(1, values["d_model"] // STEEPEST), min(DEEPEST, values["d_model"] // FLATTEST)
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if shape(middle).off <= 0 else (below, middle)
    ends = shape(below), shape(above)
    best = min((one for one in ends if of != "memory" or one.off <= 0), key=lambda one: abs(one.off), default=None)
    return best if best and abs(best.off) * 10 <= target else None


def _shape(made: SymbolicPlan, values: dict[str, int], target: int, of: str, tokens: int | None) -> Configuration:
    params = evaluate(made.plan.parameters.total, values)
    trained = optimal.by_rule(params) if tokens is None else tokens
    train_flops = evaluate(made.plan.flops.chosen.train_per_token, values) * trained
    peak = evaluate(made.plan.memory.peak_bytes, values)
    reached = {"params": params, "flops": train_flops, "memory": peak}
    sizes = {"n_kv_heads": values["n_heads"]} | {name: size for name, size in values.items() if name in _SIZES}
    return Configuration(
        **sizes, params_total=params, train_flops=train_flops, train_tokens=trained, peak_bytes=peak, off=reached[of] - target
    )


def text(spec: Spec, found: Sequence[Configuration], target: Amount, style: Style = PLAIN, *, of: str = "params") -> str:
    """Return the suggestions for a terminal."""
    memory = of == "memory"
    heads = ("d_model", "layers", "heads", "kv", "head_dim", "d_ff", "params", *(("peak",) if memory else ("vs target", "train FLOPs")))
    rows = [
        (
            *map(units.exact, (shape.d_model, shape.n_layers, shape.n_heads, shape.n_kv_heads, shape.head_dim, shape.d_ff)),
            units.count(shape.params_total),
            *(
                (units.memory(shape.peak_bytes),)
                if memory
                else (units.relative(int(target.value), int(target.value) + shape.off), units.flops(shape.train_flops))
            ),
        )
        for shape in found
    ]
    notes = [f"Memory: {quantity.spelled_out(target)}", f"Peak of a step: {step(spec)}.", omitted.UNPADDED] if memory else []
    left_out = map(printable, omitted.lines([(spec.name, spec.omits)]))
    return "\n".join([*table(heads, "r" * len(heads), rows, style), *notes, *left_out, ""])


def step(spec: Spec) -> str:
    """Return what a step's memory depends on most, besides sizes."""
    training = spec.scenarios[0].training
    batch = f"B = {training.batch_size}, n = {training.sequence_length}"
    return f"{batch}, {training.precision}, {training.optimizer}, recomputation {training.recompute}"


def as_json(spec: Spec, found: Sequence[Configuration]) -> str:
    """Return the suggestions as JSON, exact."""
    return json.dumps([asdict(shape) | {"not_counted": spec.omits} for shape in found], ensure_ascii=False, indent=2) + "\n"
