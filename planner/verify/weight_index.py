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

from planner.spec.printable import printable
from planner.spec.source import leaves_repository
from planner.verify import CannotMeasureError

if TYPE_CHECKING:
    from planner.capacity.figures import Plan

NAME = "model.safetensors.index.json"
_LIMIT = 2**26  # bytes; 92,000 tensors take 9 MB
_WIDTHS = (2, 4)  # bytes of a parameter
_MOST = 10  # parts that are listed
_FREQUENCIES = 4 * 256  # bytes of a layer's rotary frequencies: half a head's width in float32, at most
# What the names of stored tensors say about them.
_KINDS = {
    "quantized": re.compile(
        r"\.(qweight|qzeros|scales|g_idx|weight_scale|weight_scale_inv|weight_scale_2|input_scale|weight_packed|weight_shape|absmax"
        r"|quant_map|quant_state|SCB)(\.|$)|_(blocks|scales)$"
    ),
    "head": re.compile(r"(?:^|\.)(?:lm_head|embed_out)\.weight$"),
    "corrections": re.compile(r"(?:e_score_correction_bias|expert_bias)$"),
    "prediction": re.compile(r"(?:^|\.)mtp\."),
    "frequencies": re.compile(r"rotary_emb\.inv_freq$"),
    # The causal mask of GPT-2, GPT-NeoX and GPT-J, which have no bias of this name.
    "masks": re.compile(r"\.(?:attn|attention)\.bias$"),
    "masked": re.compile(r"\.(?:attn|attention)\.masked_bias$"),
}
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d{1,6})\.")
# Parts of models that are no decoder of text, by a component of their tensors' names.
_OTHER = re.compile(
    r"vision|visual|image|audio|speech|video|projector|connector|aligner|merger|resampler|perceiver|codec|talker|token2wav|code2wav"
)


@dataclass(frozen=True, slots=True)
class Weighed:
    """The result: whether index and plan agree, None if that cannot be decided, and the reason."""

    agrees: bool | None
    text: str


@dataclass(frozen=True, slots=True)
class _Index:
    total: int
    parameters: int | None  # recent versions of transformers write their number, too
    kinds: Counter[str]  # tensors of each kind
    quantized: str  # the name of one
    others: Counter[str]  # tensors by the prefix of a part that is no decoder
    layers: int  # of the decoder


def check(plan: Plan, file: str | Path) -> Weighed:
    """Compare the total size of an index with the parameters of a plan. Raises CannotMeasureError if the file is no such index."""
    index = _read(Path(file))
    stored = plan.parameters.total
    if index.parameters == stored:
        return Weighed(True, f"total_parameters are the spec's {stored:,}")
    if index.quantized:
        return Weighed(None, f"not checked: the weights are quantized ({index.quantized})")
    for width in _WIDTHS:
        for more, reasons in _explained(plan, index, width):
            rest = index.total - width * stored - more
            if rest == 0 or (rest > 0 and _are_frequencies(index, rest)):
                plus = " plus ".join(("", *reasons, *(["rotary frequencies"] if rest else [])))
                return Weighed(True, f"{index.total:,} bytes are the spec's {stored:,} parameters of {width} bytes{plus}")
    return _difference(plan, index)


def _explained(plan: Plan, index: _Index, width: int) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the bytes of stored tensors that are no parameters of their own, with the reasons."""
    options: list[tuple[tuple[int, str], ...]] = []
    embedding = next((weight.params for weight in plan.parameters.weights if weight.component == "embedding"), 0)
    if not plan.parameters.by_component.get("head") and index.kinds["head"]:
        options.append(((width * embedding, "the tied LM head, which is stored, too"),))
    if index.kinds["corrections"]:
        biases = plan.parameters.correction_biases
        options.append(tuple((size * biases, "the routers' correction biases") for size in (width, 4)))
    if plan.prediction and (index.layers > plan.model.n_layers or index.kinds["prediction"]):
        options.append(((width * plan.prediction.stored_params, "the prediction layers"),))
    if float32 := sum(weight.params for weight in plan.parameters.weights if weight.always_float32):
        options.append(((0, ""), ((4 - width) * float32, f"weights that stay in float32 ({float32:,})")))
    if masks := index.kinds["masks"]:
        square, masked = masks * plan.model.context_length**2, index.kinds["masked"]
        options.append(tuple((one * square + other * masked, "causal masks") for one, other in product((1, 2, 4), (2, 4))))
    for chosen in product(*options):
        yield sum(more for more, _ in chosen), tuple(reason for _, reason in chosen if reason)


def _are_frequencies(index: _Index, rest: int) -> bool:
    layers = index.kinds["frequencies"]
    return layers > 0 and rest % layers == 0 and rest // layers <= _FREQUENCIES


def _difference(plan: Plan, index: _Index) -> Weighed:
    """Return the difference in parameters, and what may explain it."""
    stored = plan.parameters.total
    width = min(_WIDTHS, key=lambda width: abs(index.total - width * stored))
    found = index.total // width
    more = f"{abs(found - stored):,} {'more' if found > stored else 'fewer'} than the spec's {stored:,}"
    text = f"{index.total:,} bytes are {found:,} parameters of {width} bytes, {more}"
    if index.others:
        listed = ", ".join(f"{prefix}.* ({count})" for prefix, count in sorted(index.others.items())[:_MOST])
        text += f"; tensors that the spec does not have: {listed}"
        if plan.omits and found > stored:
            return Weighed(None, f"not checked: {text}")
    if index.layers not in (0, plan.model.n_layers):
        text += f"; the file has {index.layers} layers, the spec {plan.model.n_layers}"
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
    return _named(total, parameters if isinstance(parameters, int) else None, [printable(name) for name in names])


def _named(total: int, parameters: int | None, names: list[str]) -> _Index:
    """Sort the tensors by their names."""
    kinds, others, layers, quantized = Counter[str](), Counter[str](), 0, ""
    for name in names:
        parts = name.split(".")
        other = next((place for place, part in enumerate(parts[:-1], 1) if _OTHER.search(part)), 0)
        if other:
            others[".".join(parts[:other])] += 1
            continue
        for kind, pattern in _KINDS.items():
            kinds[kind] += bool(pattern.search(name))
        if not quantized and kinds["quantized"]:
            quantized = name
        if layer := _LAYER.search(name):
            layers = max(layers, int(layer[1]) + 1)
    return _Index(total, parameters, kinds, quantized, others, layers)
