"""Scaled dot-product attention in one operator: which kernel PyTorch selects, and what each saves.

Read from PyTorch 2.13: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp and sdp_utils_cpp.cpp (the choice), attention.cpp and
cuda/attention.cu (what is returned and saved). In half precision without a mask, A100-class GPUs use flash, H100-class ones cuDNN.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from planner.spec.precision import BYTES, Dtype
from planner.spec.records import Training
from planner.trace import context_parallel
from planner.trace import primitives as op
from planner.trace.by_head import matmul_by_head
from planner.trace.nodes import Flops, Saved
from planner.trace.sizes import Size, ceil_div, choose, exceeds_one, minimum
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor
from planner.trace.unsupported import UnsupportedError

FLASH_WIDEST_HEAD = 256
FLASH_ALIGNMENT = 8  # elements of head_dim
CUDNN_WIDEST_HEAD, CUDNN_ALIGNMENT = 128, 8
EFFICIENT_ALIGNMENT = 16  # bytes of head_dim
BIAS_ALIGNMENT = 8  # elements of a row of the bias: preprocess_mask
GRADIENT_ALIGNMENT = 16  # and of its gradient: _efficient_attention_backward


def fused_attention(t: Tape, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None, *, grouped: bool = True) -> Tensor:
    """Attend causally with q [B, H, n, h] to k and v [B, K, n, h] -> [B, H, n, h].

    ``bias`` is added to the scores; a Boolean mask is turned into one. ``grouped``: fewer key heads than query heads are groups, which
    kernels support (``enable_gqa``); otherwise one key head is broadcast, which none does.
    """
    q, k, v = (op.cast_lower_precision(t, x) for x in (q, k, v))
    bias = bias and additive(t, op.cast_lower_precision(t, bias), q.dtype)
    made = sdpa(t, q, k, v, bias, grouped=grouped)
    op.keep_alive(t, q, k, v)
    return made


def additive(t: Tape, mask: Tensor, dtype: Dtype) -> Tensor:
    """Return a Boolean mask as zeros and negative infinities (convert_boolean_attn_mask); any other is returned itself."""
    if mask.dtype != "bool":
        return mask
    return t.record("where", [mask], [t.tensor(mask.shape, dtype, needs_grad=False)], by=additive)[0]


def sdpa(t: Tape, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, *, grouped: bool) -> Tensor:
    """Attend with the kernel that PyTorch selects for these inputs."""
    name = kernel(t, (q, k, v), bias, grouped=grouped)
    context_parallel.check_kernel(t, name, q.shape[-1])
    if name == "math":
        return math_attention(t, q, k, v, bias, grouped=grouped)
    B, H, n, h = q.shape
    if name == "flash_attention":
        statistics = [t.tensor((B, H, n), "float32", needs_grad=False), t.tensor((3,), "int64", needs_grad=False)]
        if choose(_is_aligned, h):
            return fused_sdpa(t, name, (q, k, v), None, statistics)
        wide = (pad_head_dim(t, q), pad_head_dim(t, k), pad_head_dim(t, v))
        return op.narrow(t, fused_sdpa(t, name, wide, None, statistics, of_model=2 * h), h)
    if name == "cudnn_attention":
        statistics = [t.tensor((B, H, n, 1), "float32", needs_grad=False), t.tensor((2,), "int64", needs_grad=False)]
        return fused_sdpa(t, name, (q, k, v), bias, statistics)
    if name == "efficient_attention":
        rows = ceil_div(n, 32) * 32 if t.grad else 0  # the kernel aligns its statistics
        statistics = [t.tensor((B, H, rows), "float32", needs_grad=False), t.tensor((2,), "int64", needs_grad=False)]
        return fused_sdpa(t, name, (q, k, v), bias and pad_attn_bias(t, bias), statistics)
    return fused_sdpa(t, name, (q, k, v), bias, [t.tensor((B, H, n), "float32", needs_grad=False)])


def kernel(t: Tape, qkv: tuple[Tensor, Tensor, Tensor], bias: Tensor | None, *, grouped: bool) -> str:
    """Return the name of the kernel for these inputs. It must not depend on a symbol without a hint.

    cuDNN requires dropout in sixteenths. It also rejects sequences of one token, which is ignored here.

    Raises UnsupportedError if the requested kernel does not support these inputs.
    """
    q, k, v = qkv
    inputs = _Inputs(q.dtype, q.shape[1] == k.shape[1], grouped, bias is not None)
    return choose(partial(_selected, t.training, t.implementation.attention_kernels, inputs), q.shape[-1], v.shape[-1])


class _Inputs(NamedTuple):
    """What the choice of a kernel depends on, besides the widths of heads."""

    dtype: Dtype
    equal_heads: bool  # as many key heads as query heads
    grouped: bool
    biased: bool


def _selected(training: Training, preferred: tuple[str, ...], inputs: _Inputs, head_dim: int, v_dim: int) -> str:
    forced, dropout = training.attention_kernel, training.dropout
    alike, same = inputs.grouped or inputs.equal_heads, head_dim == v_dim
    if training.device == "cpu":
        return "math" if not alike or dropout or not same or forced == "math" else "flash_attention_for_cpu"
    half = alike and inputs.dtype != "float32"
    possible = {"math": "math"}
    if half and same and head_dim % CUDNN_ALIGNMENT == 0 and head_dim <= CUDNN_WIDEST_HEAD and (16 * dropout).denominator == 1:
        possible["cudnn"] = "cudnn_attention"
    if inputs.equal_heads and not any(width * BYTES[inputs.dtype] % EFFICIENT_ALIGNMENT for width in (head_dim, v_dim)):
        possible["efficient"] = "efficient_attention"
    if half and same and not inputs.biased and head_dim <= FLASH_WIDEST_HEAD:
        possible["flash"] = "flash_attention"
    automatic = ("cudnn", "flash", "efficient", "math") if training.device == "h100" else ("flash", "efficient", "math")
    for name in (preferred or automatic) if forced == "auto" else (forced,):
        if name in possible:
            return possible[name]
    raise UnsupportedError(f"the {forced} attention kernel does not support these inputs; choose one of: {', '.join(possible)}")


def _is_aligned(head_dim: int) -> bool:
    return head_dim % FLASH_ALIGNMENT == 0


def fused_sdpa(
    t: Tape, name: str, qkv: tuple[Tensor, Tensor, Tensor], bias: Tensor | None, statistics: list[Tensor], *, of_model: Size | None = None
) -> Tensor:
    """Fused attention. The output has q's memory layout, but [B, n, H, h] with the memory-efficient kernel.

    ``of_model``: query plus value head width of the model, if the kernel's are padded.

    FLOPs forward 4·B·H·n²·h, backward 2.5 times that, since it recomputes the scores (5 products instead of 2). Saves q, k, v, the output
    and logsumexp per row; on CUDA also the RNG state.
    """
    q, k, v = qkv
    made = t.tensor((*q.shape[:-1], v.shape[-1]), q.dtype)
    made.by_head = q.by_head and name != "efficient_attention"
    around = context_parallel.around(t, q, k, v, made, statistics)
    flops = fused_flops(t, q, v.shape[-1], around.keys, around.pairs, of_model=of_model)
    saved = [Saved(q, "queries"), Saved(k, "keys"), Saved(v, "values"), Saved(made, "output")]
    saved += [Saved(tensor, what) for tensor, what in zip(statistics, ("logsumexp", "RNG state"), strict=False)]
    biases = [bias] if bias else []
    saved += [Saved(bias, "attention bias") for bias in biases]
    return t.record(
        name, [*around.inputs, *biases], [made, *statistics], saved, flops,
        temporary=around.forward, backward_temporary=around.backward + gradient_of_bias(t, q, bias), sends=around.sends, by=fused_sdpa,
    )[0]  # fmt: skip


def gradient_of_bias(t: Tape, q: Tensor, bias: Tensor | None) -> Size:
    """Return the bytes of the gradient for each sequence of a bias that all share, which is summed to its own if there are several."""
    if bias is None or not bias.needs_grad or not t.grad or bias.shape[0] != 1:
        return 0
    B, H, n, _ = q.shape
    row = ceil_div(bias.shape[-1], GRADIENT_ALIGNMENT) * GRADIENT_ALIGNMENT
    return B * H * n * row * BYTES[bias.dtype] * exceeds_one(B)


def fused_flops(t: Tape, q: Tensor, v_dim: Size, keys: Size, pairs: Size, *, of_model: Size | None = None) -> Flops:
    """Return the FLOPs of fused attention of q [B, H, n, h]: 2 products forward, of ``pairs`` of queries and keys, and 5 backward."""
    B, H, n, h = q.shape
    width, executed = h + v_dim, 2 * B * H * pairs
    full, causal = op.windowed(t, 2 * B * H * n * keys * (width if of_model is None else of_model), n)
    why = "2 products forward; 5 backward, which recomputes the scores"
    return Flops(executed * width, full, causal, executed * (3 * h + 2 * v_dim), why)


def pad_head_dim(t: Tape, x: Tensor) -> Tensor:
    """Pad head_dim of x [B, heads, n, h] to the multiple that the kernel requires."""
    width = ceil_div(x.shape[-1], FLASH_ALIGNMENT) * FLASH_ALIGNMENT
    made = t.tensor((*x.shape[:-1], width), x.dtype)
    made.by_head = True
    return t.record("pad", [x], [made], by=pad_head_dim)[0]


def pad_attn_bias(t: Tape, bias: Tensor) -> Tensor:
    """Align each row of the bias [1, H, n, n] to 8 elements: a copy unless n is a multiple of 8."""
    *outer, n = bias.shape
    row = ceil_div(n, BIAS_ALIGNMENT) * BIAS_ALIGNMENT
    return t.record("pad", [bias], [op.clone(t, bias, (*outer, row), minimum(row - n, 1))], by=pad_attn_bias)[0]


def math_attention(t: Tape, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, *, grouped: bool) -> Tensor:
    """Unfused attention (_scaled_dot_product_attention_math) in float32 for any input dtype, without autocast.

    Queries and keys are each multiplied by the square root of the scale. Grouped heads are repeated first, one head is broadcast last.
    """
    dtype: Dtype = q.dtype
    with t.without_autocast():
        wide_q, wide_k, wide_v = (op.cast(t, x, "float32") for x in (q, k, v))
        q = op.mul_scalar(t, wide_q)
        mask = bias if bias or not t.causal or (t.inference and t.inference.decodes) else causal_mask(t, q.shape[2])
        k, v = (repeat_kv(t, x, q.shape[1]) if grouped else x for x in (wide_k, wide_v))
        scores = matmul_by_head(t, q, broadcast_head(t, op.mul_scalar(t, k), q.shape[1]), transposed=True)
        probabilities = op.softmax(t, op.add(t, scores, mask) if mask else scores)
        if t.training.dropout:
            probabilities = op.dropout(t, probabilities)
        returned = op.cast(t, probabilities, dtype)  # discarded by the caller
        result = op.cast(t, matmul_by_head(t, probabilities, broadcast_head(t, v, q.shape[1])), dtype)
        op.keep_alive(t, wide_q, wide_k, wide_v, q, k, v, *([mask] if mask else []), probabilities, returned)
        result.by_head = True
    return result


def causal_mask(t: Tape, n: Size) -> Tensor:
    """Return the additive causal mask [n, n]."""
    return t.record("causal mask", [], [t.tensor((n, n), "float32", needs_grad=False)], by=causal_mask)[0]


def broadcast_head(t: Tape, x: Tensor, heads: Size) -> Tensor:
    """Return one head [B, 1, n, h] as a view of all query heads."""
    return x if x.shape[1] == heads else op.expand(t, x, (x.shape[0], heads, *x.shape[2:]), 0)


def repeat_kv(t: Tape, x: Tensor, heads: Size) -> Tensor:
    """Repeat KV heads [B, K, n, h] to all query heads (a copy)."""
    if x.shape[1] == heads:
        return x
    made = t.tensor((x.shape[0], heads, *x.shape[2:]), x.dtype)
    made.by_head = True
    return t.record("repeat_interleave", [x], [made], by=repeat_kv)[0]
