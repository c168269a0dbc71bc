"""How a model is trained."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar, Literal

from planner.spec.key import key, record

Precision = Literal["fp32", "bf16-autocast", "fp16-autocast", "bf16-master", "bf16"]
GradientDtype = Literal["fp32", "bf16"]
Optimizer = Literal["adamw", "adam", "sgd", "sgd-momentum", "adamw-8bit", "adafactor", "lion", "muon"]
Recompute = Literal["none", "selective", "full"]
AttentionKernel = Literal["auto", "flash", "efficient", "cudnn", "math"]
Device = Literal["a100", "h100", "cpu"]
Loss = Literal["default", "cross_entropy", "cross_entropy_shifted", "linear_cross_entropy", "linear_cross_entropy_chunked"]
Ema = Literal["none", "fp32", "bf16"]
OptimizerKernel = Literal["fused", "foreach", "for-loop"]
Implementation = Literal["pytorch", "pytorch-eager", "transformers", "transformers-eager", "megatron"]
MuonExperts = Literal["adamw", "each"]
FlopsConvention = Literal["matmul", "matmul-causal", "6nd", "6nd-kaplan", "palm", "hardware"]


# A table, in which a key takes a line or two.
# fmt: off

@record
class Training:
    """How a model is trained: one scenario."""

    batch_size: int = key("Batch size B (unit: sequences per device and forward pass).", title="B", usual=1, example=8,
        aliases="micro_batch_size per_device_train_batch_size train_batch_size device_batch_size batch bs")
    sequence_length: int = key("Sequence length n (unit: tokens). Default: context_length; with learned positions it cannot be longer.",
        title="n", derived="context_length; with learned positions it cannot be longer", example=1024,
        aliases="seq_len seq_length sequence_len max_length")
    tokens: int | None = key("Tokens of the whole training (unit: tokens). Or give steps.", title="Tokens", default=None,
        example=300000000000, aliases="train_tokens n_tokens num_tokens max_tokens total_tokens")
    steps: ClassVar[int] = key("Optimizer steps of the whole training (unit: steps): tokens = steps * B * n * gradient_accumulation.",
        title="Steps", example=100000, aliases="max_steps num_steps total_steps max_iters train_steps train_iters num_train_steps")
    gradient_accumulation: int = key("Forward and backward passes before one optimizer step (unit: passes per step).",
        title="Gradient accumulation", default=1, aliases="gradient_accumulation_steps grad_accum accumulate_grad_batches "
        "grad_accumulation")
    precision: Precision = key("fp32; 16-bit compute over fp32 weights (bf16-autocast, fp16-autocast); bf16 weights with an fp32 master "
        "copy (bf16-master); everything bf16 (bf16). A name, no unit.", title="Precision", default="bf16-autocast",
        aliases="dtype torch_dtype mixed_precision amp", values={
        "bf16-autocast bf16-master": "bf16-mixed bfloat16-mixed bf16_mixed mixed amp mixed-bf16 bf16-amp amp-bf16 amp_bf16",
        "bf16": "bfloat16 bf16-true bfloat16-true torch.bfloat16",
        "fp16-autocast": "fp16 float16 fp16-mixed 16-mixed half amp-fp16 torch.float16 16 16-true fp16-true",
        "fp32": "float32 float fp32-true 32-true 32 single torch.float32 tf32"})
    gradient_dtype: GradientDtype = key("Data type of the gradients under bf16-master (a name, no unit). Default there: fp32; the other "
        "precisions fix it.", title="Gradient dtype", default="fp32", derived="fp32 under bf16-master; the other precisions fix it",
        aliases="grad_dtype gradient_precision", values={"bf16": "bfloat16 torch.bfloat16", "fp32": "float32 torch.float32 float"})
    optimizer: Optimizer = key("The optimizer, which decides the state kept per parameter (a name, no unit).", title="Optimizer",
        default="adamw", aliases="optim optimiser", values={"adamw": "adam-w adamw_torch adamw_torch_fused adamw-fused",
        "adamw-8bit": "adamw8bit adam8bit adam-8bit adamw_8bit adamw_bnb_8bit 8bit-adam",
        "sgd-momentum": "momentum sgd_momentum sgdm nesterov"})
    dropout: Fraction = key("Share of activations that dropout sets to zero, from 0 to below 1 (a ratio without unit). 0 keeps no masks.",
        title="Dropout", default=Fraction(0), least=0, below=1, example=0.1, aliases="resid_pdrop embd_pdrop attn_pdrop hidden_dropout "
        "attention_dropout")
    recompute: Recompute = key("What the backward pass computes anew instead of keeping it: nothing, the attention's inside, or every "
        "block. A name, no unit.", title="Recomputation", default="none", aliases="gradient_checkpointing activation_checkpointing "
        "checkpointing recompute_granularity recomputation", values={
        "full": "true yes on all block blocks checkpoint checkpointing activation gradient-checkpointing uniform", "none": "false no off"})
    implementation: Implementation = key("Whose kernels are modelled: plain modules with fused attention (pytorch) or with attention by "
        "matmul, softmax, matmul (pytorch-eager); the modules of Hugging Face transformers 5 with either (transformers, "
        "transformers-eager); or the fused stack of Korthikanti et al. 2022 (megatron). A name, no unit.", title="Implementation",
        default="pytorch", aliases="attn_implementation backend attention_implementation",
        values={"pytorch": "torch sdpa flash flash-attention flash_attention_2", "pytorch-eager": "eager math",
        "transformers": "hf huggingface hugging-face"})
    device: Device = key("Whose kernels run: those of a GPU of the class of an A100 or H100, or a CPU's (a name, no unit).", title="Device",
        default="a100", aliases="gpu accelerator hardware", values={"a100": "cuda gpu ampere", "h100": "hopper h200 h800"})
    attention_kernel: AttentionKernel = key("Fused attention only: the kernel that PyTorch picks on the device (auto), or a forced one. A "
        "name, no unit.", title="Attention kernel", default="auto", aliases="sdpa_backend sdp_backend attention_backend")
    loss: Loss = key("The implementation's own loss (default), cross entropy of the logits (cross_entropy), of logits and labels shifted "
        "against each other (cross_entropy_shifted), or of the last hidden states and the head in one function (linear_cross_entropy), "
        "which makes no whole logits where it goes chunk by chunk (linear_cross_entropy_chunked). A name, no unit.", title="Loss",
        default="default")
    keep_logits: bool = key("A variable holds the logits until the step ends (true or false, no unit).", title="Keep logits", default=False)
    kv_cache: bool = key("Transformers only: use_cache is on in training, which copies each layer's keys and values (true or false, no "
        "unit).", title="Cache of keys and values", default=False, aliases="use_cache")
    optimizer_kernel: OptimizerKernel = key("How adam or adamw updates: all in one kernel (fused), in lists of tensors (foreach), or "
        "tensor by tensor (for-loop). A name, no unit.", title="Optimizer kernel", default="fused", aliases="fused foreach fused_optimizer")
    muon_experts: MuonExperts = key("Which optimizer updates the matrices of routed experts where the optimizer is muon: adamw, since they "
        "are stored as one stack and torch.optim.Muon takes matrices only; or Muon, each expert's matrix on its own (each), as Moonlight "
        "and Kimi K2 do. A name, no unit.", title="Muon and routed experts", default="adamw")
    ema: Ema = key("Dtype of a moving average of the weights that is held beside them; none: there is none. A name, no unit.",
        title="Moving average", default="none")
    reserve_bytes: int = key("Memory added to the peak for what no figure counts: the CUDA context, workspaces of kernels, fragmentation "
        "(unit: bytes).", title="Reserve", default=0, least=0, example=1073741824)
    round_allocations: bool = key("Whether live bytes and the peak count each tensor rounded up to 512 bytes, as the CUDA allocator does "
        "(true or false, no unit).", title="Round allocations", default=False)
    flops_convention: FlopsConvention = key("How FLOPs are counted in the report's main column; a multiply-add is 2 FLOPs. matmul: all "
        "matrix products, the full attention square; matmul-causal: its causal half; 6nd: 6 * N * D, N being the active parameters; "
        "6nd-kaplan: the same without embeddings and the head; palm: 6N + 12 * L * H * Q * T; "
        "hardware: with recomputation. A name, no unit.", title="FLOPs convention", default="matmul")
