"""FLOPs published by papers and programs, each under its own convention, which no comparison with PyTorch can check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.capacity.figures import FlopsCount, Plan

SPECS = Path(__file__).parent.parent / "specs"
PlanModel = Callable[..., Plan]

A100 = 312e12  # FLOP/s in bfloat16, NVIDIA's data sheet
H100 = 989.4e12  # the same of the H100 SXM
TPU_V4 = 275e12  # the same of Google's TPU v4


def counted(plan: Plan, convention: str) -> FlopsCount:
    (count,) = (count for count in plan.flops.by_convention if count.convention == convention)
    return count


def gpt(n_layers: int, d_model: int, n_heads: int, vocab_size: int, context_length: int, **others: object) -> dict[str, Any]:
    """GPT-2's kind of model: four matrices of width d_model in attention, two of 4·d_model in the feed-forward, tied embeddings."""
    sizes = {"n_layers": n_layers, "d_model": d_model, "n_heads": n_heads, "vocab_size": vocab_size, "context_length": context_length}
    return sizes | others


def without_biases(model: Mapping[str, Any]) -> dict[str, Any]:
    return {**model, "attention": {"bias": False}, "feed_forward": {"bias": False}, "norm": {"bias": False}}


NANO = without_biases(gpt(12, 768, 12, 50257, 1024))  # nanoGPT's GPT-2 with bias=False: 124,337,664 parameters


# --- 6·N·D ------------------------------------------------------------------------------------------------------------------------------


# Brown et al. 2020 (arXiv:2005.14165), table D.1: total training compute at 300 B tokens, 6 FLOPs a parameter and token. Layers, width and
# heads from table 2.1; its d_model of the 13B, 5140, is 40 heads of 128 = 5,120. GPT-3 XL is left out: 24 heads of 128 are not 2,048 wide.
TABLE_D1 = {
    "GPT-3 Small": (12, 768, 12, 2.25e20),
    "GPT-3 Medium": (24, 1024, 16, 6.41e20),
    "GPT-3 Large": (24, 1536, 16, 1.37e21),
    "GPT-3 2.7B": (32, 2560, 32, 4.77e21),
    "GPT-3 6.7B": (32, 4096, 32, 1.20e22),
    "GPT-3 13B": (40, 5120, 40, 2.31e22),
    "GPT-3 175B": (96, 12288, 96, 3.14e23),
}


@pytest.mark.parametrize("name", TABLE_D1)
def test_training_compute_in_the_table_of_gpt3(plan_model: PlanModel, name: str) -> None:
    n_layers, d_model, n_heads, published = TABLE_D1[name]
    plan = plan_model(gpt(n_layers, d_model, n_heads, 50257, 2048), tokens=300_000_000_000, flops_convention="6nd")
    assert plan.to_frame()["train_flops"][0] == pytest.approx(published, rel=0.002)  # the table gives three digits


def test_training_compute_of_llama_3_1_405b() -> None:
    # Grattafiori et al. 2024 (arXiv:2407.21783), section 1: 3.8 × 10²⁵ FLOPs on 15.6 T tokens. 6 · 405.85e9 · 15.6e12 = 3.799e25.
    count = counted(planner.plan(planner.load(SPECS / "llama-3.1-405b.yaml")), "6nd")
    assert count.train_per_token * 15.6e12 == pytest.approx(3.8e25, rel=0.002)


def test_training_days_in_the_notebook_of_nanogpt(plan_model: PlanModel) -> None:
    # karpathy/nanoGPT, transformer_sizing.ipynb, last cell: 3.46 days for 300 B tokens on eight A100 at 30 % of 312 TFLOP/s.
    plan = plan_model(NANO, tokens=300_000_000_000, flops_convention="6nd")
    assert plan.parameters.total == 124_337_664  # the notebook's first cell
    assert plan.to_frame()["train_flops"][0] == 6 * 124_337_664 * 300_000_000_000
    assert round(plan.to_frame()["train_flops"][0] / (8 * 0.3 * A100) / 86_400, 2) == 3.46


@pytest.mark.parametrize("tied", [True, False])
def test_the_n_of_kaplan_excludes_embeddings_and_lm_head(plan_model: PlanModel, *, tied: bool) -> None:
    # Kaplan et al. 2020 (arXiv:2001.08361), section 2.1: N = 2·d_model·n_layer·(2·d_attn + d_ff) = 12·n_layer·d_model², without
    # embeddings, biases and other small parameters. GPT-2 XL: 12 · 48 · 1600² = 1,474,560,000; training is 6·N a token.
    model = without_biases(gpt(48, 1600, 25, 50257, 1024)) | {"norm": {"weight": False}, "head": {"tied": tied}}
    count = counted(plan_model(model), "6nd-kaplan")
    assert count.forward_per_token == 2 * 1_474_560_000
    assert count.train_per_token == 6 * 1_474_560_000


# Jiang et al. 2024 (arXiv:2401.04088): Mixtral takes two of eight experts. By hand, a token's parameters: a layer's attention
# 2·4096² + 2·4096·1024 = 41,943,040, router 8·4096, two experts 2·3·4096·14336 = 352,321,536, two norms 2·4096; 32 layers, the token
# embedding and the LM head 2·32000·4096, the last norm 4096: 12,879,925,248, "13B active parameters". Six times that are 77.3 GFLOP.
MIXTRAL: dict[str, Any] = {
    "vocab_size": 32000,
    "context_length": 32768,
    "d_model": 4096,
    "n_layers": 32,
    "n_heads": 32,
    "n_kv_heads": 8,
    "feed_forward": {"type": "gated", "activation": "silu", "bias": False},
    "attention": {"bias": False},
    "positions": "rope",
    "norm": {"type": "rmsnorm"},
    "head": {"tied": False},
    "experts": {"count": 8, "top_k": 2, "d_ff": 14336},
}
MIXTRAL_ACTIVE = 32 * (41_943_040 + 8 * 4096 + 352_321_536 + 2 * 4096) + 2 * 32000 * 4096 + 4096


def test_active_parameters(plan_model: PlanModel) -> None:
    assert plan_model(MIXTRAL, sequence_length=128).parameters.active == MIXTRAL_ACTIVE == 12_879_925_248


def test_6n_counts_active_parameters(plan_model: PlanModel) -> None:
    plan = plan_model(MIXTRAL, sequence_length=128)
    assert counted(plan, "6nd").forward_per_token == 2 * MIXTRAL_ACTIVE
    assert counted(plan, "6nd").train_per_token == 6 * MIXTRAL_ACTIVE == 77_279_551_488


def test_the_formula_of_palm_counts_active_parameters(plan_model: PlanModel) -> None:
    # 6·N + 12·L·H·Q·T at T = 128: 12 · 32 · 32 · 128 · 128 = 201,326,592
    assert counted(plan_model(MIXTRAL, sequence_length=128), "palm").train_per_token == 6 * MIXTRAL_ACTIVE + 201_326_592


def test_training_compute_of_deepseek_v3() -> None:
    # DeepSeek-AI 2024 (arXiv:2412.19437), abstract: 671B parameters, 37B of them activated for each token, on 14.8 T tokens: 3.3e24.
    count = counted(planner.plan(planner.load(SPECS / "catalog" / "deepseek_v3" / "deepseek-v3.yaml")), "6nd")
    assert count.train_per_token == pytest.approx(6 * 37e9, rel=0.02)  # 37.6 with token embedding and LM head
    assert count.train_per_token * 14.8e12 == pytest.approx(3.3e24, rel=0.02)


# --- PaLM's 6·N + 12·L·H·Q·T ------------------------------------------------------------------------------------------------------------

# Chowdhery et al. 2022 (arXiv:2204.02311), section 2 and table 1: parallel layers, SwiGLU of 4·d_model, one head of keys and values, rope,
# no biases, tied token embedding of 256,000; 540.35 B parameters.
PALM_540B: dict[str, Any] = {
    "vocab_size": 256_000,
    "context_length": 2048,
    "d_model": 18_432,
    "n_layers": 118,
    "n_heads": 48,
    "n_kv_heads": 1,
    "head_dim": 256,
    "d_ff": 4 * 18_432,
    "feed_forward": {"type": "gated", "activation": "silu", "bias": False},
    "attention": {"bias": False},
    "norm": {"bias": False},
    "block": "parallel_one_norm",
    "positions": "rope",
}


def test_training_compute_and_mfu_of_palm_540b(plan_model: PlanModel) -> None:
    plan = plan_model(PALM_540B, tokens=780_000_000_000, flops_convention="palm")
    assert plan.parameters.total == pytest.approx(540.35e9, rel=2e-5)
    # 6 · 540.35e9 + 12 · 118 · 48 · 256 · 2048 = 3.278e12 a token; 780 B tokens are 2.56e24 (section 4).
    assert plan.to_frame()["train_flops"][0] == pytest.approx(2.56e24, rel=0.002)
    # Appendix B: 238.3 thousand tokens a second on 6,144 TPU v4 are an MFU of 46.2 %, 45.7 % without self-attention.
    rate = 238.3e3 / (6144 * TPU_V4)
    assert round(100 * counted(plan, "palm").train_per_token * rate, 1) == 46.2
    assert round(100 * counted(plan, "6nd").train_per_token * rate, 1) == 45.7


def test_the_formula_of_palm_in_the_notebook_of_nanogpt(plan_model: PlanModel) -> None:
    # transformer_sizing.ipynb, seventh cell: (6 · 124,337,664 + 12·12·12·64·1024) · 1024
    plan = plan_model(NANO, batch_size=1)
    assert counted(plan, "palm").train_per_step == 879_894_724_608
    assert 3 * counted(plan, "palm").forward_per_step == 879_894_724_608


# MPT of mosaicml/llm-foundry, scripts/train/benchmarking/README.md: MFU at so many tokens a second and GPU, by 3 · (2·N + 4·L·d·T) a token;
# its table prints N, too. Layers, width and heads by scripts/train/yamls/pretrain; V = 50,368, learned positions, all biases.
MPT = {
    "125m": (12, 768, 12),
    "350m": (24, 1024, 16),
    "760m": (24, 1536, 12),
    "1b": (24, 2048, 16),
    "3b": (32, 2560, 20),
    "7b": (32, 4096, 32),
    "13b": (40, 5120, 40),
    "30b": (48, 7168, 56),
    "70b": (80, 8192, 64),
}
MPT_ROWS = [
    ("125m", 512, A100, 165_681, 124_131_840, 42.56),
    ("125m", 65_536, A100, 20_368, 174_070_272, 54.13),
    ("350m", 2048, A100, 58_782, 355_985_408, 51.62),
    ("760m", 4096, A100, 27_351, 763_616_256, 56.05),
    ("1b", 16_384, A100, 9956, 1_345_310_720, 56.6),
    ("3b", 8192, A100, 7695, 2_667_566_080, 59.34),
    ("3b", 32_768, H100, 5873, 2_730_480_640, 28.84),
    ("7b", 2048, A100, 4641, 6_658_859_008, 64.23),
    ("7b", 65_536, H100, 1956, 6_918_905_856, 28.59),
    ("13b", 8192, A100, 1795, 12_885_411_840, 56.07),
    ("30b", 4096, H100, 1802, 29_989_894_144, 35.86),
    ("70b", 2048, A100, 410, 64_862_437_376, 53.33),
]


@pytest.mark.parametrize(("size", "n", "peak", "tokens_per_second", "params", "mfu"), MPT_ROWS)
def test_mfu_in_the_table_of_llm_foundry(
    plan_model: PlanModel, size: str, n: int, peak: float, tokens_per_second: int, params: int, mfu: float
) -> None:
    plan = plan_model(gpt(*MPT[size], 50_368, n), sequence_length=n)
    assert plan.parameters.total == params
    rate = 100 * counted(plan, "palm").train_per_token * tokens_per_second / peak
    assert rate == pytest.approx(mfu, rel=0.005 / mfu + 0.5 / tokens_per_second + 1e-4)  # both are rounded


# --- all matrix products, the full attention square -------------------------------------------------------------------------------------


def test_training_flops_in_the_notebook_of_nanogpt(plan_model: PlanModel) -> None:
    # transformer_sizing.ipynb, sixth cell: forward_total, total, and its parts (a block's attention and mlp, times 12; dense).
    plan = plan_model(NANO, batch_size=1, flops_convention="matmul")
    assert counted(plan, "matmul").forward_per_step == 291_648_307_200
    assert counted(plan, "matmul").train_per_step == 874_944_921_600
    parts = {name: flops for name, flops in plan.flops.forward_by_component.items() if flops}
    assert parts == {"attention": 12 * 8_053_063_680, "feed_forward": 12 * 9_663_676_416, "head": 79_047_426_048}
    # Eighth cell: 37.14 % of an A100 at 100 sequences in 755 ms.
    assert round(100 * counted(plan, "matmul").train_per_step * 100 / 0.755 / A100, 2) == 37.14


@pytest.mark.parametrize(("B", "accumulation"), [(1, 1), (4, 1), (4, 5)])
def test_the_formula_of_megatron(plan_model: PlanModel, B: int, accumulation: int) -> None:
    # Narayanan et al. 2021 (arXiv:2104.04473), appendix: 96·B·s·l·h²·(1 + s/6h + V/16lh) with every layer run once more; without that
    # 72·B·s·l·h²·(1 + s/6h + V/12lh), as Korthikanti et al. 2022 (arXiv:2205.05198), appendix A, have it.
    s, L, h, V = 1024, 24, 2304, 51_200  # table 1, 1.7 B
    plan = plan_model(gpt(L, h, 24, V, s), batch_size=B, gradient_accumulation=accumulation, flops_convention="matmul")
    formula = 72 * B * s * L * h * h + 12 * B * s * s * L * h + 6 * B * s * h * V
    assert counted(plan, "matmul").train_per_step == accumulation * formula
    assert plan.to_frame()["train_flops_per_token"][0] == formula // (B * s)


# Korthikanti et al. 2022, tables 3 and 5: sequences of 2,048, V = 51,200. Layers, width, heads, batch, GPUs, seconds, MFU and HFU in %.
KORTHIKANTI = {
    "22B": (48, 6144, 64, 4, 8, 1.10, 41.5, 43.7),
    "175B": (96, 12_288, 96, 64, 64, 13.75, 51.4, 52.8),
    "530B": (105, 20_480, 128, 280, 280, 37.83, 56.0, 57.0),
    "1T": (128, 25_600, 160, 512, 512, 71.49, 56.3, 57.0),
}


def within_rounding(percent: float, seconds: float) -> Any:  # noqa: ANN401 - pytest's own type has no name
    """Allow for rounding of the table's percentages and seconds."""
    return pytest.approx(percent, abs=0.05 + percent * 0.005 / seconds)


@pytest.mark.parametrize("name", KORTHIKANTI)
def test_mfu_in_the_table_of_korthikanti(plan_model: PlanModel, name: str) -> None:
    L, h, n_heads, B, gpus, seconds, mfu, _ = KORTHIKANTI[name]
    plan = plan_model(gpt(L, h, n_heads, 51_200, 2048), batch_size=B)
    assert 100 * counted(plan, "matmul").train_per_step / (seconds * gpus * A100) == within_rounding(mfu, seconds)


def test_forward_flops_in_the_table_of_chinchilla(plan_model: PlanModel) -> None:
    """Hoffmann et al. 2022 (arXiv:2203.15556), table A4: training FLOPs by appendix F over 6·N·D, of sequences of 2,048 tokens.

    The ratios come out without token embedding and LM head. The convention counts a softmax as three FLOPs a score, which is added here:
    3·H·n a token, layer and head. Layers, d_model, d_ff, heads, head_dim, N in millions, ratio.
    """
    table = [
        (10, 640, 2560, 10, 64, 73, 1.03),
        (20, 1024, 4096, 16, 64, 305, 1.10),
        (24, 1280, 5120, 10, 128, 552, 1.08),
        (26, 1792, 7168, 14, 128, 1_100, 1.04),
        (28, 2048, 8192, 16, 128, 1_600, 1.03),
        (40, 3584, 14_336, 28, 128, 6_800, 0.99),
    ]
    for L, d_model, d_ff, n_heads, head_dim, millions, ratio in table:
        plan = plan_model(gpt(L, d_model, n_heads, 32_000, 2048, head_dim=head_dim, d_ff=d_ff), batch_size=1, flops_convention="matmul")
        head = 2 * 2048 * d_model * 32_000
        assert plan.flops.forward_by_component["head"] == head
        products = counted(plan, "matmul").train_per_step - 3 * head
        flops = products + 3 * 3 * n_heads * 2048**2 * L
        half = 0.5 if millions < 1_000 else 50  # the last digit of N
        low, high = (flops / (6e6 * (millions + sign * half) * 2048) for sign in (1, -1))
        assert low - 0.01 < ratio < high + 0.01


# --- half the square --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 64, 1024])
def test_forward_flops_in_the_table_of_kaplan(plan_model: PlanModel, n: int) -> None:
    # Kaplan et al. 2020 (arXiv:2001.08361), table 1: 2·N + 2·n_layer·n_ctx·d_attn a token, N = 2·d_model·n_layer·(2·d_attn + d_ff) without
    # embeddings. Scores and their sum over values are 4·n_ctx·d_attn over the full square: the mask leaves half. The head is 2·V·d_model.
    plan = plan_model(NANO, batch_size=2, sequence_length=n, flops_convention="matmul-causal")
    N = 2 * 768 * 12 * (2 * 768 + 3072)
    forward = 2 * N + 2 * 12 * n * 768 + 2 * 50_257 * 768
    assert plan.to_frame()["forward_flops_per_token"][0] == forward
    assert plan.to_frame()["train_flops_per_token"][0] == 3 * forward


def test_causal_flops_are_half_as_in_flash_attention(plan_model: PlanModel) -> None:
    # Dao 2023 (arXiv:2307.08691), section 4.1: 4·n²·head_dim·heads forward, and half of it with a causal mask.
    plan = plan_model(NANO, batch_size=1)
    square = 12 * 4 * 1024**2 * 64 * 12
    assert counted(plan, "matmul").forward_per_step - counted(plan, "matmul-causal").forward_per_step == square // 2


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("window", [1, 3, 8, 16])
def test_pairs_in_a_window_by_hand(plan_model: PlanModel, window: int, *, chunked: bool) -> None:
    """Count the pairs of query and key that a mask allows, minus half of those on its edge, as n² / 2 does without a window.

    The edge of a chunk is its diagonal, a pair for each query; that of a window has a pair for each key of the widest row.
    """
    n, width = 16, 32
    model = without_biases(gpt(1, width, 4, 64, n)) | {"attention": {"bias": False, "window": window, "chunked": chunked}}
    plan = plan_model(model, batch_size=1, sequence_length=n)
    seen = sum(query % window + 1 if chunked else min(query + 1, window) for query in range(n))
    pairs = seen - (n if chunked else window) / 2
    rest = 2 * 12 * width**2 * n + 2 * 64 * width * n
    assert counted(plan, "matmul-causal").forward_per_step == rest + 4 * width * pairs
    assert counted(plan, "matmul").forward_per_step == rest + 2 * 4 * width * pairs


@pytest.mark.parametrize("convention", ["matmul", "matmul-causal", "6nd", "6nd-kaplan", "palm"])
def test_a_convention_counts_backward_as_two_forwards(plan_model: PlanModel, convention: str) -> None:
    count = counted(plan_model(NANO, batch_size=3, gradient_accumulation=2, tokens=3 * 1024 * 2 * 10), convention)
    assert count.train_per_step == 2 * 3 * count.forward_per_step  # two passes
    assert count.train_total == 10 * count.train_per_step  # ten steps


# --- hardware FLOPs ---------------------------------------------------------------------------------------------------------------------


def test_fused_attention_runs_five_products_backward(plan_model: PlanModel) -> None:
    # Dao 2023, section 4.1: backward is 2.5 times forward (five products, the scores once more). Of nanoGPT's 874,944,921,600 attention is
    # 3 · 12 · 2 · 1,610,612,736; half a forward more is 19,327,352,832.
    plan = plan_model(NANO, batch_size=1, implementation="pytorch")
    assert counted(plan, "hardware").train_per_step == 874_944_921_600 + 19_327_352_832
    eager = plan_model(NANO, batch_size=1, implementation="pytorch-eager")
    assert counted(eager, "hardware").train_per_step == 874_944_921_600


# bigscience-workshop/bigscience, train/tr11-176B-ml/chronicles-prequel.md, February 2022: 2,048 sequences of 2,048 tokens on 384 A100, all
# layers recomputed; TFLOP/s a GPU by Narayanan's 96·B·s·l·h²·(1 + s/6h + V/16lh). Layers, width, heads, seconds, TFLOP/s; BLOOM is third.
BIGSCIENCE = [
    (78, 13_824, 64, 103.51, 156.92),
    (106, 12_288, 64, 116.54, 149.75),
    (70, 14_336, 112, 104.50, 150.05),
    (82, 13_312, 128, 108.78, 145.68),
]


@pytest.mark.parametrize(("L", "h", "n_heads", "seconds", "teraflops"), BIGSCIENCE)
def test_hardware_flops_of_bloom(plan_model: PlanModel, L: int, h: int, n_heads: int, seconds: float, teraflops: float) -> None:
    model = gpt(L, h, n_heads, 250_880, 2048)
    plan = plan_model(model, batch_size=2048, precision="bf16-master", implementation="megatron", recompute="full")
    assert round(counted(plan, "hardware").train_per_step / (seconds * 384) / 1e12, 1) == pytest.approx(teraflops, abs=0.06)


def test_hardware_flops_with_full_recomputation(plan_model: PlanModel) -> None:
    B, s, L, h, V = 4, 1024, 24, 2304, 51_200
    plan = plan_model(gpt(L, h, 24, V, s), batch_size=B, precision="bf16-master", implementation="megatron", recompute="full")
    assert counted(plan, "hardware").train_per_step == 96 * B * s * L * h * h + 16 * B * s * s * L * h + 6 * B * s * h * V


def test_hardware_flops_without_recomputation_are_model_flops(plan_model: PlanModel) -> None:
    plan = plan_model(gpt(24, 2304, 24, 51_200, 1024), batch_size=4, precision="bf16-master", implementation="megatron")
    assert counted(plan, "hardware").train_per_step == counted(plan, "matmul").train_per_step


@pytest.mark.parametrize("name", KORTHIKANTI)
def test_hfu_in_the_table_of_korthikanti(plan_model: PlanModel, name: str) -> None:
    """Selective recomputation computes scores and weighted values again: 4·B·L·s²·h.

    The paper's 72·B·L·s·h²·(1 + s/3h + V/12hL) has three times that, as if the backward pass also ran twice; so do its percentages.
    """
    L, h, n_heads, B, gpus, seconds, _, hfu = KORTHIKANTI[name]
    model = gpt(L, h, n_heads, 51_200, 2048)
    plan = plan_model(model, batch_size=B, precision="bf16-master", implementation="megatron", recompute="selective")
    once_more = counted(plan, "hardware").train_per_step - counted(plan, "matmul").train_per_step
    assert once_more == 4 * B * L * 2048**2 * h
    theirs = counted(plan, "matmul").train_per_step + 3 * once_more
    assert 100 * theirs / (seconds * gpus * A100) == within_rounding(hfu, seconds)
