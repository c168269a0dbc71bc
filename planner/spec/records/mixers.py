"""Mixers that are not attention: state spaces, linear attention, recurrences and convolutions."""

from __future__ import annotations

from typing import TypeAlias

from planner.spec.key import key, record
from planner.spec.records.attention import LatentAttention

# A table, in which a key takes a line or two.
# fmt: off

@record
class Mamba:
    """Mamba-1 (Gu and Dao 2023, arXiv:2312.00752)."""

    d_inner: int = key("Inner width (unit: channels). Usually 2 * d_model.", title="Mamba d_inner", example=8192,
        aliases="mamba_d_inner ssm_d_inner")
    d_state: int = key("State of each channel (unit: values).", title="Mamba d_state", usual=16,
        aliases="mamba_d_state state_size ssm_state_size")
    d_conv: int = key("Width of the convolution (unit: tokens).", title="Mamba d_conv", usual=4,
        aliases="mamba_d_conv conv_kernel ssm_conv_kernel")
    dt_rank: int = key("Rank of the step sizes (unit: channels). Default: d_model / 16, rounded up.", title="Mamba dt_rank",
        derived="d_model / 16, rounded up", example=256, aliases="mamba_dt_rank time_step_rank")
    conv_bias: bool = key("The convolution adds a bias (true or false, no unit).", title="Mamba convolution bias", default=True)
    bias: bool = key("The first and the last projection add a bias (true or false, no unit).", title="Mamba biases", default=False)
    norms: bool = key("Norms on the step sizes and on B and C, as in Jamba (true or false, no unit).", title="Mamba norms", default=False)


@record
class Mamba2:
    """Mamba-2 (Dao and Gu 2024, arXiv:2405.21060)."""

    d_inner: int = key("Inner width (unit: channels), a multiple of n_heads. Usually 2 * d_model.", title="Mamba-2 d_inner", example=8192,
        aliases="mamba_d_ssm")
    d_state: int = key("State of each channel (unit: values).", title="Mamba-2 d_state", example=128)
    n_heads: int = key("Heads of the state space (unit: heads).", title="Mamba-2 heads", example=128,
        aliases="mamba_n_heads mamba_num_heads")
    n_groups: int = key("Groups of heads that share B and C (unit: groups); divides n_heads.", title="Mamba-2 groups", example=8,
        aliases="mamba_n_groups")
    d_conv: int = key("Width of the convolution (unit: tokens).", title="Mamba-2 d_conv", usual=4)
    conv_bias: bool = key("The convolution adds a bias (true or false, no unit).", title="Mamba-2 convolution bias", default=True)
    bias: bool = key("The first and the last projection add a bias (true or false, no unit).", title="Mamba-2 biases", default=False)
    gated_norm: bool = key("A norm of d_inner before the last projection (true or false, no unit).", title="Mamba-2 gated norm",
        default=True)


@record
class GatedDeltaNet:
    """Gated DeltaNet (Yang et al. 2024, arXiv:2412.06464) as in Qwen3-Next."""

    n_key_heads: int = key("Query and key heads (unit: heads); divides n_value_heads.", title="DeltaNet key heads", example=16,
        aliases="linear_num_key_heads")
    n_value_heads: int = key("Value heads (unit: heads).", title="DeltaNet value heads", example=32, aliases="linear_num_value_heads")
    key_dim: int = key("Width of one query or key head (unit: channels).", title="DeltaNet key_dim", example=128,
        aliases="linear_key_head_dim")
    value_dim: int = key("Width of one value head (unit: channels).", title="DeltaNet value_dim", example=128,
        aliases="linear_value_head_dim")
    d_conv: int = key("Width of the convolution (unit: tokens).", title="DeltaNet d_conv", usual=4, aliases="linear_conv_kernel_dim")


@record
class KimiDeltaAttention:
    """Kimi Delta Attention (Kimi Team 2025, arXiv:2510.26692)."""

    n_heads: int = key("Heads (unit: heads).", title="KDA heads", example=32)
    head_dim: int = key("Width of one head (unit: channels).", title="KDA head_dim", example=128)
    d_conv: int = key("Width of the convolutions (unit: tokens).", title="KDA d_conv", usual=4)


@record
class LightningAttention:
    """Lightning attention with an output gate (MiniMax 2025, arXiv:2501.08313)."""

    n_heads: int = key("Heads (unit: heads).", title="Lightning heads", example=64)
    head_dim: int = key("Width of one head (unit: channels).", title="Lightning head_dim", example=96)


@record
class RgLru:
    """The recurrent block of Griffin (De et al. 2024, arXiv:2402.19427): two branches, a convolution and a gated linear recurrence."""

    width: int = key("Width of the recurrence (unit: channels), a multiple of n_blocks.", title="RG-LRU width", example=2560,
        aliases="lru_width")
    n_blocks: int = key("Blocks of the block-diagonal gates (unit: blocks).", title="RG-LRU blocks", example=10)
    d_conv: int = key("Width of the convolution (unit: tokens).", title="RG-LRU d_conv", usual=4)


@record
class Rwkv:
    """The time mixing of RWKV-4 (Peng et al. 2023, arXiv:2305.13048)."""

    width: int = key("Width of keys, values and receptances (unit: channels).", title="RWKV width", example=4096)


@record
class ShortConvolution:
    """The gated short convolution of LFM2."""

    width: int = key("Channels that are convolved (unit: channels). Default: d_model.", title="Short convolution width", derived="d_model",
        example=2048)
    d_conv: int = key("Width of the convolution (unit: tokens).", title="Short convolution d_conv", usual=3, aliases="conv_l_cache")
    bias: bool = key("Convolution and projections add a bias (true or false, no unit).", title="Short convolution biases", default=False)


@record
class Mlstm:
    """The mLSTM layer of xLSTM-7B (Beck et al. 2025, arXiv:2503.13427)."""

    n_heads: int = key("Heads (unit: heads).", title="mLSTM heads", example=8)
    qk_dim: int = key("Width of queries or keys, all heads together (unit: channels), a multiple of n_heads.", title="mLSTM qk_dim",
        example=2048)
    v_dim: int = key("Width of values, all heads together (unit: channels), a multiple of n_heads.", title="mLSTM v_dim", example=4096)


Mixer: TypeAlias = (
    LatentAttention | Mamba | Mamba2 | GatedDeltaNet | KimiDeltaAttention | LightningAttention | RgLru | Rwkv | ShortConvolution | Mlstm
)
