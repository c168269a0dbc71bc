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

    d_inner: int = key("Inner width. Usually 2 * d_model.", "channels", example=8192, aliases="mamba_d_inner ssm_d_inner")
    d_state: int = key("State size per channel.", "values", usual=16, aliases="mamba_d_state state_size ssm_state_size")
    d_conv: int = key("Kernel size of the convolution.", "tokens", usual=4, aliases="mamba_d_conv conv_kernel ssm_conv_kernel")
    dt_rank: int = key("Rank of the step sizes.", "channels", derived="d_model / 16, rounded up", example=256,
        aliases="mamba_dt_rank time_step_rank")
    conv_bias: bool = key("Bias of the convolution.", default=True)
    bias: bool = key("Bias of the input and output projections.", default=False)
    norms: bool = key("Norms of the step sizes, B and C, as in Jamba.", default=False)


@record
class Mamba2:
    """Mamba-2 (Dao and Gu 2024, arXiv:2405.21060)."""

    d_inner: int = key("Inner width. Usually 2 * d_model.", "channels", example=8192, aliases="mamba_d_ssm")
    d_state: int = key("State size per channel.", "values", example=128)
    n_heads: int = key("Number of heads.", "heads", divides="d_inner", example=128, aliases="mamba_n_heads mamba_num_heads")
    n_groups: int = key("Number of groups of heads that share B and C.", "groups", divides="n_heads", example=8, aliases="mamba_n_groups")
    d_conv: int = key("Kernel size of the convolution.", "tokens", usual=4)
    conv_bias: bool = key("Bias of the convolution.", default=True)
    bias: bool = key("Bias of the input and output projections.", default=False)
    gated_norm: bool = key("Gated norm of d_inner before the output projection.", default=True)
    chunk: int = key("Tokens per chunk of the scan.", "tokens", default=256, quiet=True, aliases="mamba_chunk_size")


@record
class GatedDeltaNet:
    """Gated DeltaNet (Yang et al. 2024, arXiv:2412.06464) as in Qwen3-Next."""

    n_key_heads: int = key("Number of query and key heads.", "heads", divides="n_value_heads", example=16, aliases="linear_num_key_heads")
    n_value_heads: int = key("Number of value heads.", "heads", example=32, aliases="linear_num_value_heads")
    key_dim: int = key("Width of one query or key head.", "channels", example=128, aliases="linear_key_head_dim")
    value_dim: int = key("Width of one value head.", "channels", example=128, aliases="linear_value_head_dim")
    d_conv: int = key("Kernel size of the convolution.", "tokens", usual=4, aliases="linear_conv_kernel_dim")


@record
class KimiDeltaAttention:
    """Kimi Delta Attention (Kimi Team 2025, arXiv:2510.26692)."""

    n_heads: int = key("Number of heads.", "heads", example=32)
    head_dim: int = key("Width of one head.", "channels", example=128)
    d_conv: int = key("Kernel size of the convolutions.", "tokens", usual=4)


@record
class LightningAttention:
    """Lightning attention with an output gate, as in MiniMax-01 (MiniMax 2025, arXiv:2501.08313)."""

    n_heads: int = key("Number of heads.", "heads", example=64)
    head_dim: int = key("Width of one head.", "channels", example=96)
    block: int = key("Tokens per block.", "tokens", default=256, quiet=True)


@record
class RgLru:
    """Recurrent block of Griffin (De et al. 2024, arXiv:2402.19427): two branches, a convolution and a gated linear recurrence."""

    width: int = key("Width of the recurrence.", "channels", example=2560, aliases="lru_width")
    n_blocks: int = key("Number of blocks of the block-diagonal gates.", "blocks", divides="width", example=10)
    d_conv: int = key("Kernel size of the convolution.", "tokens", usual=4)


@record
class Rwkv:
    """Time mixing of RWKV-4 (Peng et al. 2023, arXiv:2305.13048); its channel mixing is feed_forward.type: rwkv."""

    width: int = key("Width of keys, values and receptances.", "channels", example=4096)


@record
class ShortConvolution:
    """Gated short convolution of LFM2."""

    width: int = key("Width of the convolved input.", "channels", derived="d_model", example=2048)
    d_conv: int = key("Kernel size of the convolution.", "tokens", usual=3, aliases="conv_l_cache")
    bias: bool = key("Bias of the convolution and the projections.", default=False)


@record
class Mlstm:
    """The mLSTM layer of xLSTM-7B (Beck et al. 2025, arXiv:2503.13427)."""

    n_heads: int = key("Number of heads.", "heads", divides="qk_dim v_dim", example=8)
    qk_dim: int = key("Width of queries or keys of all heads together.", "channels", example=2048)
    v_dim: int = key("Width of values of all heads together.", "channels", example=4096)


Mixer: TypeAlias = (
    LatentAttention | Mamba | Mamba2 | GatedDeltaNet | KimiDeltaAttention | LightningAttention | RgLru | Rwkv | ShortConvolution | Mlstm
)
