"""Training steps measured with PyTorch 2.13 and transformers 5.24, as models and training settings of specs.

``tests/data/training_steps.csv``: 370 steps of plain GPT-2 as in nanoGPT (``nano``) and of transformers' classes on fake CUDA tensors and
on the CPU: bytes saved by autograd, bytes allocated between the phases of the second step, peaks of the first two, and FLOPs including
the operators that PyTorch's counter omits. Columns: ``cfg`` sizes (L layers, d width, H heads, Hkv kv heads, hd head_dim, dff, V
vocabulary, nctx positions, E experts, k top-k, dffm expert width, kvr, qr, rope, nope, vd ranks and widths of latent attention), ``prec``
(amp: bf16 autocast), ``attn``, ``ckpt`` (each block recomputed), ``loss`` (hf: labels given to the model), ``opt`` (AdamW's kernel), B,
n.
"""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path

from planner.capacity import plan
from planner.capacity.figures import Plan
from planner.spec.records import (
    Attention,
    Experts,
    FeedForward,
    LatentAttention,
    Layer,
    Model,
    Norm,
    Positions,
    Run,
    Scenario,
    Spec,
    Training,
)

TABLE = Path(__file__).parent.parent / "data" / "training_steps.csv"
PRECISIONS = {"fp32": "fp32", "amp": "bf16-autocast", "bf16": "bf16"}
LOSSES = {
    "ce": "cross_entropy",
    "ce_shift": "cross_entropy_shifted",
    "hf": "default",
    "linear_ce": "linear_cross_entropy",
    "linear_ce_chunked": "linear_cross_entropy_chunked",
}
KERNELS = {"fused": "fused", "foreach": "foreach", "for": "for-loop"}
RMS = Norm("rmsnorm", bias=False)


def cases() -> list[dict[str, str]]:
    """Return the rows of the table."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


CASES = cases()


@cache
def planned(number: int) -> Plan:
    """Return the plan of a case."""
    case = CASES[number]
    scenario = Scenario("base", training(case))
    return plan(Spec(case["case"], case["case"], model(case), (scenario,)), scenario)


def training(case: dict[str, str]) -> Training:
    """Return the training settings of a case."""
    device = "cpu" if case["device"] == "cpu" else "h100" if case["sdpa_backend"] == "h100" else "a100"
    return Training(
        int(case["B"]),
        int(case["n"]),
        precision=PRECISIONS[case["prec"]],  # type: ignore[arg-type]  # the tables above have names of the spec language
        gradient_dtype="bf16" if case["prec"] == "bf16" else "fp32",
        dropout=Fraction(case["dropout"]),
        recompute="full" if case["ckpt"] == "True" else "none",
        implementation=("pytorch" if case["family"] == "nano" else "transformers") + ("-eager" if case["attn"] == "eager" else ""),  # type: ignore[arg-type]
        device=device,  # type: ignore[arg-type]
        attention_kernel=case["sdpa_backend"] if case["sdpa_backend"] not in {"", "h100"} else "auto",  # type: ignore[arg-type]
        # nanoGPT computes the cross entropy in the model's forward function: the default loss.
        loss="default" if (case["family"], case["loss"]) == ("nano", "ce") else LOSSES[case["loss"]],  # type: ignore[arg-type]
        keep_logits=case["keep_logits"] == "True",
        use_cache=bool(json.loads(case["cfg"]).get("use_cache")),
        optimizer_kernel=KERNELS[case["opt"]],  # type: ignore[arg-type]
    )


def model(case: dict[str, str]) -> Model:
    """Return the model of a case."""
    family, cfg = case["family"], json.loads(case["cfg"])
    H, d = cfg["H"], cfg["d"]
    h = cfg.get("hd", d // H)
    build = {"nano": gpt2, "gpt2": gpt2, "neox": neox, "gemma2": gemma2, "deepseek_v3": deepseek}.get(family, llama)
    runs = build(family, cfg, h)
    first = runs[0].layers[0]
    return Model(
        cfg["V"], cfg["V"], cfg["nctx"], d, cfg["L"], runs,
        positions=first.positions,
        norm=first.norm,
        tied_head=case["tied"] == "True",
        embedding_scale=family == "gemma2",
        logit_softcap=Fraction(30) if family == "gemma2" else None,
    )  # fmt: skip


def swiglu(d_ff: int, activation: str = "silu") -> FeedForward:
    """Return a gated feed-forward without biases."""
    return FeedForward(d_ff, True, activation, False, False, False)  # type: ignore[arg-type]


def gpt2(family: str, cfg: dict[str, int], h: int) -> tuple[Run, ...]:
    """GPT-2: nanoGPT's nn.GELU, or transformers' approximation written out, unless ``act`` is set."""
    written_out = family == "gpt2" and not cfg.get("act")
    layer = Layer(Attention(cfg["H"], cfg["H"], h), FeedForward(4 * cfg["d"], activation="gelu_new" if written_out else "gelu"))
    return (Run(cfg["L"], (layer,)),)


def llama(family: str, cfg: dict[str, int], h: int) -> tuple[Run, ...]:
    """Llama, Qwen2 (biases), Qwen3 (norms on heads), and Mixtral and Qwen3-MoE with experts in place of the feed-forward."""
    qkv = family == "qwen2"
    attention = Attention(
        cfg["H"], cfg.get("Hkv", cfg["H"]), h, qkv="separate",
        q_bias=qkv, k_bias=qkv, v_bias=qkv, o_bias=False, qk_norm="head_dim" if family.startswith("qwen3") else "none",
    )  # fmt: skip
    layer = Layer(attention, swiglu(cfg["dff"]), positions=Positions("rope", rotary_dim=h), norm=RMS)
    if family in {"mixtral", "qwen3_moe"}:
        width, scores = (cfg["dff"], "fp32") if family == "mixtral" else (cfg["dffm"], "compute")
        layer = replace(layer, feed_forward=None, experts=Experts(cfg["E"], cfg["k"], width, scores_dtype=scores))  # type: ignore[arg-type]
    return (Run(cfg["L"], (layer,)),)


def neox(family: str, cfg: dict[str, int], h: int) -> tuple[Run, ...]:
    """GPT-NeoX: one projection by heads, a quarter of each head rotated, attention and feed-forward in parallel."""
    del family
    layer = Layer(
        Attention(cfg["H"], cfg["H"], h, qkv="fused_per_head"), FeedForward(cfg["dff"]),
        positions=Positions("rope", rotary_dim=h // 4), block="parallel_two_norms",
    )  # fmt: skip
    return (Run(cfg["L"], (layer,)),)


def gemma2(family: str, cfg: dict[str, int], h: int) -> tuple[Run, ...]:
    """Gemma 2: four norms with offset weights, soft-capped scores, a window of 4,096 in every other layer."""
    del family
    attention = Attention(
        cfg["H"], cfg["Hkv"], h, qkv="separate", q_bias=False, k_bias=False, v_bias=False, o_bias=False, logit_softcap=Fraction(50)
    )
    full = Layer(
        attention, swiglu(cfg["dff"], "gelu_tanh"), positions=Positions("rope", rotary_dim=h),
        norm=replace(RMS, unit_offset=True), norm_placement="before_and_after",
    )  # fmt: skip
    sliding = replace(full, attention=replace(attention, window=4096))
    return (Run(cfg["L"] // 2, (sliding, full)), *([Run(1, (sliding,))] if cfg["L"] % 2 else []))


def deepseek(family: str, cfg: dict[str, int], h: int) -> tuple[Run, ...]:
    """DeepSeek-V3: latent attention, ``dense`` layers first, then sigmoid-scored experts and a shared one."""
    del family, h
    latent = LatentAttention(cfg["H"], cfg["kvr"], cfg["nope"], cfg["rope"], cfg["vd"], cfg["qr"])
    dense = Layer(None, swiglu(cfg["dff"]), (latent,), positions=Positions("rope", rotary_dim=cfg["rope"]), norm=RMS)
    experts = Experts(
        cfg["E"], cfg["k"], cfg["dffm"], scoring="sigmoid", correction_bias="buffer", shared_d_ff=cfg["dffm"] * cfg.get("shared", 1)
    )
    first = cfg.get("dense", 1)
    return (Run(first, (dense,)), Run(cfg["L"] - first, (replace(dense, feed_forward=None, experts=experts),)))
