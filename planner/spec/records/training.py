"""How a model is trained."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar, Literal

from planner.spec.key import group, key, record
from planner.spec.records.adapters import Adapters, Base
from planner.spec.records.layout import Layout

Precision = Literal["fp32", "bf16-autocast", "fp16-autocast", "bf16-master", "fp16-master", "bf16"]
GradientDtype = Literal["fp32", "bf16", "fp16"]
Optimizer = Literal[
    "adamw", "adam", "sgd", "sgd-momentum", "adamw-8bit", "adafactor", "lion", "muon", "adamw-32bit", "lion-8bit", "lion-32bit", "ademamix",
    "ademamix-8bit", "adamw-8bit-torchao", "adamw-4bit", "adamw-fp8", "soap",
]  # fmt: skip
Recompute = Literal["none", "selective", "full"]
AttentionKernel = Literal["auto", "flash", "efficient", "cudnn", "math"]
MixerKernels = Literal["plain", "fused"]
ExpertsKernel = Literal["auto", "grouped", "batched"]
Device = Literal["a100", "h100", "cpu"]
Loss = Literal["default", "cross_entropy", "cross_entropy_shifted", "linear_cross_entropy", "linear_cross_entropy_chunked",
    "cross_entropy_float32"]  # fmt: skip
CrossEntropyFusion = Literal["none", "te", "te-2.11", "native"]
Ema = Literal["none", "fp32", "bf16"]
OptimizerKernel = Literal["fused", "foreach", "for-loop"]
Implementation = Literal["pytorch", "pytorch-eager", "transformers", "transformers-eager", "megatron", "megatron-core", "torchtitan"]
MuonExperts = Literal["adamw", "each"]
FlopsConvention = Literal["matmul", "matmul-causal", "6nd", "6nd-kaplan", "palm", "hardware"]
FUSED = ("pytorch", "transformers")  # implementations whose attention is one kernel
CHOOSES_KERNEL = (*FUSED, "megatron-core")
_FLOAT8 = "pytorch or pytorch-eager or transformers or transformers-eager or megatron-core or torchtitan"
_CORE = "implementation: megatron-core"
OF_LIGER = "liger-kernel's for the class"
PAGEABLE = "adamw-8bit or adamw-32bit or lion-8bit or lion-32bit or ademamix or ademamix-8bit"


# A table, in which a key takes a line or two.
# fmt: off

@record
class RecomputeModules:
    """Parts of a layer that selective recomputation recomputes under megatron-core, as its recompute_modules."""

    core_attn: bool = key("The inside of attention.", default=True, quiet=True)
    mlp: bool = key("Dense feed-forwards with their norm.", default=False, only=_CORE, quiet=True)
    moe: bool = key("Experts with their router.", default=False, only=_CORE, quiet=True)
    shared_experts: bool = key("Shared experts, unless moe recomputes them.", default=False, only=_CORE, quiet=True)
    moe_act: bool = key("The activation of routed experts, unless moe recomputes it.", default=False, only=_CORE, quiet=True)


@record
class Liger:
    """Switches of liger-kernel, the arguments of its functions apply_liger_kernel_to_..."""

    rope: bool | None = key("Rotation of queries and keys in one kernel, in place.", default=None, derived=OF_LIGER)
    rms_norm: bool | None = key("RMSNorm in one kernel.", default=None, derived=OF_LIGER)
    swiglu: bool | None = key("Gated feed-forward with SiLU in one kernel, and routed experts in one function.", default=None,
        derived=OF_LIGER)
    geglu: bool | None = key("Gated feed-forward with GELU in one kernel.", default=None, derived=OF_LIGER)
    relu_squared: bool | None = key("Squared ReLU in one kernel.", default=None, derived=OF_LIGER)
    cross_entropy: bool | None = key("Cross entropy whose gradients replace the logits in the forward pass.", default=None,
        derived=OF_LIGER)
    fused_linear_cross_entropy: bool | None = key("LM head and cross entropy in chunks of tokens, without the full logits. The forward "
        "pass computes the gradients of both.", default=None, derived=OF_LIGER)


@record
class Training:
    """How a model is trained: one scenario."""

    batch_size: int = key("Micro-batch size B per device and forward pass.", "sequences per device and forward pass", usual=1, example=8,
        aliases="micro_batch_size per_device_train_batch_size train_batch_size device_batch_size batch bs")
    sequence_length: int = key("Sequence length n.", "tokens", derived="context_length; with learned positions it cannot be longer",
        example=1024, aliases="seq_len seq_length sequence_len max_length")
    encoder_length: int | None = key("Length of the sequences that the encoder reads.", "tokens", default=None,
        derived="sequence_length with model.encoder; half the frames if it reads audio", quiet=True, example=512,
        aliases="source_length max_source_length encoder_sequence_length")
    images: int = key("Images of a sequence, whose patches are some of its tokens, with model.vision.", "images per sequence", default=0,
        derived="1 with model.vision", quiet=True, example=2)
    gradient_accumulation: int = key("Forward and backward passes per optimizer step.", "passes per step", default=1,
        aliases="gradient_accumulation_steps grad_accum accumulate_grad_batches grad_accumulation")
    global_batch_size: ClassVar[int] = key("Sequences of all devices per optimizer step; or give gradient_accumulation, which is "
        "global_batch_size / (B * data-parallel devices).", "sequences per step", example=1024, aliases="train_global_batch_size gbs")
    tokens: int | None = key("Total training tokens; or give steps.", "tokens", default=None, example=300000000000,
        aliases="train_tokens n_tokens num_tokens max_tokens total_tokens")
    steps: ClassVar[int] = key("Total optimizer steps; tokens = steps * B * n * gradient_accumulation * data-parallel devices.", "steps",
        example=100000, aliases="max_steps num_steps total_steps max_iters train_steps train_iters num_train_steps")
    precision: Precision = key("Data types of weights and computation. fp32: everything in fp32; bf16-autocast, fp16-autocast: 16-bit "
        "computation, fp32 weights; bf16-master, fp16-master: 16-bit weights with an fp32 master copy; bf16: everything in bf16.",
        default="bf16-autocast", aliases="dtype torch_dtype mixed_precision amp", values={
        "bf16-autocast bf16-master": "bf16-mixed bfloat16-mixed bf16_mixed mixed amp mixed-bf16 bf16-amp amp-bf16 amp_bf16",
        "bf16": "bfloat16 bf16-true bfloat16-true torch.bfloat16",
        "fp16-autocast": "fp16 float16 fp16-mixed 16-mixed half amp-fp16 torch.float16 16 16-true fp16-true",
        "fp32": "float32 float fp32-true 32-true 32 single torch.float32 tf32"})
    gradient_dtype: GradientDtype = key("Data type of the gradients under precision bf16-master (fp32 or bf16) or "
        "fp16-master (fp16 or fp32); other precisions determine it.",
        default="fp32", derived="fp32, under fp16-master fp16", aliases="grad_dtype gradient_precision",
        values={"bf16": "bfloat16 torch.bfloat16", "fp16": "float16 torch.float16 half", "fp32": "float32 torch.float32 float"})
    float8: bool = key("Linears in layers multiply in float8 if their sizes are multiples of 16. torchao (pytorch, transformers, "
        "torchtitan) saves their inputs in 16 bits; Transformer Engine (megatron-core) saves them in 8 bits, and caches two 8-bit copies "
        "of each weight.",
        default=False, only=f"device: h100; precision: bf16-autocast or bf16-master or bf16; implementation: {_FLOAT8}", quiet=True,
        aliases="fp8 fp8_linear float8_linear")
    train: tuple[str, ...] = key("What trains: everything; adapters; or parts, which are components (embedding, attention, norm, head, "
        "...), final_norm, bias, linears such as q, and layers such as layers.30-31; of a model with vision also vision, projector and "
        "text. All other weights are frozen.",
        default=("everything",), example=["layers.30-31", "final_norm", "head"], quiet=True, aliases="trainable trainable_params unfreeze")
    adapters: Adapters | None = group(kind=Adapters, form="none", default=None)
    also_train: tuple[str, ...] = key("Parts that train as whole copies beside adapters, as peft's modules_to_save: embedding, head.",
        default=(), example=["embedding", "head"], quiet=True, aliases="modules_to_save")
    base: Base | None = group(kind=Base, form="none", default=None)
    input_gradients: bool = key("The embedded tokens require a gradient, as enable_input_require_grads makes them.", default=False,
        derived="true with adapters or frozen weights, and recompute: full, under implementation transformers", quiet=True,
        aliases="enable_input_require_grads")
    optimizer: Optimizer = key("Optimizer, which determines the state per parameter. Names with 8bit or 32bit and ademamix are of "
        "bitsandbytes, those with torchao, 4bit or fp8 of torchao, soap is pytorch_optimizer's; adafactor is PyTorch's, under "
        "transformers that of its Trainer.",
        default="adamw", aliases="optim optimiser",
        values={"adamw": "adam-w adamw_torch adamw_torch_fused adamw-fused",
        "adamw-8bit": "adamw8bit adam8bit adam-8bit adamw_8bit adamw_bnb_8bit 8bit-adam",
        "sgd-momentum": "momentum sgd_momentum sgdm nesterov", "adamw-32bit": "adamw_bnb paged_adamw_32bit",
        "lion-8bit": "lion8bit lion_8bit", "lion-32bit": "lion_32bit", "ademamix-8bit": "ademamix_8bit",
        "adamw-8bit-torchao": "adamw_torch_8bit", "adamw-4bit": "adamw_torch_4bit adamw4bit"})
    muon_experts: MuonExperts = key("Optimizer of the routed experts: adamw, since torch.optim.Muon accepts only matrices, or "
        "Muon on each expert's matrices (each), as Moonlight and Kimi K2 do.", default="adamw", only="optimizer: muon", quiet=True)
    amsgrad: bool = key("Adam also stores the maximum of its second moment.", default=False, only="optimizer: adamw or adam", quiet=True)
    first_moment: bool = key("The Adafactor of transformers stores a first moment: its beta1 is set.", default=False,
        only="optimizer: adafactor; implementation: transformers or transformers-eager", quiet=True)
    paged: bool = key("The optimizer of bitsandbytes is paged: the state of tensors with at least 100,000 elements is in unified memory, "
        "which the driver moves between GPU and host. It is in the model states, but not in the peak.", default=False,
        only=f"optimizer: {PAGEABLE}", quiet=True, aliases="is_paged")
    dropout: Fraction = key("Dropout probability, from 0 to below 1; at 0 no masks are saved.", default=Fraction(0), least=0, below=1,
        example=0.1, aliases="resid_pdrop embd_pdrop attn_pdrop hidden_dropout attention_dropout")
    recompute: Recompute = key("Activation recomputation (checkpointing): none, only the inside of attention (selective), or every layer "
        "(full). Under implementation torchtitan, selective recomputes every layer, but saves the outputs of fused attention and of every "
        "other matrix product.", default="none",
        aliases="gradient_checkpointing activation_checkpointing checkpointing recompute_granularity recomputation",
        values={"full": "true yes on all block blocks checkpoint checkpointing activation gradient-checkpointing uniform",
        "none": "false no off"})
    recompute_every: int = key("Recompute only every n-th layer, as torchtitan's selective_ac_option.", "layers", default=1,
        only="recompute: full", quiet=True)
    reentrant: bool = key("Recomputation is reentrant: a whole layer is recomputed before it runs backward.", default=False,
        only="recompute: full; implementation: transformers or transformers-eager", quiet=True, aliases="use_reentrant")
    offload_activations: bool = key("Tensors of at least 1024 bytes that the model saves, without the LM head, are copied to the host "
        "until the backward pass reads them; the result has their bytes on the host.", default=False, only="recompute: full; "
        "implementation: pytorch or pytorch-eager or transformers or transformers-eager or torchtitan", quiet=True,
        aliases="activation_offloading enable_activation_offloading activations_offloading")
    recompute_modules: RecomputeModules = group(kind=RecomputeModules, default=RecomputeModules())
    padding: bool = key("Samples are padded to one length, so that the model gets a mask of the tokens. Fused attention then reads a mask "
        "[B, 1, n, n] instead of a flag, which rules out flash attention and repeats grouped keys and values.", default=False,
        only="implementation: transformers or transformers-eager", quiet=True, aliases="padded attention_mask")
    implementation: Implementation = key("Modeled implementation: PyTorch modules with fused attention (pytorch) or with matmul, softmax, "
        "matmul (pytorch-eager); the modules of Hugging Face transformers 5 with either (transformers, transformers-eager); the fused "
        "stack of Korthikanti et al. 2022 (megatron); Transformer Engine's modules in Megatron-Core 0.20 (megatron-core); or Llama 3's "
        "modules in torchtitan 0.2, not compiled (torchtitan).",
        default="pytorch", aliases="attn_implementation backend attention_implementation",
        values={"pytorch": "torch sdpa flash flash-attention flash_attention_2", "pytorch-eager": "eager math",
        "transformers": "hf huggingface hugging-face"})
    device: Device = key("Target device class: A100, H100 or CPU. With a cluster, that of cluster.device.", default="a100",
        aliases="gpu accelerator hardware", values={"a100": "cuda gpu ampere", "h100": "hopper h200 h800"})
    attention_kernel: AttentionKernel = key("Kernel of fused attention: the one PyTorch chooses on the device (auto), or a forced one.",
        only=f"implementation: {' or '.join(CHOOSES_KERNEL)}",
        default="auto", aliases="sdpa_backend sdp_backend attention_backend")
    gradient_accumulation_fusion: bool = key("Linears add their weight's gradient to the accumulated one in their kernel.", default=True,
        only=_CORE, quiet=True)
    cross_entropy_fusion: CrossEntropyFusion = key("Cross entropy in one kernel of Transformer Engine (cross_entropy_loss_fusion with "
        "cross_entropy_fusion_impl: te), which computes the gradient of the logits in the forward pass: in float32 (te, release 2.20), or "
        "in their place (te-2.11, up to 2.17); or in Megatron-Core's compiled function (native).", default="none",
        only=f"{_CORE}; loss: default", quiet=True)
    mask_in_data_loader: bool = key("The data loader makes an attention mask [B, 1, n, n], one byte per element, which attention does not "
        "need.", default=True, only=_CORE, quiet=True, aliases="create_attention_mask_in_dataloader")
    mixer_kernels: MixerKernels = key("Kernels of mixers other than attention. plain: PyTorch's operators, which transformers runs without "
        "further packages; fused: those of mamba_ssm, causal_conv1d and flash-linear-attention, which it runs where they are installed. "
        "Other implementations always run the latter.", default="plain", only="implementation: transformers or transformers-eager",
        quiet=True)
    experts_kernel: ExpertsKernel = key("How routed experts are computed. grouped: products of as many rows as each expert has; batched: "
        "one product of equally many rows of each, which are copied to a buffer before. auto is batched under layout.expert_parallel, "
        "otherwise grouped.", default="auto", only="implementation: pytorch or pytorch-eager", quiet=True)
    liger: Liger | None = group("Kernels of liger-kernel 0.8: true for the package's defaults for the model's class, or a mapping of its "
        "switches, in which an omitted switch has that default.", kind=Liger, form="boolean", default=None, derived="false",
        only="implementation: transformers or transformers-eager",
        aliases="use_liger_kernel enable_liger_kernel liger_kernel use_liger")
    loss: Loss = key("Loss function: the implementation's own (default); cross entropy of the logits (cross_entropy), cast to "
        "float32 (cross_entropy_float32), or of logits and "
        "labels shifted against each other (cross_entropy_shifted); or the head and cross entropy in one function (linear_cross_entropy), "
        "computed in chunks without the full logits (linear_cross_entropy_chunked).", default="default")
    keep_logits: bool = key("The training loop holds a reference to the logits until the step ends.", default=False,
        only="loss: default or cross_entropy or cross_entropy_shifted or cross_entropy_float32")
    use_cache: bool = key("The model's use_cache is on in training, which copies the keys and values of each layer.", default=False,
        only="implementation: transformers or transformers-eager",
        aliases="kv_cache")
    optimizer_kernel: OptimizerKernel = key("Implementation of the optimizer: one kernel (fused), lists of tensors (foreach), or tensor "
        "by tensor (for-loop).", default="fused", only="optimizer: adamw or adam", aliases="fused foreach fused_optimizer")
    optimizer_in_backward: bool = key("The backward pass updates each weight as soon as it has its gradient, and then frees the gradient, "
        "with an optimizer per weight, as torchtune does.", default=False, quiet=True, aliases="optimizer_in_bwd")
    ema: Ema = key("Data type of an EMA (moving average) copy of the weights, column average_bytes; none: no EMA.", default="none")
    reserve_bytes: int = key("Extra memory added to the peak, e.g. for the CUDA context, kernel workspaces and fragmentation.", "bytes",
        default=0, least=0, example=1073741824)
    round_allocations: bool = key("Round every allocation up to 512 bytes, as PyTorch's CUDA allocator does.", default=False)
    count_prediction: bool = key("Include the multi-token prediction (MTP) layers in the totals; they always have lines of their own.",
        default=False, quiet=True, aliases="count_mtp")
    flops_convention: FlopsConvention = key("How the main FLOPs columns count; a multiply-add is 2 FLOPs. matmul: all matrix products, "
        "with the full attention square; matmul-causal: with its causal half; 6nd: 6 * N * D, where N is the active parameters; "
        "6nd-kaplan: without embeddings and head in N; palm: 6N + 12 * L * H * Q * T; hardware: including recomputation.",
        default="matmul")
    layout: Layout | None = None  # how the model is divided among devices; None: one device has all of it

    @property
    def by_megatron(self) -> bool:
        """Whether Megatron-LM divides the model among devices, not PyTorch."""
        return self.implementation in ("megatron", "megatron-core")
