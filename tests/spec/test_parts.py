"""Parts that GPT-2 lacks: experts, other mixers, windows, extra tensors; each takes a line or two, and wrong settings are rejected."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from planner import spec
from planner.spec.language import inlined
from planner.spec.records import (
    Attention,
    Experts,
    Extra,
    FeedForward,
    GatedDeltaNet,
    Indexer,
    KimiDeltaAttention,
    LatentAttention,
    Layer,
    LightningAttention,
    Mamba,
    Mamba2,
    Mixer,
    Mlstm,
    MultiTokenPrediction,
    Norm,
    PerLayerEmbedding,
    Positions,
    RgLru,
    Rwkv,
    ShortConvolution,
    Spec,
)

Small = Callable[..., Spec]
Write = Callable[..., Path]
Heads = Callable[..., list[str]]
Rendered = Callable[..., str]
MODEL = inlined()["properties"]["model"]["properties"]

NO_HEADS = "name: small\nmodel:\n  vocab_size: 100\n  context_length: 64\n  d_model: 48\n  n_layers: 2\n"
FULL = {
    "attention": "{}",
    "latent_attention": "{kv_rank: 8, nope_dim: 6, rope_dim: 4, v_dim: 6}",
    "mamba": "{d_inner: 96}",
    "mamba2": "{d_inner: 96, d_state: 16, n_heads: 8, n_groups: 2}",
    "gated_delta_net": "{n_key_heads: 2, n_value_heads: 4, key_dim: 8, value_dim: 8}",
    "kimi_delta_attention": "{n_heads: 4, head_dim: 8}",
    "lightning_attention": "{n_heads: 4, head_dim: 8}",
    "rg_lru": "{width: 64, n_blocks: 4}",
    "rwkv": "{width: 48}",
    "short_convolution": "{}",
    "mlstm": "{n_heads: 4, qk_dim: 24, v_dim: 48}",
}


def only_layer(loaded: Spec) -> Layer:
    (run,) = loaded.model.runs
    (layer,) = run.layers
    return layer


def test_experts_have_the_defaults_of_their_record(small: Small) -> None:
    layer = only_layer(small("  experts: {count: 8, top_k: 2, d_ff: 96}\n"))
    assert layer.experts == Experts(8, 2, 96)
    assert layer.feed_forward is None
    assert type(layer.experts.capacity_factor) is Fraction


def test_every_setting_of_experts_is_read(small: Small) -> None:
    layer = only_layer(
        small("""\
  experts:
    count: 8
    top_k: 2
    d_ff: 96
    type: plain
    activation: relu_squared
    bias: true
    scoring: sigmoid
    normalize: false
    scores_dtype: compute
    router_bias: true
    correction_bias: parameter
    shared: {d_ff: 32, gate: true}
    latent_dim: 24
    output_norm: true
    empty: 4
    capacity_factor: 1.25
    beside_feed_forward: true
""")
    )
    assert layer.experts == Experts(
        count=8,
        top_k=2,
        d_ff=96,
        gated=False,
        activation="relu_squared",
        bias=True,
        scoring="sigmoid",
        normalize=False,
        scores_dtype="compute",
        router_bias=True,
        correction_bias="parameter",
        shared_d_ff=32,
        shared_gate=True,
        latent_dim=24,
        output_norm=True,
        empty=4,
        capacity_factor=Fraction(5, 4),
    )
    assert layer.feed_forward == FeedForward(192, gate_bias=False)


def test_the_first_layers_can_be_dense(write: Write) -> None:
    """As in DeepSeek-V3: 3 dense layers, then 58 with experts."""
    loaded = spec.load(
        write("""\
name: deepseek-v3
model:
  vocab_size: 129280
  context_length: 163840
  d_model: 7168
  n_heads: 128
  d_ff: 18432
  mixer: latent_attention
  latent_attention: {q_rank: 1536, kv_rank: 512, nope_dim: 128, rope_dim: 64, v_dim: 128}
  feed_forward: {type: gated, activation: silu, bias: false}
  experts: {count: 256, top_k: 8, d_ff: 2048, scoring: sigmoid, correction_bias: buffer, shared: {d_ff: 2048}}
  norm: {type: rmsnorm}
  positions: rope
  layers:
    - {count: 3, experts: none}
    - {count: 58}
  head: {tied: false}
  prediction: {count: 1}
""")
    )
    dense, sparse = loaded.model.runs
    latent = LatentAttention(128, kv_rank=512, nope_dim=128, rope_dim=64, v_dim=128, q_rank=1536)
    ff = FeedForward(18432, gated=True, activation="silu", gate_bias=False, up_bias=False, down_bias=False)
    rms = Norm("rmsnorm", bias=False)
    moe = Experts(256, 8, 2048, scoring="sigmoid", correction_bias="buffer", shared_d_ff=2048)
    rope = Positions("rope", rotary_dim=64)
    assert dense.layers == (Layer(None, ff, mixers=(latent,), positions=rope, norm=rms),)
    assert sparse.layers == (Layer(None, None, mixers=(latent,), experts=moe, positions=rope, norm=rms),)
    assert (dense.count, sparse.count, loaded.model.n_layers) == (3, 58, 61)
    assert loaded.model.prediction == MultiTokenPrediction(1, copies_embedding=True)
    assert loaded.model.positions == rope
    assert "model.head_dim" not in loaded.defaulted


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("latent_attention", LatentAttention(4, kv_rank=8, nope_dim=6, rope_dim=4, v_dim=6)),
        ("mamba", Mamba(96, d_state=16, d_conv=4, dt_rank=3)),  # 48 / 16
        ("mamba2", Mamba2(96, d_state=16, n_heads=8, n_groups=2, d_conv=4)),
        ("gated_delta_net", GatedDeltaNet(2, 4, 8, 8, d_conv=4)),
        ("kimi_delta_attention", KimiDeltaAttention(4, 8, d_conv=4)),
        ("lightning_attention", LightningAttention(4, 8)),
        ("rg_lru", RgLru(64, 4, d_conv=4)),
        ("rwkv", Rwkv(48)),
        ("short_convolution", ShortConvolution(48, d_conv=3)),
        ("mlstm", Mlstm(4, 24, 48)),
    ],
)
def test_each_mixer_becomes_its_record(small: Small, name: str, record: Mixer) -> None:
    layer = only_layer(small(f"  mixer: {name}\n  {name}: {FULL[name]}\n"))
    assert (layer.attention, layer.mixers) == (None, (record,))


@pytest.mark.parametrize(("width", "rank"), [(48, 3), (49, 4), (1, 1), (768, 48)])
def test_the_default_dt_rank_of_mamba_is_a_sixteenth_of_d_model_rounded_up(write: Write, width: int, rank: int) -> None:
    text = NO_HEADS.replace("48", str(width)) + "  mixer: mamba\n  mamba: {d_inner: 96}\n"
    (mamba,) = only_layer(spec.load(write(text))).mixers
    assert isinstance(mamba, Mamba)
    assert mamba.dt_rank == rank


def test_a_layer_can_have_several_mixers(small: Small) -> None:
    layer = only_layer(small(f"  mixer: [mamba2, attention]\n  mamba2: {FULL['mamba2']}\n  positions: rope\n"))
    assert layer.attention == Attention(4, 4, 12)
    assert [type(mixer) for mixer in layer.mixers] == [Mamba2]
    assert layer.positions == Positions("rope", rotary_dim=12)


@pytest.mark.parametrize("name", [name for name in FULL if name not in ("attention", "latent_attention")])
def test_a_model_without_attention_needs_no_heads(write: Write, name: str) -> None:
    loaded = spec.load(write(f"{NO_HEADS}  mixer: {name}\n  {name}: {FULL[name]}\n  positions: rope\n"))
    assert only_layer(loaded).attention is None
    assert only_layer(loaded).positions == Positions("none")
    assert not any("head" in key for key in loaded.defaulted if not key.startswith("model.head."))


def test_a_pattern_of_mixers_and_of_layers_with_one_sublayer(write: Write, minimal: str) -> None:
    loaded = spec.load(
        write(
            minimal.replace("n_layers: 2", "n_layers: 14")
            + f"""\
  mixer: gated_delta_net
  gated_delta_net: {FULL["gated_delta_net"]}
  attention: {{window: 16}}
  layers:
    - {{count: 3, layers: [{{}}, {{}}, {{}}, {{mixer: attention}}]}}
    - {{mixer: none, feed_forward: {{type: gated}}, d_ff: 7}}
    - {{mixer: attention, feed_forward: none, attention: {{window: none}}}}
"""
        )
    )
    group, wide, mixed = loaded.model.runs
    assert [(layer.attention is None, len(layer.mixers)) for layer in group.layers] == [(True, 1)] * 3 + [(False, 0)]
    assert group.layers[3].attention == Attention(4, 4, 12, window=16)
    assert (wide.layers[0].attention, wide.layers[0].mixers) == (None, ())
    assert wide.layers[0].feed_forward == FeedForward(7, gated=True)
    assert mixed.layers[0].feed_forward is None
    assert mixed.layers[0].attention == Attention(4, 4, 12)


def test_every_setting_of_attention_is_read(small: Small) -> None:
    line = (
        "  attention: {qkv: separate, bias: false, v_head_dim: 6, qk_norm: per_head, window: 16, chunked: true, "
        "logit_softcap: 50.0, output_gate: head, sinks: true, output_norm: true, differential: true}\n"
        "training: {implementation: transformers-eager}\n"
    )
    assert only_layer(small(line)).attention == Attention(
        4,
        4,
        12,
        v_head_dim=6,
        qkv="separate",
        q_bias=False,
        k_bias=False,
        v_bias=False,
        o_bias=False,
        qk_norm="per_head",
        window=16,
        chunked=True,
        logit_softcap=Fraction(50),
        output_gate="head",
        sinks=True,
        output_norm=True,
        differential=True,
    )


def test_keys_can_be_reused(small: Small) -> None:
    line = "  attention: {qkv: separate}\n  layers: [{attention: {keys_as_values: true}}, {attention: {shared_kv: true}}]\n"
    first, second = (run.layers[0].attention for run in small(line).model.runs)
    assert first == Attention(4, 4, 12, qkv="separate", keys_as_values=True)
    assert second == Attention(4, 4, 12, qkv="separate", shared_kv=True)


def test_latent_attention_can_have_an_indexer(small: Small) -> None:
    group = "{kv_rank: 8, nope_dim: 6, rope_dim: 4, v_dim: 6, bias: true, indexer: {n_heads: 2, head_dim: 8, top_k: 16}}"
    (latent,) = only_layer(small(f"  mixer: latent_attention\n  latent_attention: {group}\n")).mixers
    assert latent == LatentAttention(4, 8, 6, 4, 6, bias=True, indexer=Indexer(2, 8, 16))


def test_channel_mixing_of_rwkv(small: Small) -> None:
    layer = only_layer(small("  feed_forward: {type: rwkv}\n"))
    assert layer.feed_forward == FeedForward(
        192, activation="relu_squared", gate_bias=False, up_bias=False, down_bias=False, channel_mix=True
    )


def test_channel_mixing_in_a_layer_group_ignores_the_activation_of_the_model(small: Small) -> None:
    line = "  feed_forward: {activation: silu, bias: true}\n  layers: [{feed_forward: {type: rwkv}}, {}]\n"
    first, second = (run.layers[0].feed_forward for run in small(line).model.runs)
    assert first == FeedForward(192, activation="relu_squared", gate_bias=False, up_bias=False, down_bias=False, channel_mix=True)
    assert second == FeedForward(192, activation="silu", gate_bias=False)


def test_settings_of_the_whole_model(small: Small) -> None:
    assert (small().model.embedding_dim, small().model.per_layer_embedding, small().model.prediction) == (None, None, None)
    model = small("""\
  embedding_scale: true
  embedding_dim: 24
  head: {logit_softcap: 30.0}
  norm: {type: rmsnorm, unit_offset: true, placement: after_residual}
  per_layer_embedding: {vocab_size: 50, dim: 8}
  prediction: {copies_embedding: false}
""").model
    assert (model.embedding_scale, model.embedding_dim, model.logit_softcap) == (True, 24, Fraction(30))
    assert model.norm == Norm("rmsnorm", bias=False, unit_offset=True)
    assert model.runs[0].layers[0].norm_placement == "after_residual"
    assert model.per_layer_embedding == PerLayerEmbedding(50, 8)
    assert model.prediction == MultiTokenPrediction(1, copies_embedding=False)


def test_settings_of_kernels(small: Small) -> None:
    base, cpu, eager = (
        scenario.training
        for scenario in small("""\
training: {implementation: transformers, use_cache: true, device: h100, attention_kernel: cudnn, loss: cross_entropy, keep_logits: true}
scenarios:
  - {name: cpu, device: cpu, attention_kernel: math, optimizer_kernel: for-loop, ema: bf16, reserve_bytes: 1e9, round_allocations: true}
  - {name: eager, implementation: transformers-eager, attention_kernel: auto, loss: cross_entropy_shifted}
""").scenarios
    )
    assert (base.implementation, base.use_cache, base.device, base.attention_kernel) == ("transformers", True, "h100", "cudnn")
    assert (base.loss, base.keep_logits, base.optimizer_kernel) == ("cross_entropy", True, "fused")
    assert (cpu.device, cpu.attention_kernel, cpu.optimizer_kernel) == ("cpu", "math", "for-loop")
    assert (cpu.ema, cpu.reserve_bytes, cpu.round_allocations) == ("bf16", 10**9, True)
    assert (base.ema, base.reserve_bytes, base.round_allocations) == ("none", 0, False)
    assert (eager.implementation, eager.loss, eager.device) == ("transformers-eager", "cross_entropy_shifted", "h100")


def test_shapes_of_extra_tensors_can_name_sizes_of_the_spec(small: Small) -> None:
    loaded = small("""\
  n_kv_heads: 2
  extra:
    - {name: scale, shape: [V]}
    - {name: mix.weight, shape: ["2*d_model", 3, "n_heads * head_dim", n_layers], component: router, uses: 1}
  layers:
    - {count: 1, extra: [{name: lambda, shape: [n_kv_heads, d_ff, context_length], component: attention}]}
    - {n_heads: 8, d_ff: 5, layers: [{extra: [{name: lambda, shape: [n_heads, head_dim, d_ff]}]}]}
""")
    assert loaded.model.extra == (
        Extra("scale", (100,), "other"),
        Extra("mix.weight", (2 * 48, 3, 4 * 12, 2), "router", uses=1),
    )
    assert [run.layers[0].extra for run in loaded.model.runs] == [
        (Extra("lambda", (2, 192, 64), "attention"),),
        (Extra("lambda", (8, 6, 5), "other"),),
    ]


def test_extra_tensors_of_the_model_are_not_added_to_its_layers(small: Small) -> None:
    line = "  extra: [{name: x, shape: [3]}]\n"
    assert only_layer(small(line)).extra == ()
    runs = small(line + "  layers: [{}, {extra: [{name: x, shape: [4]}]}]\n").model.runs
    assert [run.layers[0].extra for run in runs] == [(), (Extra("x", (4,), "other"),)]


def test_a_dense_spec_extended_with_experts(write: Write, minimal: str) -> None:
    write(minimal + "  feed_forward: {type: gated, activation: silu}\n  d_ff: 96\n", "dense.yaml")
    loaded = spec.load(write("extends: dense.yaml\nname: sparse\nmodel: {experts: {count: 4, top_k: 1, d_ff: 24}}\n"))
    assert only_layer(loaded).experts == Experts(4, 1, 24)
    assert only_layer(loaded).feed_forward is None


def test_settings_of_a_mixer_that_an_extending_spec_replaces(write: Write, heads: Heads) -> None:
    write(f"{NO_HEADS}  mixer: mamba\n  mamba: {FULL['mamba']}\n", "mamba.yaml")
    text = "extends: mamba.yaml\nname: x\nmodel: {mixer: attention, n_heads: 4}\n"
    assert heads(text) == [
        (
            "mamba.yaml:8:3: error[mixer]: mamba is set, but no such layer has that mixer; "
            "write mixer: mamba, or remove it; write mamba: none where it comes from elsewhere"
        )
    ]
    assert heads(text.replace("n_heads", "mamba: none, n_heads")) == []


# A line after the minimal spec (d_model 48, n_heads 4, n_layers 2, context_length 64), and its errors.
REFUSED = """\
  experts: {count: 8, d_ff: 3}
    8:3: error[missing-key]: missing required key 'top_k' in experts; for example top_k: 2
  experts: {num_local_experts: 8, top_k: 2, d_ff: 3}
    8:13: error[unknown-key]: unknown key 'num_local_experts' in model.experts; did you mean 'count'?
  experts: {count: 8, top_k: 9, d_ff: 3}
    8:30: error[top-k]: top_k 9 exceeds the number of experts (8); write at most 8
  experts: {count: 8, top_k: 2, d_ff: 3, shared: {gate: true}}
    8:42: error[missing-key]: missing required key 'd_ff' in experts.shared; for example d_ff: 2048
  experts: {count: 8, top_k: 2, d_ff: 3, capacity_factor: 0.5}
    8:59: error[range]: model.experts.capacity_factor must be at least 1, not 0.5
  experts: {count: 8, top_k: 2, d_ff: 3, beside_feed_forward: true}\\n  feed_forward: none
    8:63: error[experts]: beside_feed_forward requires a feed-forward; remove it, or give feed_forward another type
  experts: 8
    8:12: error[type]: model.experts must be a mapping, not 8
  experts: moe
    8:12: error[type]: model.experts must be a mapping, not the text 'moe'
  num_experts: 8
    8:3: error[unknown-key]: unknown key 'num_experts' in model; did you mean 'model.experts.count'?
  mixer: mamba2
    8:10: error[missing-key]: mixer mamba2 requires its settings; write mamba2: with d_inner, d_state, n_heads, n_groups
  mixer: mamba2\\n  mamba2: {d_inner: 96, d_state: 16, n_heads: 8}
    9:3: error[missing-key]: missing required key 'n_groups' in mamba2; for example n_groups: 8
  mixer: mamba2\\n  mamba2: {d_inner: 96, d_state: 16, n_heads: 7, n_groups: 7}
    9:47: error[divides]: mamba2.n_heads 7 does not divide mamba2.d_inner 96; make d_inner a multiple of n_heads
  mixer: gated_delta_net\\n  gated_delta_net: {n_key_heads: 3, n_value_heads: 4, key_dim: 8, value_dim: 8}
    9:34: error[divides]: gated_delta_net.n_key_heads 3 does not divide gated_delta_net.n_value_heads 4; \
make n_value_heads a multiple of n_key_heads
  mixer: rg_lru\\n  rg_lru: {width: 64, n_blocks: 10}
    9:33: error[divides]: rg_lru.n_blocks 10 does not divide rg_lru.width 64; make width a multiple of n_blocks
  mixer: mlstm\\n  mlstm: {n_heads: 4, qk_dim: 6, v_dim: 8}
    9:20: error[divides]: mlstm.n_heads 4 does not divide mlstm.qk_dim 6; make qk_dim a multiple of n_heads
  mixer: mla
    8:10: error[value]: invalid value 'mla' for model.mixer; did you mean 'latent_attention'?
  mixer: [attention, ssm]
    8:22: error[value]: invalid value 'ssm' for model.mixer[1]; did you mean 'mamba'?
  mixer: [attention, attention]
    8:10: error[mixer]: duplicate mixer; list each mixer once
  mixer: []
    8:10: error[empty-list]: model.mixer must not be an empty list; remove the key
  mixer: [attention, latent_attention]\\n  latent_attention: {kv_rank: 8, nope_dim: 6, rope_dim: 4, v_dim: 6}
    8:10: error[mixer]: attention and latent_attention cannot be combined in one layer; remove one of them
  mamba: {d_inner: 96}
    8:3: error[mixer]: mamba is set, but no such layer has that mixer; \
write mixer: mamba, or remove it; write mamba: none where it comes from elsewhere
  mixer: latent_attention\\n  latent_attention: {kv_lora_rank: 8, nope_dim: 6, rope_dim: 4, v_dim: 6}
    9:22: error[unknown-key]: unknown key 'kv_lora_rank' in model.latent_attention; did you mean 'kv_rank'?
  mixer: latent_attention\\n  latent_attention: {kv_rank: 8, nope_dim: 6, rope_dim: 5, v_dim: 6}\\n  positions: rope
    9:57: error[rotary-dim]: rope rotates pairs of channels, and rope_dim 5 is odd; make it even
  mixer: latent_attention\\n  latent_attention: {kv_rank: 8, nope_dim: 6, rope_dim: 4, v_dim: 6}\\n  positions: {type: rope, rotary_dim: 2}
    10:39: error[rotary-dim]: latent attention rotates its rope_dim 4, not rotary_dim 2; remove rotary_dim
  mixer: latent_attention\\n  latent_attention: {kv_rank: 8, nope_dim: 6, rope_dim: 4, v_dim: 6}\\n  positions: alibi
    10:14: error[positions]: latent attention does not support alibi; write positions: rope, or none
  mixer: latent_attention\\n  latent_attention: {kv_rank: 8, nope_dim: 6, rope_dim: 4, v_dim: 6, indexer: {n_heads: 2, top_k: 3}}
    9:70: error[missing-key]: missing required key 'head_dim' in latent_attention.indexer; for example head_dim: 128
  sliding_window: 3
    8:3: error[unknown-key]: unknown key 'sliding_window' in model; did you mean 'model.attention.window'?
  attention: {window: 65}
    8:23: error[window]: window 65 exceeds context_length 64 and has no effect; remove it, or write none
  attention: {window: full}
    8:23: error[type]: model.attention.window must be a whole number, not the text 'full'; for example window: 4096
  attention: {chunked: true}
    8:24: error[window]: attention.chunked requires attention.window; write attention.window, or remove chunked
  attention: {window: 0}
    8:23: error[range]: model.attention.window must be at least 1, not 0
  attention: {logit_softcap: 0}
    8:30: error[range]: model.attention.logit_softcap must be above 0, not 0
  attention: {logit_softcap: 50.0}
    8:30: error[softcap]: the fused attention of implementation pytorch cannot cap the scores (attention.logit_softcap); \
write training.implementation: pytorch-eager
  attention: {logit_softcap: 50.0}\\ntraining: {implementation: torchtitan}
    9:28: error[softcap]: the fused attention of implementation torchtitan cannot cap the scores (attention.logit_softcap); \
write training.implementation: pytorch-eager
  head: {logit_softcap: 30.0}\\ntraining: {loss: linear_cross_entropy}
    9:18: error[softcap]: loss linear_cross_entropy projects by the head itself and cannot cap the logits (head.logit_softcap); \
write loss: cross_entropy
training: {muon_experts: each}
    8:26: error[muon-experts]: muon_experts requires optimizer: muon, not adamw; remove it, or write optimizer: muon
training: {muon_experts: each, optimizer: muon}
    8:26: error[muon-experts]: muon_experts requires a model with experts; remove it
training: {count_prediction: true}
    8:30: error[count-prediction]: count_prediction requires a model with prediction layers; remove it, or write model.prediction
  attention: {shared_kv: true, qkv: separate}
    8:26: error[shared-kv]: the first layer with attention has no earlier layer whose keys and values it could share; \
set shared_kv in the run of the layers that share them
  attention: {qkv: separate}\\n  layers: [{}, {n_kv_heads: 2, attention: {shared_kv: true}}]
    9:55: error[shared-kv]: no earlier layer has keys and values to share with n_kv_heads 2 and head_dim 12; \
set shared_kv in the run of the layers that share them
  layers: [{}, {attention: {shared_kv: true}}]
    8:40: error[reused-keys]: shared_kv: keys and values are an earlier layer's, so that q, k and v cannot be one matrix; \
write attention.qkv: separate
  attention: {keys_as_values: true, qkv: separate, v_head_dim: 6}
    8:64: error[reused-keys]: the values are the keys, which are 12 wide, not 6; remove v_head_dim
  n_heads: 3\\n  attention: {differential: true}
    8:3: error[duplicate-key]: duplicate key 'n_heads' (first used on line 7); keep one of them
  layers: [{n_heads: 3, attention: {differential: true}}, {}]
    8:51: error[differential]: differential attention pairs key and value heads, and n_kv_heads 3 is odd; make n_kv_heads even
  feed_forward: {type: rwkv, activation: gelu}
    8:42: error[rwkv]: the channel mixing of rwkv has relu_squared, not gelu; remove activation
  feed_forward: {type: rwkv, bias: {up: true}}
    8:41: error[rwkv]: the channel mixing of rwkv has no biases; write bias: false
  mixer: none\\n  feed_forward: none
    8:10: error[empty-layer]: the layer has neither a mixer nor a feed-forward; add one of them
  block: parallel_one_norm\\n  feed_forward: none
    8:10: error[parallel-block]: block: parallel_one_norm requires both a mixer and a feed-forward, and the feed-forward is missing; \
write block: sequential
  norm: {unit_offset: true}
    8:23: error[unit-offset]: norm.unit_offset requires norm.type: rmsnorm, not layernorm; remove it, or write norm.type: rmsnorm
  embedding_dim: 48
    8:18: error[embedding-dim]: embedding_dim is d_model, which needs no projections; \
remove it; a square projection can be declared under extra
  per_layer_embedding: {dim: 3}
    8:3: error[missing-key]: missing required key 'vocab_size' in model.per_layer_embedding; for example vocab_size: 262144
  extra: [{name: x, shape: [d_modle]}]
    8:29: error[shape]: unknown size 'd_modle'; did you mean 'd_model'?
  extra: [{name: x, shape: [vocab_size]}]
    8:29: error[shape]: unknown size 'vocab_size'; did you mean 'V'?
  extra: [{name: x, shape: ["__import__('os')"]}]
    8:29: error[shape]: '__import__('os')' is neither a size nor a product of sizes; write for example d_model, or 2*d_model
  extra: [{name: x, shape: ["2**d_model"]}]
    8:29: error[shape]: '2**d_model' is neither a size nor a product of sizes; write for example d_model, or 2*d_model
  extra: [{name: x, shape: ["d_model/2"]}]
    8:29: error[shape]: 'd_model/2' is neither a size nor a product of sizes; write for example d_model, or 2*d_model
  extra: [{name: x, shape: ["0*d_model"]}]
    8:29: error[shape]: a size must be at least 1, not 0; remove the tensor if it is empty
  extra: [{name: x, shape: [0]}]
    8:29: error[range]: model.extra[0].shape[0] must be at least 1, not 0
  extra: [{name: x, shape: []}]
    8:28: error[empty-list]: model.extra[0].shape must not be an empty list; remove the key
  extra: [{name: x}]
    8:11: error[missing-key]: missing required key 'shape' in model.extra[0]
  extra: [{name: x y, shape: [3]}]
    8:18: error[extra-name]: invalid tensor name 'x y'; use letters, digits, _ and .
  extra: [{name: x, shape: [3]}, {name: x, shape: [3]}]
    8:41: error[extra-name]: duplicate tensor 'x'; rename one of them
  extra: [{name: x, shape: [3], component: mlp}]
    8:44: error[value]: invalid value 'mlp' for model.extra[0].component; one of: embedding, position, attention, feed_forward, \
ssm, experts, shared_experts, router, norm, head, other
  feed_forward: {type: gated}\\n  experts: {count: 2, top_k: 1, d_ff: 3}\\n  extra: [{name: x, shape: [d_ff]}]
    10:29: error[shape]: the size d_ff is not given here; write d_ff, or the number
training: {use_cache: true}
    8:23: error[use-cache]: use_cache requires implementation: transformers or transformers-eager, not pytorch; \
remove it, or write implementation: transformers
training: {attention_kernel: flash, implementation: megatron}
    8:30: error[attention-kernel]: attention_kernel requires implementation: pytorch or transformers or megatron-core, not megatron; \
remove it, or write implementation: pytorch
training: {attention_kernel: flash, precision: fp32}
    8:30: error[attention-kernel]: flash attention computes in 16 bits, and the precision is fp32; \
write efficient or math, or another precision
training: {attention_kernel: efficient, device: cpu}
    8:30: error[attention-kernel]: a CPU has no efficient attention; write auto, flash or math
training: {optimizer_kernel: foreach, optimizer: lion}
    8:30: error[optimizer-kernel]: optimizer_kernel requires optimizer: adamw or adam, not lion; remove it, or write optimizer: adamw
training: {implementation: transformers, liger: {rms: true}}
    8:50: error[unknown-key]: unknown key 'rms' in training.liger; did you mean 'rms_norm'?
training: {loss: linear_cross_entropy, keep_logits: true}
    8:53: error[keep-logits]: keep_logits requires loss: default or cross_entropy or cross_entropy_shifted or cross_entropy_float32, \
not linear_cross_entropy; remove it, or write loss: default
"""


def cases() -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = []
    for line in REFUSED.splitlines():
        if line.startswith("    "):
            found[-1][1].append(f"x.yaml:{line.strip()}")
        else:
            found.append((line.replace("\\n", "\n"), []))
    return found


@pytest.mark.parametrize(("line", "expected"), cases())
def test_rejected(heads: Heads, minimal: str, line: str, expected: list[str]) -> None:
    assert heads(minimal + line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "  attention: {window: 64}",
        "  attention: {window: none, logit_softcap: none}",
        "  attention: {logit_softcap: 50}\ntraining: {implementation: megatron}",
        "  attention: {logit_softcap: 50}\ntraining: {implementation: transformers}",
        "  attention: {logit_softcap: 50}\n  layers: [{count: 2, attention: {logit_softcap: none}}]",
        "  experts: none",
        "  mamba: none\n  prediction: none\n  per_layer_embedding: none",
        "  experts: {count: 8, top_k: 10, d_ff: 3, empty: 2}",
        "  experts: {count: 8, top_k: 2, d_ff: 3, shared: none, latent_dim: none}",
        "  experts: {count: 8, top_k: 2, d_ff: 3}\n  feed_forward: {type: gated}",
        "  layers: [{experts: {count: 8, top_k: 2, d_ff: 3}}, {experts: none}]",
        "  experts: {top_k: 2, d_ff: 3}\n  layers: [{experts: {count: 8}}, {experts: {count: 4}}]",
        "  mixer: none\n  layers: [{count: 2, feed_forward: none, extra: [{name: x, shape: [3]}]}]",
        "  mamba: {d_state: 8}\n  layers: [{mixer: mamba, mamba: {d_inner: 96}}, {}]",
        "training: {implementation: pytorch, attention_kernel: math, precision: fp32}",
        "training: {optimizer: adam, optimizer_kernel: for-loop}",
        "  experts: {count: 4, top_k: 2, d_ff: 8}\ntraining: {optimizer: muon, muon_experts: each}",
    ],
)
def test_allowed(rendered: Rendered, minimal: str, line: str) -> None:
    assert rendered(minimal + line) == ""


@pytest.mark.parametrize("line", ["  mixer: attention\n", "  layers: [{count: 2}]\n", "  mixer: latent_attention\n"])
def test_attention_always_needs_heads(heads: Heads, line: str) -> None:
    more = line + (f"  latent_attention: {FULL['latent_attention']}\n" if "latent" in line else "")
    assert heads(NO_HEADS + more) == ["x.yaml:2:1: error[missing-key]: missing required key 'n_heads' in model; for example n_heads: 12"]
    misspelt = heads(NO_HEADS + more + "  num_attention_heads: 4\n")
    assert [head.split(" ")[1] for head in misspelt] == ["error[unknown-key]:"]


def test_a_setting_of_a_mixer_in_a_layer_group_without_that_mixer(heads: Heads, minimal: str) -> None:
    text = f"{minimal}  mamba: {FULL['mamba']}\n  layers: [{{mixer: mamba}}, {{mamba: {{d_state: 8}}}}]\n"
    assert [head.split("error")[1].split(";")[0] for head in heads(text)] == ["[mixer]: mamba is set, but no such layer has that mixer"]
    assert heads(text)[0].startswith("x.yaml:9:29: ")


def test_a_product_of_many_sizes(small: Small) -> None:
    (tensor,) = small(f'  extra: [{{name: x, shape: ["{"*".join(["d_model"] * 9)}"]}}]\n').model.extra
    assert tensor.shape == (48**9,)


def test_muon_experts_and_count_prediction_are_read(small: Small) -> None:
    more = """\
  experts: {count: 8, top_k: 2, d_ff: 96}
  prediction: {}
training: {optimizer: muon, muon_experts: each, count_prediction: true}
scenarios: [{name: other, optimizer: adamw}, {name: same}]
"""
    base, other, same = (scenario.training for scenario in small(more).scenarios)
    assert (base.muon_experts, base.count_prediction) == ("each", True)
    assert (other.optimizer, other.muon_experts) == ("adamw", "adamw")  # the choice belongs to its optimizer
    assert same == base
