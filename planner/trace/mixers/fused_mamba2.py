"""Mamba-2 with the kernel of its authors: ``mamba_split_conv1d_scan_combined``, the state-space dual form in chunks of T tokens.

Read from mamba_ssm 2.3.2: ops/triton/ssd_combined.py, ssd_chunk_scan.py, ssd_chunk_state.py, ssd_bmm.py, layernorm_gated.py.
"""

from __future__ import annotations

from planner.spec import records
from planner.spec.precision import BYTES
from planner.trace import primitives as op
from planner.trace.nodes import Flops, Saved
from planner.trace.sizes import Size, ceil_div, maximum, minimum, structure
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor
from planner.trace.unsupported import UnsupportedError

CHANNELS = 8  # the convolution's channels are a multiple
MULTIPROCESSORS = {"a100": 108, "h100": 132}
FLOAT = BYTES["float32"]


def split_function(t: Tape, kind: records.Mamba2, x: Tensor, both: Tensor, vectors: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Run everything after the first projection in one function -> [B, n, d]. ``vectors``: decays, skip and bias of step sizes, by head.

    It saves its input, the output of the scan before the gate, and a statistic of the norm per group and token. Backward runs the
    convolution, the products of C and B and the states of chunks again.
    """
    B, n, d = x.shape
    channels = kind.d_inner + 2 * kind.n_groups * kind.d_state
    if structure(channels) % CHANNELS:
        requires = f"mamba_ssm's kernel requires d_inner + 2 * n_groups * d_state to be a multiple of {CHANNELS}"
        if t.training.mixer_kernels == "fused":
            raise UnsupportedError(requires)
        t.note(f"{requires}: PyTorch does not run this step")
    with t.at("conv1d"):
        more = [t.weight("bias", (channels,), "bias: channels")] if kind.conv_bias else []
        kernel = t.weight("weight", (channels, 1, kind.d_conv), "depthwise convolution: channels · width").view(channels, kind.d_conv)
    statistics = []
    if kind.gated_norm:
        with t.at("norm", "norm"):
            more.append(t.weight("weight", (kind.d_inner,), "scale of a norm"))
        statistics = [t.tensor((kind.n_groups * B * n,), "float32", needs_grad=False)]
    with t.at("out_proj"):
        weight = t.weight("weight", (d, kind.d_inner), op.LINEAR)
        lowered = op.cast(t, weight, t.precision.autocast or weight.dtype)
        more += [t.weight("bias", (d,), "bias: out")] if kind.bias else []
    made, scanned = t.tensor((B, n, d), both.dtype), t.tensor((B, n, kind.d_inner), both.dtype, needs_grad=False)
    forward, backward = temporaries(t, kind, scanned, both.dtype == "float32")
    with_name = {"input": both, "convolution's weight": kernel, "output of the scan": scanned, "weight cast to compute dtype": lowered}
    saved = [Saved(one, what) for what, one in with_name.items()]
    saved += [Saved(one, "reciprocal RMS") for one in statistics] + [Saved(one, "vector") for one in (*vectors, *more)]
    t.record(
        "mamba_split_conv1d_scan_combined",
        [both, kernel, *more, lowered, *vectors],
        [made, scanned, *statistics],
        saved,
        flops_of(kind, B, n, d),
        temporary=forward - minimum(made.bytes, forward),
        backward_temporary=backward - lowered.bytes,
        by=split_function,
    )
    op.keep_alive(t, both)
    return made


def flops_of(kind: records.Mamba2, B: Size, n: Size, d: Size) -> Flops:
    """Return the FLOPs of the convolution and the last projection, and inside the scan of products over whole chunks.

    Forward, these are of states with B and with C, of C with B, and of decayed scores with x. Backward, they are 5, 3 and 3 times those.
    """
    tokens = ceil_div(n, kind.chunk) * kind.chunk
    with_state = 2 * B * tokens * kind.d_inner * kind.d_state
    scores, within = 2 * B * tokens * kind.chunk * kind.n_groups * kind.d_state, 2 * B * tokens * kind.chunk * kind.d_inner
    convolved = 2 * B * n * (kind.d_inner + 2 * kind.n_groups * kind.d_state) * kind.d_conv
    outside = convolved + 2 * B * n * kind.d_inner * d
    forward = outside + 2 * with_state + scores + within
    backward = 2 * outside + convolved + 5 * with_state + 3 * (scores + within)
    return Flops(forward, outside, outside, backward, "convolution, 4 products per chunk, projection")


def temporaries(t: Tape, kind: records.Mamba2, scanned: Tensor, wide: bool) -> tuple[Size, Size]:
    """Return the bytes that the forward and the backward pass allocate only inside the function, at their peaks.

    Forward: the convolution's output, step sizes and their sums, states, and scores or the gated output. Backward, where the scores'
    gradients of splits of a group's heads are added: also three outputs' gradients, and gradients of step sizes, B and C in float32.
    """
    B, n, inner = scanned.shape
    H, G, N, T = kind.n_heads, kind.n_groups, kind.d_state, kind.chunk
    chunks, size = ceil_div(n, T), FLOAT if wide else BYTES[scanned.dtype]
    convolved, by_head = B * n * (inner + 2 * G * N) * size, B * H * chunks * T * FLOAT
    states, scores = B * chunks * inner * N, B * chunks * G * T * T * FLOAT
    forward = convolved + 2 * by_head + states * size + B * inner * N * FLOAT + maximum(scores, scanned.bytes)
    heads = H // G
    splits = ceil_div(heads, maximum(minimum(ceil_div(B * chunks * H, MULTIPROCESSORS.get(t.training.device, 1)), heads), 1))
    gradients = 2 * B * n * G * N * FLOAT + B * n * H * size
    return forward, 2 * convolved + 3 * scanned.bytes + 5 * by_head + 2 * states * size + gradients + (2 + splits) * scores
