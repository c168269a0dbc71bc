"""Attention in one operator: which kernel PyTorch picks, and what each keeps.

Read from PyTorch 2.13: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp and sdp_utils_cpp.cpp (the choice), attention.cpp and
cuda/attention.cu (what is returned and saved). An A100-class GPU takes flash for half precision without a mask, an H100-class one cuDNN.
"""

from __future__ import annotations

from planner.spec.precision import BYTES, Dtype
from planner.trace import primitives as op
from planner.trace.refusal import NotModelledError
from planner.trace.sizes import Size, divide_up, minimum, structure
from planner.trace.tape import Flops, Saved, Tape
from planner.trace.tensor import Tensor

FLASH_WIDEST_HEAD = 256
FLASH_ALIGNMENT = 8  # elements of head_dim
CUDNN_WIDEST_HEAD, CUDNN_ALIGNMENT = 128, 8
EFFICIENT_ALIGNMENT = 16  # bytes of head_dim
BIAS_ALIGNMENT = 16  # elements of a row of the bias
LOG_SUM = "log of the sum of exponentials"


def fused_attention(t: Tape, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
    """Attend causally with q [B, H, n, h] to k and v [B, K, n, h] -> [B, H, n, h]."""
    q, k, v = (op.lowered(t, x) for x in (q, k, v))
    bias = bias and op.lowered(t, bias)
    made = with_kernel(t, q, k, v, bias)
    op.hold(t, q, k, v)
    return made


def with_kernel(t: Tape, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Attend with the kernel that PyTorch picks for inputs in the dtype of their products."""
    name = kernel(t, (q, k, v), bias)
    if name == "math":
        return math_attention(t, q, k, v, bias)
    B, H, n, h = q.shape
    if name == "flash_attention":
        statistics = [t.tensor((B, H, n), "float32", needs_grad=False), t.tensor((3,), "int64", needs_grad=False)]
        if structure(h) % FLASH_ALIGNMENT == 0:
            return one_kernel(t, name, (q, k, v), None, statistics)
        wide = (padded(t, q), padded(t, k), padded(t, v))
        return cut(t, one_kernel(t, name, wide, None, statistics, of_model=2 * h), h)
    if name == "cudnn_attention":
        statistics = [t.tensor((B, H, n, 1), "float32", needs_grad=False), t.tensor((2,), "int64", needs_grad=False)]
        return one_kernel(t, name, (q, k, v), bias, statistics)
    if name == "efficient_attention":
        rows = divide_up(n, 32) * 32  # the kernel's alignment of its statistics
        statistics = [t.tensor((B, H, rows), "float32", needs_grad=False), t.tensor((2,), "int64", needs_grad=False)]
        return one_kernel(t, name, (q, k, v), bias and aligned(t, bias), statistics)
    return one_kernel(t, name, (q, k, v), bias, [t.tensor((B, H, n), "float32", needs_grad=False)])


def kernel(t: Tape, qkv: tuple[Tensor, Tensor, Tensor], bias: Tensor | None) -> str:
    """Return the name of the kernel for inputs in the dtype of their products: a matter of structure, even where head_dim decides.

    cuDNN's takes dropout in sixteenths, and no sequence of a single token, which is left out of account here.

    Raises NotModelledError for a kernel that was asked for and does not take these inputs.
    """
    q, k, v = qkv
    forced, dropout = t.training.attention_kernel, t.training.dropout
    head_dim, v_dim = structure(q.shape[-1]), structure(v.shape[-1])
    if t.device == "cpu":
        return "math" if dropout or head_dim != v_dim or forced == "math" else "flash_attention_for_cpu"
    half, same = q.dtype != "float32", head_dim == v_dim
    possible = {"math": "math"}
    if half and same and head_dim % CUDNN_ALIGNMENT == 0 and head_dim <= CUDNN_WIDEST_HEAD and (16 * dropout).denominator == 1:
        possible["cudnn"] = "cudnn_attention"
    if q.shape[1] == k.shape[1] and not any(width * BYTES[q.dtype] % EFFICIENT_ALIGNMENT for width in (head_dim, v_dim)):
        possible["efficient"] = "efficient_attention"
    if half and same and bias is None and head_dim <= FLASH_WIDEST_HEAD:
        possible["flash"] = "flash_attention"
    automatic = ["cudnn", "flash", "efficient", "math"] if t.training.device == "h100" else ["flash", "efficient", "math"]
    for name in automatic if forced == "auto" else [forced]:
        if name in possible:
            return possible[name]
    raise NotModelledError(f"the {forced} attention kernel does not take these inputs; those that do: {', '.join(possible)}")


def one_kernel(
    t: Tape,
    name: str,
    qkv: tuple[Tensor, Tensor, Tensor],
    bias: Tensor | None,
    statistics: list[Tensor],
    *,
    of_model: Size | None = None,
) -> Tensor:
    """Attend in one kernel, whose output lies as q does; the memory-efficient one writes position by position.

    ``of_model``: the widths of the model's query and value heads together, where those that the kernel sees are padded.

    FLOPs forward 4·B·H·n²·h, backward 2.5 times that, since the scores are computed again (5 products for 2). Keeps q, k, v, the output and
    per row the log of the sum of exponentials; on CUDA also the state of the random number generator.
    """
    q, k, v = qkv
    B, H, n, h = q.shape
    made = t.tensor((B, H, n, v.shape[-1]), q.dtype)
    made.by_head = q.by_head and name != "efficient_attention"
    square = 2 * B * H * n * n
    products = square * (h + v.shape[-1])
    backward = square * (3 * h + 2 * v.shape[-1])
    full, causal = op.windowed(t, products if of_model is None else square * of_model, n)
    flops = Flops(products, full, causal, backward, "two products forward; backward five, the scores once more")
    saved = [Saved(q, "queries"), Saved(k, "keys"), Saved(v, "values"), Saved(made, "output")]
    saved += [Saved(tensor, what) for tensor, what in zip(statistics, (LOG_SUM, "random state"), strict=False)]
    if bias:
        saved.append(Saved(bias, "bias of the scores"))
    t.record(name, [*qkv, *([bias] if bias else [])], [made, *statistics], saved, flops, by=one_kernel)
    return made


def padded(t: Tape, x: Tensor) -> Tensor:
    """Return a copy of x [B, heads, n, h] with heads as wide as the kernel wants them."""
    width = divide_up(x.shape[-1], FLASH_ALIGNMENT) * FLASH_ALIGNMENT
    made = t.tensor((*x.shape[:-1], width), x.dtype)
    made.by_head = True
    t.record("pad", [x], [made], by=padded)
    return made


def cut(t: Tape, x: Tensor, h: Size) -> Tensor:
    """Return the first h channels of x [B, H, n, width], a view; the derivative fills up with zeros."""
    made = Tensor((*x.shape[:-1], h), x.dtype, x.parts)
    made.by_head = x.by_head
    t.record("slice", [x], [made], by=cut)
    return made


def aligned(t: Tape, bias: Tensor) -> Tensor:
    """Return the bias [1, H, n, n] with rows that start at multiples of 16 elements: a copy where n is none."""
    *outer, n = bias.shape
    row = divide_up(n, BIAS_ALIGNMENT) * BIAS_ALIGNMENT
    made = op.copied(t, bias, (*outer, row), minimum(row - n, 1))
    t.record("pad", [bias], [made], by=aligned)
    return made


def math_attention(t: Tape, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Attend by products, in float32 whatever the inputs' dtype, queries and keys each scaled by the root of the scale.

    The operators of _scaled_dot_product_attention_math. Autocast is off inside.
    """
    dtype: Dtype = q.dtype
    with t.without_autocast():
        wide_q, wide_k, wide_v = (op.cast(t, x, "float32") for x in (q, k, v))
        q = op.scale(t, wide_q)
        mask = bias or causal_mask(t, q.shape[2])
        k, v = repeated(t, wide_k, q.shape[1]), repeated(t, wide_v, q.shape[1])
        probabilities = op.softmax(t, op.add(t, op.matmul_by_head(t, q, op.scale(t, k), transposed=True), mask))
        if t.training.dropout:
            probabilities = op.dropout(t, probabilities)
        returned = op.cast(t, probabilities, dtype)  # and thrown away
        result = op.cast(t, op.matmul_by_head(t, probabilities, v), dtype)
        op.hold(t, wide_q, wide_k, wide_v, q, k, v, mask, probabilities, returned)
        result.by_head = True
    return result


def causal_mask(t: Tape, n: Size) -> Tensor:
    """Return minus infinity [n, n] where a query would see a later key."""
    made = t.tensor((n, n), "float32", needs_grad=False)
    t.record("causal mask", [], [made], by=causal_mask)
    return made


def repeated(t: Tape, x: Tensor, heads: Size) -> Tensor:
    """Return keys or values [B, K, n, h] copied to all heads."""
    if x.shape[1] == heads:
        return x
    made = t.tensor((x.shape[0], heads, *x.shape[2:]), x.dtype)
    made.by_head = True
    t.record("repeat_interleave", [x], [made], by=repeated)
    return made
