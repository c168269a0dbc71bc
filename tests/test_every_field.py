"""Every field of every record matters: changing it changes some metric, or the field is listed below with the reason why not."""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

import planner
from planner.capacity.figures import COMPONENTS
from planner.spec.records import Scenario, Spec

LAYER = "model.runs.Run.layers.Layer"
# These change no metric.
WITHOUT_FIGURE: Mapping[str, str] = {
    "model.positions.rotary_dim": "rope belongs to layers; the embedding adds learned and sinusoidal positions only",
    "model.patches.image": "it sets context_length and the length of sequences, which a plan reads",
    "model.encoder.frames.length": "it sets the length of the sequences that the encoder reads, which a plan reads",
    "model.vocab_multiple": "only tensor-parallel devices of Megatron-Core round up to it once more",
    f"{LAYER}.positions.offset": "the table of learned positions belongs to the model",
    f"{LAYER}.positions.frozen": "the table of learned positions belongs to the model",
    f"{LAYER}.positions.buckets": "the table of distances belongs to a stack",
}

DENSE: dict[str, Any] = {"vocab_size": 101, "context_length": 24, "d_model": 32, "n_heads": 4, "d_ff": 48}
ROPE = {"positions": {"type": "rope", "rotary_dim": 4}}
EXPERTS: dict[str, Any] = {
    "count": 6,
    "top_k": 2,
    "d_ff": 24,
    "bias": True,
    "router_bias": True,
    "correction_bias": "buffer",
    "shared": {"d_ff": 16, "gate": True},
    "latent_dim": 20,
    "output_norm": True,
    "empty": 2,
    "capacity_factor": 1.5,
    "beside_feed_forward": True,
}
LATENT = {"q_rank": 12, "kv_rank": 10, "nope_dim": 8, "rope_dim": 4, "v_dim": 6, "indexer": {"n_heads": 2, "head_dim": 8, "top_k": 5}}
MIXERS: dict[str, dict[str, Any]] = {
    "mamba": {"d_inner": 64, "d_state": 8, "dt_rank": 4, "norms": True},
    "mamba2": {"d_inner": 64, "d_state": 8, "n_heads": 4, "n_groups": 2, "chunk": 6},
    "gated_delta_net": {"n_key_heads": 2, "n_value_heads": 4, "key_dim": 8, "value_dim": 6},
    "kimi_delta_attention": {"n_heads": 4, "head_dim": 8},
    "lightning_attention": {"n_heads": 4, "head_dim": 8, "block": 6},
    "rg_lru": {"width": 32, "n_blocks": 2},
    "rwkv": {"width": 32},
    "short_convolution": {"width": 32},
    "mlstm": {"n_heads": 2, "qk_dim": 16, "v_dim": 32},
}
TRAINING = {"batch_size": 3, "sequence_length": 16, "tokens": 4800, "dropout": 0.1}
EAGER = {"implementation": "pytorch-eager"}
CORE = {"implementation": "megatron-core", "precision": "bf16-master", "recompute": "selective"}
GATED = {"norm": {"type": "rmsnorm"}, "feed_forward": {"type": "gated", "activation": "silu", "bias": False}}
LIGER = {"implementation": "transformers"}
# Models and training settings that together use every part.
BASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "GPT-2": (DENSE | {"n_layers": 2, "positions": {"type": "learned", "offset": 2}}, {}),
    "GPT-2, all kept": (DENSE | {"n_layers": 2, "head": {"tied": False, "logit_softcap": 30.0}}, EAGER | {"precision": "fp32"}),
    "grouped heads": (
        DENSE
        | ROPE
        | {
            "n_kv_heads": 2,
            "feed_forward": {"type": "gated", "activation": "silu", "sparse": True},
            "norm": {"type": "rmsnorm", "unit_offset": True},
            "attention": {"qkv": "separate", "qk_norm": "head_dim", "window": 8, "chunked": True, "logit_softcap": 50.0},
            "layers": [{"count": 2, "layers": [{}, {"attention": {"window": "none", "chunked": False}}]}],
        },
        EAGER | {"recompute": "selective"},
    ),
    "transformers": (DENSE | ROPE | {"n_layers": 2}, {"implementation": "transformers", "optimizer_kernel": "foreach"}),
    "megatron": (
        DENSE | {"n_layers": 2},
        {"implementation": "megatron", "precision": "bf16-master", "optimizer": "lion", "recompute": "full"},
    ),
    "megatron-core": (DENSE | {"n_layers": 2}, CORE),
    "float8": (DENSE | {"n_layers": 1}, {"device": "h100"}),
    "experts of megatron-core": (DENSE | {"n_layers": 2, "experts": EXPERTS | {"beside_feed_forward": False}}, CORE),
    "all that attention has": (
        DENSE
        | {
            "n_layers": 2,
            "attention": {
                "qkv": "separate",
                "v_head_dim": 6,
                "logit_softcap": 50.0,
                "output_gate": "element",
                "sinks": True,
                "output_norm": True,
            },
            "block": "parallel_two_norms",
            "feed_forward": {"hidden_norm": True},
        },
        EAGER,
    ),
    "experts": (DENSE | {"n_layers": 2, "experts": EXPERTS}, {"optimizer": "muon"}),
    "plain experts": (DENSE | {"n_layers": 1, "experts": {"count": 6, "top_k": 2, "d_ff": 24}}, {}),
    "Adafactor of transformers": (DENSE | ROPE | {"n_layers": 1}, {"implementation": "transformers", "optimizer": "adafactor"}),
    "adapters": (
        DENSE | ROPE | {"n_layers": 3, "head": {"tied": False}},
        LIGER
        | {
            "train": ["adapters", "norm"],
            "adapters": {"rank": 4, "targets": ["qkv", "o"], "layers": ["0", "1"], "dropout": 0.1},
            "also_train": ["embedding", "head"],
            "recompute": "full",
        },
    ),
    "packed": (
        DENSE | ROPE | {"n_layers": 2},
        LIGER | {"train": "adapters", "adapters": {"rank": 4, "dtype": "base"}, "base": {"format": "nf4"}, "precision": "bf16"},
    ),
    "scales": (
        DENSE | ROPE | {"n_layers": 2},
        LIGER | {"train": "adapters", "adapters": {"type": "ia3", "targets": ["o", "down"], "feedforward": ["down"]}, "precision": "bf16"},
    ),
    "prompt": (DENSE | ROPE | {"n_layers": 2}, LIGER | {"train": "adapters", "adapters": {"type": "prompt"}, "precision": "bf16"}),
    "prefix": (DENSE | ROPE | {"n_layers": 2}, LIGER | {"train": "adapters", "adapters": {"type": "prefix"}, "precision": "bf16"}),
    "paged": (DENSE | {"n_layers": 1, "extra": [{"name": "a", "shape": [100_000]}]}, {"optimizer": "ademamix"}),
    "liger": (
        DENSE | ROPE | GATED | {"n_layers": 1, "model_type": "llama"},
        LIGER | {"liger": {"rope": True, "rms_norm": True, "swiglu": True, "fused_linear_cross_entropy": True}},
    ),
    "liger with logits": (
        DENSE | ROPE | GATED | {"n_layers": 1, "model_type": "llama"},
        LIGER | {"liger": {"cross_entropy": True, "fused_linear_cross_entropy": False}},
    ),
    "encoder": (
        DENSE
        | {
            "n_layers": 2,
            "causal": False,
            "segments": 2,
            "embedding_dim": 12,
            "embedding_projection": "embedded",
            "head": {"transform": True, "bias": True},
        },
        {},
    ),
    "encoder of text": (DENSE | {"n_layers": 2, "positions": {"type": "bucketed"}, "encoder": {"n_layers": 2}}, {"encoder_length": 20}),
    "encoder of audio": (DENSE | {"n_layers": 2, "encoder": {"n_layers": 2, "frames": {"bins": 4, "length": 40}}}, {}),
    "images": (
        {
            "d_model": 32,
            "n_heads": 4,
            "d_ff": 48,
            "n_layers": 2,
            "causal": False,
            "patches": {"image": 12, "size": 4},
            "head": {"type": "classes"},
        },
        {"sequence_length": 10},
    ),
    "tower": (
        DENSE
        | {
            "n_layers": 2,
            "vision": {"patches": {"image": 12, "size": 4}, "d_model": 16, "n_layers": 3, "read_layers": 2, "n_heads": 2, "d_ff": 24},
        },
        {},
    ),
    "classes": (DENSE | {"n_layers": 2, "head": {"type": "classes", "classes": 3, "pooler": "tanh"}}, {}),
    "liger, GeGLU": (
        DENSE | ROPE | GATED | {"n_layers": 1, "model_type": "gemma", "feed_forward": {"type": "gated", "activation": "gelu_tanh"}},
        LIGER | {"liger": {"geglu": True}},
    ),
    "liger, squared ReLU": (
        DENSE | ROPE | {"n_layers": 1, "model_type": "nemotron", "feed_forward": {"activation": "relu_squared"}},
        LIGER | {"liger": {"relu_squared": True}},
    ),
    "latent attention": (DENSE | ROPE | {"n_layers": 2, "mixer": "latent_attention", "latent_attention": LATENT}, {}),
    "latent attention without positions": (
        DENSE
        | {
            "n_layers": 1,
            "positions": "none",
            "mixer": "latent_attention",
            "latent_attention": LATENT | {"indexer": "none", "selected_keys": 5},
        },
        {},
    ),
    **{name: (DENSE | {"n_layers": 1, "mixer": name, name: sizes}, {"implementation": "transformers"}) for name, sizes in MIXERS.items()},
    "more": (
        DENSE
        | {
            "n_layers": 2,
            "pad_vocab_to_multiple_of": 8,
            "embedding_dim": 12,
            "head": {"tied": False},
            "per_layer_embedding": {"vocab_size": 30, "dim": 4},
            "prediction": {"count": 2},
            "extra": [{"name": "a", "shape": ["d_model", 3], "uses": 2}],
            "layers": [{"count": 2, "extra": [{"name": "b", "shape": [5], "component": "norm"}]}],
        },
        {},
    ),
}


@cache
def spec_of(name: str, folder: Path) -> Spec:
    model, training = BASES[name]
    path = folder / "spec.yaml"
    path.write_text(json.dumps({"name": name, "model": model, "training": TRAINING | training}), encoding="utf-8")  # JSON is YAML
    return planner.load(path)


# --- figures ----------------------------------------------------------------------------------------------------------------------------

ECHOES = {"name", "scenario", "spec_path", "model", "training", "train_tokens", "not_counted"}  # of a plan: its inputs
LABELS = {"name", "path", "component", "dtype"}  # text that identifies a tensor


def figures(spec: Spec) -> object:
    """Return every number of the plan and the names of its tensors."""
    plan = planner.plan(spec)
    return [numbers(getattr(plan, field.name)) for field in fields(plan) if field.name not in ECHOES]


def numbers(value: object, name: str = "") -> object:
    if is_dataclass(value):
        return [numbers(getattr(value, field.name), field.name) for field in fields(value)]
    if isinstance(value, dict):
        return [[key, numbers(each)] for key, each in value.items()]
    if isinstance(value, tuple):
        return [numbers(each) for each in value]
    return value if not isinstance(value, str) or name in LABELS else None


# --- changes ----------------------------------------------------------------------------------------------------------------------------


def changes(record: Any, path: str, rebuild: Callable[[Any], Spec]) -> Iterator[tuple[str, Spec]]:  # noqa: ANN401 - a record of any type
    """Yield specs with one field changed, of the record or a record inside it, each with the field's path."""
    hints = get_type_hints(type(record))
    for field in fields(record):
        value, key = getattr(record, field.name), f"{path}.{field.name}"

        rebuilt = partial(with_field, rebuild, record, field.name)
        for other in others(value, hints[field.name]):
            yield key, rebuilt(other)
        if is_dataclass(value):
            yield from changes(value, key, rebuilt)
        elif isinstance(value, tuple):
            for place, each in enumerate(value):
                if is_dataclass(each):
                    around = partial(with_one, rebuilt, value, place)
                    yield from changes(each, f"{key}.{type(each).__name__}", around)


def with_field(rebuild: Callable[[Any], Spec], record: Any, name: str, new: object) -> Spec:  # noqa: ANN401 - a record of any type
    return rebuild(replace(record, **{name: new}))


def with_one(rebuild: Callable[[Any], Spec], values: tuple[object, ...], place: int, new: object) -> Spec:
    return rebuild((*values[:place], new, *values[place + 1 :]))


def others(value: object, hint: object) -> Iterator[object]:
    """Yield other values that a field could have."""
    kinds = set(alternatives(hint))
    for kind in kinds:
        if get_origin(kind) is Literal:
            yield from (choice for choice in get_args(kind) if choice != value)
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, 2 * value, value // 2, value - 1)
    elif isinstance(value, Fraction):
        yield from (value + Fraction(1, 4), Fraction(0))
    elif isinstance(value, tuple):
        yield from ((), value[:-1], value * 2)
    elif isinstance(value, str) and str in kinds:
        yield from (value + "x", *COMPONENTS)
    if value is None:
        yield from (size for size in (2, 8, 300, Fraction(30)) if type(size) in kinds)
    elif type(None) in kinds:
        yield None


def alternatives(hint: object) -> Iterator[object]:
    """Yield the types of a union and of unions inside it."""
    if get_origin(hint) in (Union, types.UnionType):
        for each in get_args(hint):
            yield from alternatives(each)
    else:
        yield hint


def everything(name: str, folder: Path) -> Iterator[tuple[str, Spec]]:
    spec = spec_of(name, folder)
    training = spec.scenarios[0].training
    yield from changes(spec.model, "model", lambda model: replace(spec, model=model))
    yield from changes(training, "training", lambda training: replace(spec, scenarios=(Scenario("base", training),)))


def paths(record: type, path: str) -> Iterator[str]:
    """Yield the path of every field of a record type and of records inside it, except fields that are always a record."""
    hints = get_type_hints(record)
    for field in fields(record):
        key = f"{path}.{field.name}"
        kinds = list(alternatives(hints[field.name]))
        if not (len(kinds) == 1 and is_dataclass(kinds[0])):
            yield key
        for kind in kinds:
            many = [each for inner in get_args(kind) if inner is not Ellipsis for each in alternatives(inner)]
            for each, inside in [(kind, key), *((each, f"{key}.{each.__name__}") for each in many if isinstance(each, type))]:
                if isinstance(each, type) and is_dataclass(each):
                    yield from paths(each, inside)


def test_every_field_changes_some_metric(tmp_path_factory: pytest.TempPathFactory) -> None:
    types_of = {"model": get_type_hints(Spec, localns={"Node": object})["model"], "training": get_type_hints(Scenario)["training"]}
    # A plan repeats its layout, so that each of its fields changes it.
    waiting = {path for part, type_ in types_of.items() for path in paths(type_, part) if not path.startswith("training.layout")}
    assert len(waiting) > 150
    for name in BASES:
        folder = tmp_path_factory.mktemp("base")
        before = figures(spec_of(name, folder))
        for path, spec in everything(name, folder):
            if path in waiting:
                try:
                    moved = figures(spec) != before
                except Exception:  # noqa: BLE001, S112 - rejected, or sizes that do not fit together: not a change of a metric
                    continue
                waiting -= {path} if moved else set()
    assert sorted(waiting) == sorted(WITHOUT_FIGURE)
