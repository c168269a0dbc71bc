"""Settings that do not fit together are reported with a suggested fix; all others are accepted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Heads = Callable[..., list[str]]
Rendered = Callable[..., str]

# A line after the minimal spec (d_model 48, n_heads 4, n_layers 2, context_length 64), and its errors.
REFUSED = """\
  n_kv_heads: 3
    8:15: error[kv-heads]: n_kv_heads 3 does not divide n_heads 4; n_heads must be a multiple of n_kv_heads
  n_kv_heads: 8
    8:15: error[kv-heads]: n_kv_heads 8 does not divide n_heads 4; n_heads must be a multiple of n_kv_heads
  positions: {type: rope, rotary_dim: 13}
    8:39: error[rotary-dim]: rope rotates pairs of channels, and rotary_dim 13 is odd; make it even
    8:39: error[rotary-dim]: rotary_dim 13 exceeds head_dim 12; write at most 12
  positions: {type: rope, rotary_dim: 14}
    8:39: error[rotary-dim]: rotary_dim 14 exceeds head_dim 12; write at most 12
  positions: {type: alibi, rotary_dim: 4}
    8:40: error[positions]: positions.rotary_dim requires positions.type: rope, not alibi; remove it, or write positions.type: rope
  positions: {type: rope, offset: 2}
    8:35: error[positions]: positions.offset requires positions.type: learned, not rope; remove it, or write positions.type: learned
  positions: {rotary_dim: 4}
    8:27: error[positions]: positions.rotary_dim requires positions.type: rope, not learned; remove it, or write positions.type: rope
  feed_forward: {type: gated}
    8:24: error[d-ff]: a gated feed-forward requires d_ff: it has no default; write d_ff
  feed_forward: {bias: {gate: true}}
    8:31: error[gate-bias]: a plain feed-forward has no gate to give a bias; remove gate, or write feed_forward.type: gated
  norm: {type: rmsnorm, bias: true}
    8:31: error[norm-bias]: norm.bias requires norm.type: layernorm, not rmsnorm; remove it, or write norm.type: layernorm
  norm: {weight: false, bias: true}
    8:31: error[norm-bias]: norm.bias requires norm.weight: true, not false; remove it, or write norm.weight: true
  attention: {bias: {k: false}}
    8:21: error[fused-bias]: q, k and v are one matrix (qkv: fused), which has a bias for all of them or none; \
write attention.qkv: separate, or give q, k and v the same
  attention: {qkv: fused_per_head, bias: {v: false}}
    8:42: error[fused-bias]: q, k and v are one matrix (qkv: fused_per_head), which has a bias for all of them or none; \
write attention.qkv: separate, or give q, k and v the same
  layers: [{count: 3}]
    6:13: error[layer-count]: n_layers is 2, but layers defines 3 layers; write n_layers: 3, or remove it
  layers: [{count: 2, layers: [{}, {}]}]
    6:13: error[layer-count]: n_layers is 2, but layers defines 4 layers; write n_layers: 4, or remove it
  layers: [{positions: rope}, {positions: {offset: 2}}]
    8:43: error[run-positions]: learned positions are added at the embedding, not in a run of layers; write them under model.positions
  layers: [{n_heads: 5}, {head_dim: 3}]
    8:22: error[head-dim]: n_heads 5 does not divide d_model 48; write head_dim, or make d_model a multiple of n_heads
  layers: [{feed_forward: {type: gated}}, {d_ff: 3}]
    8:34: error[d-ff]: a gated feed-forward requires d_ff: it has no default; write d_ff
training: {sequence_length: 65}
    8:29: error[context-length]: sequence_length 65 exceeds context_length 64, the size of the learned position embedding; \
write at most 64, or raise context_length
scenarios: [{name: long, sequence_length: 65}]
    8:43: error[context-length]: sequence_length 65 exceeds context_length 64, the size of the learned position embedding; \
write at most 64, or raise context_length
training: {gradient_dtype: bf16}
    8:28: error[gradient-dtype]: gradient_dtype requires precision: bf16-master or fp16-master, not bf16-autocast; remove it
training: {gradient_dtype: fp32, precision: fp32}
    8:28: error[gradient-dtype]: gradient_dtype requires precision: bf16-master or fp16-master, not fp32; remove it
training: {gradient_dtype: bf16, precision: fp16-master}
    8:28: error[gradient-dtype]: precision fp16-master has no gradients in bf16; write fp16 or fp32
training: {tokens: 100, steps: 2}
    8:20: error[tokens-steps]: tokens is 100, but 2 steps of 64 tokens (B * n * gradient_accumulation) are 128; \
keep one of tokens and steps
scenarios: [{name: base}]
    8:20: error[scenario-name]: 'base' is reserved for the spec's own training section; rename the scenario
scenarios: [{name: a}, {name: b}, {name: a}]
    8:42: error[scenario-name]: duplicate scenario 'a' (first used on line 8); rename one of them
"""


def cases() -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = []
    for line in REFUSED.splitlines():
        if line.startswith("    "):
            found[-1][1].append(f"x.yaml:{line.strip()}")
        else:
            found.append((line, []))
    return found


@pytest.mark.parametrize(("line", "expected"), cases())
def test_rejected(heads: Heads, minimal: str, line: str, expected: list[str]) -> None:
    assert heads(minimal + line) == expected


def test_heads_that_do_not_divide_the_width(heads: Heads, minimal: str) -> None:
    assert heads(minimal.replace("d_model: 48", "d_model: 50")) == [
        "x.yaml:7:12: error[head-dim]: n_heads 4 does not divide d_model 50; write head_dim, or make d_model a multiple of n_heads"
    ]


@pytest.mark.parametrize(
    "line",
    [
        "  head_dim: 7",
        "  head_dim: 7\n  positions: {type: rope, rotary_dim: 6}",
        "  n_kv_heads: 1",
        "  feed_forward: {bias: {gate: false}}",
        "  feed_forward: {type: gated, bias: {gate: true}}\n  d_ff: 3",
        "  norm: {type: rmsnorm, bias: false}",
        "  attention: {bias: {k: false}, qkv: separate}",
        "  attention: {bias: {o: false}}",
        "  attention: {bias: {q: false, k: false, v: false}, qkv: fused_per_head}",
        "  block: parallel_one_norm",
        "  layers: [{}, {positions: none}]",
        "  layers: [{}, {positions: learned}]",
        "  positions: {offset: 2}\n  layers: [{positions: {offset: 2}}, {positions: rope}]",
        "  layers: [{count: 2}]",
        "  layers: [{layers: [{}, {}]}]",
        "  layers: [{n_heads: 5, head_dim: 3}, {}]",
        "  positions: rope\ntraining: {sequence_length: 65}",
        "training: {sequence_length: 64}",
        "training: {precision: bf16-master, gradient_dtype: bf16}",
        "training: {tokens: 128, steps: 2}",
        "training: {tokens: 129}",
    ],
)
def test_allowed(rendered: Rendered, minimal: str, line: str) -> None:
    assert rendered(minimal + line) == ""


@pytest.mark.parametrize("placement", ["after", "before_and_after"])
@pytest.mark.parametrize("block", ["parallel_one_norm", "parallel_two_norms"])
def test_a_parallel_block_has_its_norms_before_the_sublayers(heads: Heads, minimal: str, block: str, placement: str) -> None:
    assert heads(f"{minimal}  block: {block}\n  norm: {{placement: {placement}}}\n") == [
        (
            f"x.yaml:9:21: error[parallel-placement]: block {block} has its norms before the sublayers, not {placement}; "
            "write norm.placement: before, or block: sequential"
        )
    ]


def test_fused_per_head_needs_as_many_key_heads_as_query_heads(heads: Heads, minimal: str) -> None:
    assert heads(f"{minimal}  n_kv_heads: 2\n  attention: {{qkv: fused_per_head}}\n") == [
        (
            "x.yaml:9:20: error[fused-per-head]: fused_per_head lays out q, k and v of each head, but n_kv_heads 2 is not n_heads 4; "
            "write qkv: fused"
        )
    ]


def test_rope_on_heads_of_odd_width(heads: Heads, minimal: str) -> None:
    assert heads(f"{minimal}  head_dim: 7\n  positions: rope\n") == [
        "x.yaml:8:13: error[rotary-dim]: rope rotates pairs of channels, and head_dim 7 is odd; make it even"
    ]
    assert heads(minimal.replace("48", "20") + "  positions: rope\n") == [
        "x.yaml:7:12: error[rotary-dim]: rope rotates pairs of channels, and head_dim 5 is odd; make it even"
    ]


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_positions_added_at_the_embedding_belong_to_the_model(heads: Heads, minimal: str, positions: str) -> None:
    assert heads(f"{minimal}  positions: rope\n  layers: [{{}}, {{positions: {positions}}}]\n") == [
        (
            f"x.yaml:9:28: error[run-positions]: {positions} positions are added at the embedding, not in a run of layers; "
            "write them under model.positions"
        )
    ]


def test_a_wrong_setting_shared_by_many_layers_is_reported_once(heads: Heads, minimal: str) -> None:
    assert (
        len(heads(minimal + "  n_kv_heads: 3\n  layers: [{}, {}]\nscenarios: [{name: a}, {name: b}]\ntraining: {sequence_length: 65}\n"))
        == 2
    )


def test_a_check_is_skipped_if_one_of_its_values_is_invalid(heads: Heads, minimal: str) -> None:
    assert [
        line.split(" ")[1] for line in heads(minimal.replace("n_heads: 4", "n_heads: four") + "  positions: {type: rope, rotary_dim: 98}\n")
    ] == ["error[type]:"]
    assert [line.split(" ")[1] for line in heads(minimal.replace("  n_heads: 4\n", "") + "  n_kv_heads: 7\n  d_ff: x\n")] == [
        "error[missing-key]:",
        "error[type]:",
    ]


def test_checks_run_despite_unrelated_errors(heads: Heads, minimal: str) -> None:
    text = minimal + "  n_kv_heads: 3\n  foo: 1\ntraining: {batch_size: x, gradient_dtype: bf16, sequence_length: 65}\n"
    assert [line.split(" ")[1] for line in heads(text)] == [
        "error[kv-heads]:",
        "error[unknown-key]:",
        "error[type]:",
        "error[gradient-dtype]:",
        "error[context-length]:",
    ]
