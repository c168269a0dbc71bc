"""The index of a checkpoint in safetensors: whether its total size is that of the parameters.

The index has the bytes of all tensors and their names, but neither shapes nor data types.
"""

from __future__ import annotations

import json
import re
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.spec.source import leaves_repository
from planner.verify import CannotMeasureError

if TYPE_CHECKING:
    from planner.capacity.figures import Plan

NAME = "model.safetensors.index.json"
_LIMIT = 2**26  # bytes; 92,000 tensors take 9 MB
_WIDTHS = (2, 4)  # bytes of a parameter
_FREQUENCIES = 4 * 256  # bytes of a layer's rotary frequencies: half a head's width in float32, at most
_QUANTIZED = re.compile(
    r"\.(qweight|qzeros|scales|g_idx|weight_scale|weight_scale_inv|weight_scale_2|input_scale|weight_packed|weight_shape|absmax"
    r"|quant_map|quant_state\.\w+|SCB)$|_(blocks|scales)$"
)
# Parts that are no language model, by a component of their tensors' names.
_OTHER = re.compile(
    r"(.*?\b\w*(?:vision|visual|image|audio|speech|video|projector|connector|aligner|merger|resampler|perceiver|codec|talker|token2wav"
    r"|code2wav)\w*)\..+"
)
_PREDICTION = re.compile(r"\bmtp\b")
_LAYER = re.compile(r"\b(?:layers|h|blocks)\.(\d+)\.")
_HEAD = re.compile(r"(?:^|\.)(?:lm_head|embed_out)\.weight$")
_CORRECTION = re.compile(r"(?:e_score_correction_bias|expert_bias)$")
_ROTARY = re.compile(r"rotary_emb\.inv_freq$")
_MASK = re.compile(r"\.(?:attn|attention)\.bias$")  # the causal mask of GPT-2, GPT-NeoX and GPT-J, which have no bias of this name
_MASKED = re.compile(r"\.(?:attn|attention)\.masked_bias$")


@dataclass(frozen=True, slots=True)
class Weighed:
    """The result: whether index and plan agree, None if that cannot be decided, and the reason."""

    agrees: bool | None
    text: str


@dataclass(frozen=True, slots=True)
class _Index:
    total: int
    parameters: int | None  # recent versions of transformers write their number, too
    names: tuple[str, ...]


def check(plan: Plan, file: str | Path) -> Weighed:
    """Compare the total size of an index with the parameters of a plan. Raises CannotMeasureError if the file is no such index."""
    index = _read(Path(file))
    if index.parameters == plan.parameters.total:
        return Weighed(True, f"total_parameters are the spec's {index.parameters:,}")
    if example := next((name for name in index.names if _QUANTIZED.search(name)), ""):
        return Weighed(None, f"not checked: the weights are quantized ({example})")
    others = Counter(match[1] for name in index.names if (match := _OTHER.fullmatch(name)))
    stored = plan.parameters.total
    for width in _WIDTHS:
        for more, reasons in _explained(plan, index, width):
            rest = index.total - width * stored - more
            if rest == 0 or (rest > 0 and _are_frequencies(index, rest)):
                plus = " plus ".join(("", *reasons, *(["rotary frequencies"] if rest else [])))
                return Weighed(True, f"{index.total:,} bytes are the spec's {stored:,} parameters of {width} bytes{plus}")
    return _difference(plan, index, others)


def _explained(plan: Plan, index: _Index, width: int) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the bytes of stored tensors that are no parameters of their own, with the reasons."""
    options: list[tuple[tuple[int, str], ...]] = []
    embedding = next((weight.params for weight in plan.parameters.weights if weight.component == "embedding"), 0)
    if not plan.parameters.by_component.get("head") and any(map(_HEAD.search, index.names)):
        options.append(((width * embedding, "the tied LM head, which is stored, too"),))
    if any(map(_CORRECTION.search, index.names)):
        biases = plan.parameters.correction_biases
        options.append(tuple((bytes_ * biases, "the routers' correction biases") for bytes_ in (width, 4)))
    deepest = max((int(match[1]) for name in index.names if (match := _LAYER.search(name))), default=-1)
    if plan.prediction and (deepest >= plan.model.n_layers or any(map(_PREDICTION.search, index.names))):
        options.append(((width * plan.prediction.stored_params, "the prediction layers"),))
    float32 = sum(weight.params for weight in plan.parameters.weights if weight.always_float32)
    options.append(((0, ""), ((4 - width) * float32, f"weights that stay in float32 ({float32:,})")) if float32 else ((0, ""),))
    masks, masked = (sum(bool(pattern.search(name)) for name in index.names) for pattern in (_MASK, _MASKED))
    if masks:
        sizes = {masks * plan.model.context_length**2 * one + masked * other for one in (1, 2, 4) for other in (2, 4)}
        options.append(tuple((size, "causal masks") for size in sorted(sizes)))
    for chosen in product(*options):
        yield sum(more for more, _ in chosen), tuple(reason for _, reason in chosen if reason)


def _are_frequencies(index: _Index, rest: int) -> bool:
    layers = sum(bool(_ROTARY.search(name)) for name in index.names)
    return layers > 0 and rest % layers == 0 and rest // layers <= _FREQUENCIES


def _difference(plan: Plan, index: _Index, others: Counter[str]) -> Weighed:
    """Return the difference in parameters, and what may explain it."""
    stored = plan.parameters.total
    width = min(_WIDTHS, key=lambda width: abs(index.total - width * stored))
    found = index.total // width
    more = f"{abs(found - stored):,} {'more' if found > stored else 'fewer'} than the spec's {stored:,}"
    text = f"{index.total:,} bytes are {found:,} parameters of {width} bytes, {more}"
    if others:
        listed = ", ".join(f"{prefix}.* ({count})" for prefix, count in sorted(others.items()))
        text += f"; tensors that the spec does not have: {listed}"
        if plan.omits and found > stored:
            return Weighed(None, f"not checked: {text}")
    deepest = max((int(match[1]) for name in index.names if not _OTHER.fullmatch(name) and (match := _LAYER.search(name))), default=-1)
    if deepest >= 0 and deepest + 1 != plan.model.n_layers:
        text += f"; the file has layers 0 to {deepest}, the spec {plan.model.n_layers}"
    return Weighed(False, text)


def _read(path: Path) -> _Index:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LIMIT or leaves_repository(str(path)):
            raise CannotMeasureError(f"{path.as_posix()} is not a regular file of up to {_LIMIT // 2**20} MiB in the repository")
        made = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or "invalid JSON"
        raise CannotMeasureError(f"{path.as_posix()} cannot be read: {reason}") from None
    metadata: Any = made.get("metadata") if isinstance(made, dict) else None
    names: Any = made.get("weight_map") if isinstance(made, dict) else None
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, float) and total.is_integer():
        total = int(total)
    if not isinstance(total, int) or isinstance(total, bool) or total < 1 or not isinstance(names, dict) or not names:
        raise CannotMeasureError(f"{path.as_posix()} is not an index of safetensors: it has no metadata.total_size or no weight_map")
    parameters = metadata.get("total_parameters")
    return _Index(total, parameters if isinstance(parameters, int) else None, tuple(map(str, names)))
