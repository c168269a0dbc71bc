"""What a config.json states about the training of its weights: their data type, quantization, recomputation, dropout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from planner.importer.reader import Config, SpecModel, show

_PRECISIONS = {"bfloat16": "bf16", "float16": "fp16-autocast"}  # float32 is that of the default precision
_NOTES = {
    "bfloat16": "precision bf16, since transformers loads the weights in bfloat16; with fp32 weights, write bf16-master or bf16-autocast",
    "float16": "precision fp16-autocast, with fp32 weights, since no precision has weights in float16 without an fp32 copy",
}
_DTYPES = ("dtype", "torch_dtype")
_QUANTIZED = ("quantization_config", "compression_config", "quantization", "quantization_bit")  # the third is MLX's
_BITS = ("bits", "w_bit", "nbits", "num_bits")
# Keys of dropout: attention probabilities, residual branches, other places. A spec has one probability for all of them.
_ATTENTION = ("attn_pdrop", "attention_dropout", "attn_dropout", "attention_probs_dropout_prob")
_RESIDUAL = ("resid_pdrop", "hidden_dropout", "dropout", "residual_dropout", "resid_dropout", "hidden_dropout_prob")
_ELSEWHERE = ("embd_pdrop", "activation_dropout", "embedding_dropout", "embd_dropout", "ffn_dropout")

KEYS = (*_DTYPES, *_QUANTIZED, "gradient_checkpointing", *_ATTENTION, *_RESIDUAL, *_ELSEWHERE)


@dataclass(frozen=True, slots=True)
class Stored:
    """The weights of a config.json."""

    training: SpecModel = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    omits: tuple[str, ...] = ()


def stored(*configs: Config) -> Stored:
    """Return what the parts of a config.json, the whole first, state about the weights.

    transformers 5 loads weights in the data type of ``dtype``, formerly ``torch_dtype`` (modeling_utils.py, ``from_pretrained``).
    """
    named = (config.get(key) for config in configs for key in _DTYPES)
    dtype = next((name.removeprefix("torch.") for name in named if isinstance(name, str)), "auto")
    training: SpecModel = {"precision": _PRECISIONS[dtype]} if dtype in _PRECISIONS else {}
    if any(config.get("gradient_checkpointing") is True for config in configs):
        training["recompute"] = "full"
    omits = [_text(config[key]) for config in configs for key in _QUANTIZED if _is_quantized(config.get(key))]
    if dtype not in (*_PRECISIONS, "float32", "auto"):
        omits.append(f"data type of the weights {show(dtype)}")
    dropped = {key: configs[-1][key] for key in (*_ATTENTION, *_RESIDUAL, *_ELSEWHERE) if isinstance(configs[-1].get(key), (int, float))}
    if any(dropped.values()):
        alike = len(set(dropped.values())) == 1 and dropped.keys() & set(_ATTENTION) and dropped.keys() & set(_RESIDUAL)
        training |= {"dropout": next(iter(dropped.values()))} if alike else {}
        omits += [] if alike else [f"dropout ({', '.join(f'{key} {show(value)}' for key, value in dropped.items() if value)})"]
    return Stored(training, (_NOTES[dtype],) if dtype in _NOTES else (), tuple(dict.fromkeys(omits)))


def _is_quantized(given: object) -> bool:
    if isinstance(given, Mapping) and given.get("quant_method") == "bitsandbytes":
        return bool(given.get("load_in_4bit") or given.get("load_in_8bit"))
    return bool(given)


def _text(given: object) -> str:
    numbers = list(_bits(given))
    bits = f"{numbers[0]}-bit " if numbers else ""
    method = given.get("quant_method") if isinstance(given, Mapping) else None
    return f"{bits}quantization of the weights{f' ({show(method)[1:-1]})' if isinstance(method, str) else ''}"


def _bits(given: object) -> Iterator[int]:
    if not isinstance(given, Mapping):
        yield from [given] if isinstance(given, int) and given > 1 else []
        return
    yield from (bits for bits in (4, 8) if given.get(f"load_in_{bits}bit") is True)
    yield from (given[key] for key in _BITS if isinstance(given.get(key), int) and not isinstance(given[key], bool))
