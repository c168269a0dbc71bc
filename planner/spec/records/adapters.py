"""What a fine-tuning trains: adapters beside frozen weights, and the weights that they are added to."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

from planner.spec.key import key, record

AdapterType = Literal["lora", "rslora", "dora", "ia3", "prompt", "prefix"]
AdapterDtype = Literal["fp32", "base"]
BaseDtype = Literal["fp32", "bf16", "fp16"]
PackedFormat = Literal["none", "nf4", "fp4"]
ComputeDtype = Literal["bf16", "fp16", "fp32"]

# A table, in which a key takes a line or two.
# fmt: off

@record
class Adapters:
    """Adapters, as the package peft runs them: matrices A [rank, in] and B [out, rank] beside linears, a scale per channel, or a prompt."""

    rank: int = key("Width of an adapter.", "channels", default=8, only="adapters.type: lora or rslora or dora", example=16,
        aliases="r lora_r lora_rank")
    type: AdapterType = key("lora; rslora, which scales by another factor and has the same sizes; dora, which also trains the norms of "
        "the sums' rows; ia3, which trains a scale per output; prompt, which trains embeddings of tokens before each sequence; or prefix, "
        "which trains keys and values before those of each layer.",
        default="lora", aliases="peft_type")
    virtual_tokens: int = key("Tokens of a learned prompt or prefix.", "tokens", default=20, only="adapters.type: prompt or prefix",
        example=20, aliases="num_virtual_tokens")
    targets: tuple[str, ...] = key("Linears with an adapter, by short or full names, such as q or q_proj; all-linear: all of "
        "the layers; embedding: the token embedding. q=8 has a rank of its own.", default=("all-linear",), example=["q", "v"],
        aliases="target_modules lora_target_modules lora_attn_modules")
    feedforward: tuple[str, ...] = key("Targets whose inputs are scaled instead of their outputs, as peft's feedforward_modules.",
        default=("down",), only="adapters.type: ia3", quiet=True, aliases="feedforward_modules", example=["down"])
    layers: tuple[str, ...] = key("Layers with adapters: numbers and ranges such as 0-15.", default=(), derived="all",
        aliases="layers_to_transform", example=["16-31"])
    dropout: Fraction = key("Dropout probability of the adapters' inputs.", default=Fraction(0), least=0, below=1, example=0.05,
        aliases="lora_dropout")
    dtype: AdapterDtype = key("Data type of the adapters: fp32, as peft makes them beside 16-bit weights, or that of the weights (base).",
        default="fp32", aliases="autocast_adapter_dtype")


@record
class Base:
    """How the frozen weights are stored, if not as the precision says."""

    dtype: BaseDtype | None = key("Data type of weights that are not packed.", default=None, derived="that of the precision",
        values={"bf16": "bfloat16 torch.bfloat16", "fp16": "float16", "fp32": "float32"})
    format: PackedFormat = key("Linears of layers in 4 bits per element, as bitsandbytes packs them; none: in the data type.",
        default="none", aliases="bnb_4bit_quant_type quant_type quantization load_in_4bit")
    double_quant: bool = key("The scales are quantized too.", default=False, only="base.format: nf4 or fp4",
        aliases="bnb_4bit_use_double_quant use_double_quant double_quantization")
    compute_dtype: ComputeDtype = key("Data type in which packed weights multiply.", default="bf16", only="base.format: nf4 or fp4",
        quiet=True, aliases="bnb_4bit_compute_dtype")
    prepare: bool = key("All other 16-bit weights are cast to fp32, as peft's prepare_model_for_kbit_training does.", default=False,
        only="base.format: nf4 or fp4", aliases="prepare_model_for_kbit_training")
