"""Token mixers other than attention: state-space layers, linear attention, gated recurrences and short convolutions.

Each is the layer of the model that published it: its projections and one fused scan. The scan is the kernel that the authors ship
(mamba-ssm, causal-conv1d, flash-linear-attention). It saves its inputs. No FLOPs convention counts it, since it is not a matrix product.

x is [B, n, d]. Read from transformers 5.24: models/mamba, bamba and mamba2, qwen3_next, kimi_linear, minimax, recurrent_gemma, rwkv, lfm2,
xlstm.
"""

from __future__ import annotations

from planner.spec import records
from planner.trace import primitives as op
from planner.trace.blocks import linear, norm, time_mix
from planner.trace.routing import sigmoid
from planner.trace.sizes import Size
from planner.trace.tape import Saved, Tape
from planner.trace.tensor import Tensor

RMS = records.Norm("rmsnorm", bias=False)


def scan(t: Tape, name: str, inputs: list[Tensor], shape: tuple[Size, ...]) -> Tensor:
    """Run a recurrence over the sequence in one kernel -> ``shape``. Saves its inputs; recomputes states from them."""
    t.note(f"FLOPs and temporary memory inside the {name} kernel, and what it saves besides its inputs")
    saved = [Saved(tensor, f"input {number}") for number, tensor in enumerate(inputs)]
    return t.record(name, inputs, [t.tensor(shape, inputs[0].dtype)], saved, by=scan)[0]


def convolution(t: Tape, x: Tensor, width: Size, *, bias: bool, activated: bool = True) -> Tensor:
    """Depthwise convolution of x [B, n, c] with ``width`` weights per channel, and SiLU, in one kernel. Saves x and the weights."""
    with t.at("conv1d"):
        w = t.weight("weight", (x.shape[-1], 1, width), "depthwise convolution: channels · width")
        b = t.weight("bias", (x.shape[-1],), "bias: channels") if bias else None
        inputs, saved = [x, w, *([b] if b else [])], [Saved(x, "input"), Saved(w, "weight")]
        name = "causal_conv1d" + (" silu" if activated else "")
        return t.record(name, inputs, [t.tensor(x.shape, x.dtype)], saved, by=convolution)[0]


def mamba(t: Tape, kind: records.Mamba, x: Tensor) -> Tensor:
    """Mamba-1: in (x, z), convolution, dt, B and C from x, selective scan, out."""
    B, n, d = x.shape
    inner, state, rank = kind.d_inner, kind.d_state, kind.dt_rank
    with t.at("mamba", "ssm"):
        both = linear(t, x, 2 * inner, "in_proj", bias=kind.bias)
        u, z = op.split(t, both, (B, n, inner), (B, n, inner))
        u = convolution(t, u, kind.d_conv, bias=kind.conv_bias)
        selected = linear(t, u, rank + 2 * state, "x_proj", bias=False)
        dt, b, c = op.split(t, selected, (B, n, rank), (B, n, state), (B, n, state))
        if kind.norms:
            dt, b, c = (norm(t, RMS, part, f"{name}_layernorm") for part, name in ((dt, "dt"), (b, "b"), (c, "c")))
        dt = linear(t, dt, inner, "dt_proj", bias=True)
        a = t.weight("A_log", (inner, state), "decay: inner · state")
        skip = t.weight("D", (inner,), "skip: inner")
        y = scan(t, "selective_scan", [u, dt, a, b, c, skip, z], (B, n, inner))
        return linear(t, y, d, "out_proj", bias=kind.bias)


def mamba2(t: Tape, kind: records.Mamba2, x: Tensor) -> Tensor:
    """Mamba-2: in (z, x, B, C, dt), convolution of x, B and C, state-space dual scan, gated norm, out."""
    B, n, d = x.shape
    inner, grouped = kind.d_inner, kind.n_groups * kind.d_state
    with t.at("mamba", "ssm"):
        both = linear(t, x, 2 * inner + 2 * grouped + kind.n_heads, "in_proj", bias=kind.bias)
        z, xbc, dt = op.split(t, both, (B, n, inner), (B, n, inner + 2 * grouped), (B, n, kind.n_heads))
        xbc = convolution(t, xbc, kind.d_conv, bias=kind.conv_bias)
        a, skip, shift = (t.weight(name, (kind.n_heads,), f"{name}: heads") for name in ("A_log", "D", "dt_bias"))
        y = scan(t, "chunk_scan", [xbc, dt, a, skip, shift], (B, n, inner))
        y = op.multiply(t, y, op.pointwise(t, "silu", z))
        y = norm(t, RMS, y, "norm") if kind.gated_norm else y
        return linear(t, y, d, "out_proj", bias=kind.bias)


def gated_delta_net(t: Tape, kind: records.GatedDeltaNet, x: Tensor) -> Tensor:
    """Gated DeltaNet: q, k, v and z from one projection, b and a from another, convolution, delta rule, gated norm, out."""
    B, n, d = x.shape
    keys, values = kind.n_key_heads * kind.key_dim, kind.n_value_heads * kind.value_dim
    with t.at("linear_attn", "ssm"):
        qkvz = linear(t, x, 2 * keys + 2 * values, "in_proj_qkvz", bias=False)
        rates = linear(t, x, 2 * kind.n_value_heads, "in_proj_ba", bias=False)
        qkv, z = op.split(t, qkvz, (B, n, 2 * keys + values), (B, n, kind.n_value_heads, kind.value_dim))
        qkv = convolution(t, qkv, kind.d_conv, bias=False)
        shift, a = (t.weight(name, (kind.n_value_heads,), f"{name}: value heads") for name in ("dt_bias", "A_log"))
        y = scan(t, "chunk_gated_delta_rule", [qkv, rates, shift, a], (B, n, kind.n_value_heads, kind.value_dim))
        y = op.multiply(t, norm(t, RMS, y, "norm"), op.pointwise(t, "silu", z))
        return linear(t, y.view(B, n, values), d, "out_proj", bias=False)


def kimi_delta_attention(t: Tape, kind: records.KimiDeltaAttention, x: Tensor) -> Tensor:
    """KDA: q, k, v, convolution, low-rank forget and output gates, delta rule, gated norm, out."""
    B, n, d = x.shape
    H, h = kind.n_heads, kind.head_dim
    with t.at("self_attn", "ssm"):
        qkv = op.cat(t, *(linear(t, x, H * h, name, bias=False) for name in ("q_proj", "k_proj", "v_proj")))
        qkv = convolution(t, qkv, kind.d_conv, bias=False)
        with t.at("forget_gate"):
            decay = linear(t, linear(t, x, h, "f_a_proj", bias=False), H * h, "f_b_proj", bias=False)
            shift = t.weight("dt_bias", (H * h,), "dt_bias: heads · head_dim")
            a = t.weight("A_log", (H,), "A_log: heads")
        beta = linear(t, x, H, "b_proj", bias=False)
        gate = linear(t, linear(t, x, h, "g_a_proj", bias=False), H * h, "g_b_proj", bias=False)
        y = scan(t, "chunk_kda", [qkv, decay, beta, shift, a], (B, n, H, h))
        y = op.multiply(t, norm(t, RMS, y, "o_norm"), sigmoid(t, gate.view(B, n, H, h)))
        return linear(t, y.view(B, n, H * h), d, "o_proj", bias=False)


def lightning_attention(t: Tape, kind: records.LightningAttention, x: Tensor) -> Tensor:
    """Lightning attention: q, k and v in one projection, linear attention, norm, sigmoid output gate, out."""
    B, n, d = x.shape
    width = kind.n_heads * kind.head_dim
    with t.at("self_attn", "ssm"):
        qkv = op.pointwise(t, "silu", linear(t, x, 3 * width, "qkv_proj", bias=False))
        y = norm(t, RMS, scan(t, "lightning_attention", [qkv], (B, n, width)), "norm")
        gate = sigmoid(t, linear(t, x, width, "output_gate", bias=False))
        return linear(t, op.multiply(t, gate, y), d, "out_proj", bias=False)


def rg_lru(t: Tape, kind: records.RgLru, x: Tensor) -> Tensor:
    """Griffin's recurrent block: a GELU branch, and a branch of convolution and gated linear recurrence with block-diagonal gates."""
    B, n, d = x.shape
    width, block = kind.width, kind.width // kind.n_blocks
    with t.at("temporal_block", "ssm"):
        y = op.pointwise(t, "gelu_tanh", linear(t, x, width, "linear_y", bias=True))
        u = convolution(t, linear(t, x, width, "linear_x", bias=True), kind.d_conv, bias=True, activated=False)
        with t.at("rg_lru"):
            decay = t.weight("recurrent_param", (width,), "decay: width")
            gates = [sigmoid(t, block_diagonal(t, u, kind.n_blocks, block, name)) for name in ("input_gate", "recurrent_gate")]
            u = scan(t, "rg_lru", [u, *gates, decay], (B, n, width))
        return linear(t, op.multiply(t, u, y), d, "linear_out", bias=True)


def block_diagonal(t: Tape, x: Tensor, blocks: Size, width: Size, name: str) -> Tensor:
    """Multiply each of ``blocks`` slices of x by its own square matrix, and add a bias."""
    w = t.weight(f"{name}_weight", (blocks, width, width), "blocks · width · width")
    b = t.weight(f"{name}_bias", (blocks, width), "bias: blocks · width")
    return op.block_linear(t, x, w, b)


def rwkv(t: Tape, kind: records.Rwkv, x: Tensor) -> Tensor:
    """RWKV-4's time mixing: three interpolations with the previous token, receptance, key and value, the recurrence, out."""
    B, n, d = x.shape
    with t.at("attention", "ssm"):
        decay, first = (t.weight(name, (kind.width,), f"{name}: width") for name in ("time_decay", "time_first"))
        names = ("key", "value", "receptance")
        key, value, receptance = [linear(t, time_mix(t, x, name), kind.width, name, bias=False) for name in names]
        y = scan(t, "rwkv_linear_attention", [key, value, decay, first], (B, n, kind.width))
        return linear(t, op.multiply(t, sigmoid(t, receptance), y), d, "output", bias=False)


def short_convolution(t: Tape, kind: records.ShortConvolution, x: Tensor) -> Tensor:
    """LFM2's mixer: B, C and u from one projection, C · convolution(B · u), out."""
    B, n, d = x.shape
    with t.at("conv", "ssm"):
        all_three = linear(t, x, 3 * kind.width, "in_proj", bias=kind.bias)
        b, c, u = op.split(t, all_three, *([(B, n, kind.width)] * 3))
        u = convolution(t, op.multiply(t, b, u), kind.d_conv, bias=kind.bias, activated=False)
        return linear(t, op.multiply(t, c, u), d, "out_proj", bias=kind.bias)


def mlstm(t: Tape, kind: records.Mlstm, x: Tensor) -> Tensor:
    """mLSTM: q, k, v, input and forget gates per head, matrix memory, norm over heads, sigmoid output gate, out."""
    B, n, d = x.shape
    with t.at("mlstm_layer", "ssm"):
        q, k = (linear(t, x, kind.qk_dim, name, bias=False) for name in ("q", "k"))
        v = linear(t, x, kind.v_dim, "v", bias=False)
        gates = [linear(t, x, kind.n_heads, name, bias=True) for name in ("igate_preact", "fgate_preact")]
        y = norm(t, RMS, scan(t, "mlstm_chunkwise", [q, k, v, *gates], (B, n, kind.v_dim)), "multihead_norm")
        out = sigmoid(t, linear(t, x, kind.v_dim, "ogate_preact", bias=False))
        return linear(t, op.multiply(t, out, y), d, "out_proj", bias=False)
