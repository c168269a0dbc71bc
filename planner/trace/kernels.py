"""Fused attention: which kernel PyTorch picks, and what each keeps.

Read from PyTorch 2.13: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (the choice) and attention.cu (what is returned and saved).
An A100-class GPU takes flash for half precision without a mask, the memory-efficient kernel otherwise; flash and memory-efficient attention
refuse float32 with grouped heads, which falls to plain products.
"""

from __future__ import annotations

from planner.trace.primitives import lowered
from planner.trace.sizes import Size, divide_up
from planner.trace.tape import Flops, Saved, Tape
from planner.trace.tensor import Dtype, Tensor


def fused_attention(t: Tape, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
    """Attend with q [B, H, n, h] to k and v [B, K, n, h] -> [B, H, n, h], in one kernel.

    FLOPs forward 4·B·H·n²·h, backward 2.5 times that, since the scores are computed again (5 products for 2). Keeps q, k, v, the output and
    per row the log of the sum of exponentials; on CUDA also the state of the random number generator.
    """
    q, k, v = lowered(t, q), lowered(t, k), lowered(t, v)
    B, H, n, h = q.shape
    made = t.tensor((B, H, n, v.shape[-1]), q.dtype)
    name, statistics = _kernel(t, q, masked=bias is not None)
    extra = [t.tensor(shape, dtype, needs_grad=False) for _, shape, dtype in statistics]
    made.by_head = q.by_head and name.startswith("flash")  # flash's output has the layout of its queries
    products = 2 * B * H * n * n * (h + v.shape[-1])
    backward = 2 * B * H * n * n * (3 * h + 2 * v.shape[-1])
    flops = Flops(products, products // 2, backward, "two products forward; backward five, the scores once more")
    saved = [Saved(q, "queries"), Saved(k, "keys"), Saved(v, "values"), Saved(made, "output")]
    saved += [Saved(tensor, what) for tensor, (what, _, _) in zip(extra, statistics, strict=True)]
    if bias:
        saved.append(Saved(bias, "bias of the scores"))
    t.record(name, [q, k, v], [made, *extra], saved, flops, by=fused_attention)
    return made


def _kernel(t: Tape, q: Tensor, *, masked: bool) -> tuple[str, list[tuple[str, tuple[Size, ...], Dtype]]]:
    B, H, n, _ = q.shape
    log_sum = "log of the sum of exponentials"
    if t.device == "cpu":
        return "flash_attention_for_cpu", [(log_sum, (B, H, n), "float32")]
    if q.dtype == "float32" or masked:
        rows = divide_up(n, 32) * 32  # the kernel's alignment of its statistics
        return "efficient_attention", [(log_sum, (B, H, rows), "float32"), ("random state", (2,), "int64")]
    return "flash_attention", [(log_sum, (B, H, n), "float32"), ("random state", (3,), "int64")]
