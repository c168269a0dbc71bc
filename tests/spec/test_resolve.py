"""Resolving: a spec becomes records with every default filled in."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from planner import spec
from planner.spec.language import leaves
from planner.spec.records import Attention, Claim, FeedForward, Layer, Model, Norm, Place, Positions, Run, Spec, Training
from planner.spec.suggest import stated

Small = Callable[..., Spec]
Write = Callable[..., Path]


PARTS_THAT_GPT_2_LACKS = (
    *(
        f"model.{path}"
        for path, key in stated(Model)
        if key.quiet and path.partition(".")[0] not in {"experts", "mamba2", "lightning_attention"}
    ),
    *(f"training.{path}" for path, key in stated(Training) if key.quiet and not path.startswith(("adapters.", "base."))),
    "training.device",
    "training.attention_kernel",
    "training.loss",
    "training.keep_logits",
    "training.use_cache",
    "training.optimizer_kernel",
    "training.ema",
    "training.reserve_bytes",
    "training.round_allocations",
)


def dense(layer: Layer) -> FeedForward:
    assert layer.feed_forward is not None
    return layer.feed_forward


def attending(layer: Layer) -> Attention:
    assert layer.attention is not None
    return layer.attention


def only_layer(loaded: Spec) -> Layer:
    (run,) = loaded.model.runs
    (layer,) = run.layers
    return layer


def test_a_dozen_lines_are_gpt_2(write: Write) -> None:
    loaded = spec.load(
        write("""\
name: gpt2
model: {vocab_size: 50257, context_length: 1024, d_model: 768, n_layers: 12, n_heads: 12}
training: {tokens: 300e9}
""")
    )
    assert only_layer(loaded) == Layer(
        Attention(n_heads=12, n_kv_heads=12, head_dim=64),
        FeedForward(d_ff=3072, gate_bias=False),
        positions=Positions("learned"),
        norm=Norm("layernorm", weight=True, bias=True),
        norm_placement="before",
        block="sequential",
    )
    assert loaded.model.runs[0].count == loaded.model.n_layers == 12
    assert loaded.model.tied_head
    assert loaded.scenarios[0].training.sequence_length == 1024
    assert loaded.scenarios[0].training.tokens == 300_000_000_000


def test_every_key_is_read(write: Write) -> None:
    loaded = spec.load(
        write("""\
name: everything
description: |
  two
  lines
source: [https://a.example, "a book"]
model:
  vocab_size: 50277
  pad_vocab_to_multiple_of: 256
  context_length: 2048
  d_model: 100
  n_layers: 3
  n_heads: 6
  n_kv_heads: 2
  head_dim: 32
  d_ff: 1024.0
  attention: {bias: {q: true, k: false, v: true, o: false}, qk_norm: full_width, qkv: separate}
  feed_forward: {type: gated, activation: silu, bias: {up: false, gate: true}}
  norm: {type: rmsnorm, placement: before_and_after}
  block: sequential
  positions: {type: rope, rotary_dim: 16}
  embedding_norm: true
  final_norm: false
  head: {tied: false, bias: true}
training:
  batch_size: 8
  sequence_length: 4096
  steps: 1000
  gradient_accumulation: 4
  precision: bf16-master
  gradient_dtype: bf16
  optimizer: muon
  dropout: 0.1
  recompute: selective
  implementation: megatron
  flops_convention: palm
expect: {params_total: 12e3, peak_bytes: 0}
""")
    )
    layer = Layer(
        Attention(6, 2, 32, qkv="separate", q_bias=True, k_bias=False, v_bias=True, o_bias=False, qk_norm="full_width"),
        FeedForward(1024, gated=True, activation="silu", gate_bias=True, up_bias=False, down_bias=True),
        positions=Positions("rope", rotary_dim=16),
        norm=Norm("rmsnorm", weight=True, bias=False),
        norm_placement="before_and_after",
    )
    assert loaded.model.runs == (Run(3, (layer,)),)
    assert (loaded.model.vocab_size, loaded.model.padded_vocab_size) == (50277, 50432)  # 197 * 256, GPT-NeoX-20B's table
    assert (loaded.model.embedding_norm, loaded.model.final_norm, loaded.model.tied_head, loaded.model.head_bias) == (
        True,
        False,
        False,
        True,
    )
    assert loaded.model.norm == layer.norm
    training = loaded.scenarios[0].training
    assert (training.batch_size, training.sequence_length, training.gradient_accumulation) == (8, 4096, 4)
    assert training.tokens == 1000 * 8 * 4096 * 4
    assert (training.precision, training.gradient_dtype, training.optimizer) == ("bf16-master", "bf16", "muon")
    assert training.dropout == Fraction(1, 10)
    assert (training.recompute, training.implementation, training.flops_convention) == ("selective", "megatron", "palm")
    assert (loaded.name, loaded.path, loaded.description) == ("everything", "x.yaml", "two\nlines\n")
    assert loaded.sources == ("https://a.example", "a book")
    assert loaded.claims == (
        Claim("params_total", 12000, Place("x.yaml", 36, 24)),
        Claim("peak_bytes", 0, Place("x.yaml", 36, 42)),
    )
    written_so = {"model.feed_forward.bias.down", "model.norm.weight", "model.norm.bias"}
    assert {key for key in loaded.defaulted if key not in PARTS_THAT_GPT_2_LACKS} == written_so


def test_sizes_are_exact_integers_in_every_notation(small: Small) -> None:
    model = small("  d_ff: 9007199254740991.0\n  pad_vocab_to_multiple_of: 0x40\n  head_dim: 010\n  n_kv_heads: 0o4\n").model
    (run,) = model.runs
    (layer,) = run.layers
    assert dense(layer).d_ff == 2**53 - 1
    assert (attending(layer).head_dim, attending(layer).n_kv_heads, model.padded_vocab_size) == (10, 4, 128)
    assert {type(size) for size in (dense(layer).d_ff, attending(layer).head_dim, model.padded_vocab_size)} == {int}


def test_defaults_are_listed_in_the_order_of_the_schema(small: Small) -> None:
    defaulted = small().defaulted
    assert tuple(key for key in leaves() if key in defaulted) == defaulted
    assert {key for key in defaulted if key in PARTS_THAT_GPT_2_LACKS} == set(PARTS_THAT_GPT_2_LACKS) & {
        key for key in leaves() if "default" in leaves()[key]
    }
    assert tuple(key for key in defaulted if key not in PARTS_THAT_GPT_2_LACKS) == (
        "model.pad_vocab_to_multiple_of",
        "model.n_kv_heads",
        "model.head_dim",
        "model.d_ff",
        "model.attention.bias.q",
        "model.attention.bias.k",
        "model.attention.bias.v",
        "model.attention.bias.o",
        "model.attention.qk_norm",
        "model.attention.qkv",
        "model.feed_forward.type",
        "model.feed_forward.activation",
        "model.feed_forward.bias.up",
        "model.feed_forward.bias.down",
        "model.norm.type",
        "model.norm.weight",
        "model.norm.bias",
        "model.norm.placement",
        "model.block",
        "model.positions.type",
        "model.positions.offset",
        "model.embedding_norm",
        "model.final_norm",
        "model.head.tied",
        "model.head.bias",
        "training.batch_size",
        "training.sequence_length",
        "training.gradient_accumulation",
        "training.precision",
        "training.optimizer",
        "training.dropout",
        "training.recompute",
        "training.implementation",
        "training.flops_convention",
    )


@pytest.mark.parametrize(
    ("written", "gone"),
    [
        (
            "  attention: {bias: false}",
            {"model.attention.bias.q", "model.attention.bias.k", "model.attention.bias.v", "model.attention.bias.o"},
        ),
        ("  feed_forward: {bias: {up: true}}", {"model.feed_forward.bias.up"}),
        ("  positions: learned", {"model.positions.type"}),
        ("  positions: none", {"model.positions.type", "model.positions.offset", "model.positions.frozen"}),
        ("  positions: {offset: 2}", {"model.positions.offset"}),
    ],
)
def test_a_shorthand_is_not_a_default(small: Small, written: str, gone: set[str]) -> None:
    assert set(small().defaulted) - set(small(written).defaulted) == gone


@pytest.mark.parametrize(
    ("written", "norm"),
    [
        ("{}", Norm("layernorm", weight=True, bias=True)),
        ("{bias: false}", Norm("layernorm", weight=True, bias=False)),
        ("{weight: false}", Norm("layernorm", weight=False, bias=False)),
        ("{type: rmsnorm}", Norm("rmsnorm", weight=True, bias=False)),
        ("{type: rmsnorm, weight: false, bias: false}", Norm("rmsnorm", weight=False, bias=False)),
    ],
)
def test_a_norm_has_a_bias_only_as_a_layernorm_with_weight(small: Small, written: str, norm: Norm) -> None:
    loaded = small(f"  norm: {written}\n")
    assert only_layer(loaded).norm == loaded.model.norm == norm


@pytest.mark.parametrize(
    ("written", "positions"),
    [
        ("learned", Positions("learned")),
        ("{type: learned, offset: 2}", Positions("learned", offset=2)),
        ("{offset: 2}", Positions("learned", offset=2)),
        ("rope", Positions("rope", rotary_dim=12)),
        ("{type: rope}", Positions("rope", rotary_dim=12)),
        ("{type: rope, rotary_dim: 4}", Positions("rope", rotary_dim=4)),
        ("alibi", Positions("alibi")),
        ("sinusoidal", Positions("sinusoidal")),
        ("none", Positions("none")),
        ("{type: none}", Positions("none")),
    ],
)
def test_positions(small: Small, written: str, positions: Positions) -> None:
    loaded = small(f"  positions: {written}\n")
    assert only_layer(loaded).positions == loaded.model.positions == positions


@pytest.mark.parametrize(
    ("multiple", "rows"),
    [(1, 100), (7, 105), (50, 100), (64, 128), (100, 100), (1000, 1000)],
)
def test_the_vocabulary_is_padded_to_the_next_multiple(small: Small, multiple: int, rows: int) -> None:
    assert small(f"  pad_vocab_to_multiple_of: {multiple}\n").model.padded_vocab_size == rows


def test_a_uniform_model_is_one_layer_group(write: Write, minimal: str) -> None:
    loaded = spec.load(write(minimal.replace("n_layers: 2", "n_layers: 1000000")))
    assert [run.count for run in loaded.model.runs] == [1_000_000]


def test_layer_groups_override_the_settings_of_the_model(write: Write, minimal: str) -> None:
    loaded = spec.load(
        write(
            minimal.replace("  n_layers: 2\n", "")
            + """\
  n_kv_heads: 2
  d_ff: 7
  attention: {bias: false, qk_norm: head_dim}
  positions: rope
  layers:
    - {count: 2, n_kv_heads: 1, attention: {bias: {q: true, k: true, v: true}}}
    - {}
    - count: 5
      positions: {rotary_dim: 4}
      layers:
        - {d_ff: 100, positions: none}
        - {d_ff: 200, head_dim: 8, attention: {qkv: separate}}
    - {n_heads: 8, positions: {type: none}}
"""
        )
    )
    first, second, group, last = loaded.model.runs
    assert [run.count for run in loaded.model.runs] == [2, 1, 5, 1]
    assert loaded.model.n_layers == 2 + 1 + 5 * 2 + 1
    assert second.layers == (
        Layer(
            Attention(4, 2, 12, q_bias=False, k_bias=False, v_bias=False, o_bias=False, qk_norm="head_dim"),
            FeedForward(7, gate_bias=False),
            positions=Positions("rope", rotary_dim=12),
        ),
    )
    assert first.layers[0].attention == Attention(4, 1, 12, o_bias=False, qk_norm="head_dim")  # o stays as in the model
    wide, narrow = group.layers
    assert (dense(wide).d_ff, wide.positions) == (100, Positions("none"))
    assert (dense(narrow).d_ff, narrow.positions) == (200, Positions("rope", rotary_dim=4))
    assert (attending(narrow).head_dim, attending(narrow).qkv, attending(narrow).qk_norm) == (8, "separate", "head_dim")
    assert last.layers[0].attention == Attention(8, 2, 6, q_bias=False, k_bias=False, v_bias=False, o_bias=False, qk_norm="head_dim")
    assert last.layers[0].positions == Positions("none")


def test_a_width_set_in_every_layer_group_is_not_a_default(write: Write, minimal: str) -> None:
    gated = minimal + "  feed_forward: {type: gated}\n  layers: [{d_ff: 3}, {d_ff: 5}]\n"
    loaded = spec.load(write(gated))
    assert [dense(run.layers[0]).d_ff for run in loaded.model.runs] == [3, 5]
    assert "model.d_ff" not in loaded.defaulted


def test_heads_set_only_in_layer_groups(write: Write, minimal: str) -> None:
    text = (
        minimal.replace("n_heads: 4", "n_heads: 5").replace("n_layers: 2", "n_layers: 1") + "  positions: rope\n  layers: [{head_dim: 8}]\n"
    )
    loaded = spec.load(write(text))
    assert loaded.model.runs[0].layers[0].positions == Positions("rope", rotary_dim=8)
    assert loaded.model.positions.type == "rope"


def test_scenarios_override_training(small: Small) -> None:
    loaded = small("""\
training: {batch_size: 8, tokens: 1000, precision: bf16-master, gradient_dtype: bf16, dropout: 0.25}
scenarios:
  - {name: long, sequence_length: 32, batch_size: 1}
  - {name: steps, steps: 10}
  - {name: pure, precision: fp32, dropout: 0}
  - {name: again, precision: bf16-master}
  - {name: same}
""")
    base, long, steps, pure, again, same = (scenario.training for scenario in loaded.scenarios)
    assert [scenario.name for scenario in loaded.scenarios] == ["base", "long", "steps", "pure", "again", "same"]
    assert (long.batch_size, long.sequence_length, long.tokens, long.dropout) == (1, 32, 1000, Fraction(1, 4))
    assert steps.tokens == 10 * 8 * 64  # steps replace tokens
    assert (pure.precision, pure.gradient_dtype, pure.dropout) == ("fp32", "fp32", Fraction(0))  # a gradient_dtype belongs to its precision
    assert (again.precision, again.gradient_dtype) == ("bf16-master", "fp32")
    assert same == base
    assert "training.recompute" in loaded.defaulted


def test_a_key_set_in_a_scenario_stays_a_default_in_the_base(small: Small) -> None:
    loaded = small("scenarios: [{name: other, batch_size: 3}]\n")
    assert "training.batch_size" in loaded.defaulted
    assert [scenario.training.batch_size for scenario in loaded.scenarios] == [1, 3]


@pytest.mark.parametrize(
    ("precision", "gradients"),
    [("fp32", "fp32"), ("bf16-autocast", "fp32"), ("fp16-autocast", "fp32"), ("bf16-master", "fp32"), ("bf16", "bf16")],
)
def test_the_dtype_of_gradients_follows_from_the_precision(small: Small, precision: str, gradients: str) -> None:
    loaded = small(f"training: {{precision: {precision}}}\n")
    assert loaded.scenarios[0].training.gradient_dtype == gradients
    assert ("training.gradient_dtype" in loaded.defaulted) == (precision == "bf16-master")


@pytest.mark.parametrize(
    ("training", "tokens"),
    [
        ("{}", None),
        ("{tokens: 5}", 5),
        ("{steps: 5}", 5 * 64),
        ("{steps: 5, batch_size: 3, sequence_length: 7, gradient_accumulation: 2}", 5 * 3 * 7 * 2),
        ("{steps: 5, tokens: 320}", 320),
        ("{tokens: 123456789012345e1}", 1234567890123450),
    ],
)
def test_tokens(small: Small, training: str, tokens: int | None) -> None:
    assert small(f"training: {training}\n").scenarios[0].training.tokens == tokens


@pytest.mark.parametrize(("text", "exact"), [("0.1", Fraction(1, 10)), ("0", 0), ("1e-4", Fraction(1, 10_000)), ("0.30", Fraction(3, 10))])
def test_dropout_is_an_exact_decimal(small: Small, text: str, exact: Fraction) -> None:
    dropout = small(f"training: {{dropout: {text}}}\n").scenarios[0].training.dropout
    assert dropout == exact
    assert isinstance(dropout, Fraction)


def test_one_source_or_several(small: Small) -> None:
    assert small().sources == ()
    assert small("source: https://a.example\n").sources == ("https://a.example",)
    assert small("source: [a, b]\n").sources == ("a", "b")


def test_every_value_has_its_location(small: Small) -> None:
    places = small("  positions: rope\n  layers:\n  - count: 2\ntraining: {batch_size: 8}\n").places
    assert places["name",] == Place("x.yaml", 1, 7)
    assert places["model", "d_model"] == Place("x.yaml", 5, 12)
    assert places["model", "layers", 0, "count"] == Place("x.yaml", 10, 12)
    assert places["training", "batch_size"] == Place("x.yaml", 11, 24)


def test_anchors_and_aliases_are_supported(small: Small) -> None:
    loaded = small("  layers: [&one {d_ff: 7}, *one]\n")
    (run,) = loaded.model.runs  # equal layers in a row are one group
    assert run.layers[0].feed_forward is not None
    assert (run.count, run.layers[0].feed_forward.d_ff) == (2, 7)


def test_specs_are_compared_and_hashed_by_content(small: Small) -> None:
    assert small("# a comment\n") == small()
    assert hash(small("# a comment\n")) == hash(small())
    assert small("  d_ff: 3\n") != small()
