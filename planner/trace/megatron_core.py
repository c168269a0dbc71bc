"""The implementation ``megatron-core``: Megatron-Core's GPT model of Transformer Engine's modules, on one device.

Read from Megatron-LM core 0.20 (core/transformer: transformer_layer.py, attention.py, mlp.py; core/fusions; core/tensor_parallel:
cross_entropy.py, layers.py, random.py; pretrain_gpt.py) and Transformer Engine 2.20 (pytorch/attention: rope.py, dot_product_attention:
backends.py, utils.py, softmax.py). Tensors are [n, B, ..] there.

Fusions are on, as by default: norm and linear, bias and activation, bias, dropout and residual sum, rotary positions, softmax and mask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from planner.spec.precision import Dtype
from planner.spec.records import Activation
from planner.trace import kernels, pytorch
from planner.trace import primitives as op
from planner.trace.implementation import Scores
from planner.trace.megatron_context import attend
from planner.trace.megatron_experts import experts
from planner.trace.megatron_linear import enter, linear, norm
from planner.trace.megatron_parallel import leave
from planner.trace.model_class import ModelClass
from planner.trace.nodes import Operation, Saved, Sent
from planner.trace.pytorch import PYTORCH
from planner.trace.setup import is_one
from planner.trace.sizes import Size, choose, exceeds_one, product, structure
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor
from planner.trace.unsupported import UnsupportedError

WIDEST_HEAD = 256  # of both fused kernels; of cuDNN's before Hopper half of it
ALIGNMENT = 8  # elements of their heads
UNEQUAL = 128  # from this width on, cuDNN 9.11 and later have no backward pass on Hopper for values of another width than queries, but for
OF_DEEPSEEK = (192, 128)  # these of queries and values


def activation(t: Tape, name: Activation, x: Tensor) -> Tensor:
    """Apply the feed-forward's function in one kernel. Saves its input."""
    return pytorch.activation(t, name, x) if name == "relu" else op.pointwise(t, name, x)


def gated(t: Tape, name: Activation, gate: Tensor, up: Callable[[], Tensor]) -> Tensor:
    """Return activation(gate) · up in one kernel (SwiGLUFunction). Saves the output of the projection that has both."""
    other = up()
    both = t.take_back(op.split, gate)
    inputs = both.inputs if both else (gate, other)
    saved = [Saved(tensor, "gate and up") for tensor in inputs]
    return t.record(f"{name} gate", inputs, [t.tensor(gate.shape, gate.dtype)], saved, by=gated)[0]


def positions(t: Tape, n: Size) -> Tensor:
    """Return the position ids [B, n] of the batch, which the lookup of learned positions saves."""
    return of_batch(t, "position ids", (t.training.batch_size, n), "int64")


def mask(t: Tape, B: Size, n: Size, _window: Size | None) -> Tensor | None:
    """Return the Boolean mask [B, 1, n, n · cp] of the batch, which every layer gets, if the data loader makes it."""
    return of_batch(t, "attention mask", (B, 1, n, n * t.context), "bool") if t.training.mask_in_data_loader and any(t.ends) else None


def of_batch(t: Tape, name: str, shape: tuple[Size, ...], dtype: Dtype) -> Tensor:
    """Return a tensor of the batch, made once, which exists until the forward pass ends."""
    for node in t.nodes:
        if isinstance(node, Operation) and node.by is of_batch and node.name == name:
            return node.outputs[0]
    with t.at("", "inputs"):
        made = t.tensor(shape, dtype, needs_grad=False)
    made.storage.until_forward_ends = True
    return t.record(name, [], [made], by=of_batch)[0]


def rotary_tables(t: Tape, n: Size, rotary_dim: Size) -> tuple[Tensor, Tensor]:
    """Return the angles of n positions, twice. They are cached, as are the frequencies."""
    t.buffer("inv_freq", (rotary_dim // 2,), "float32")
    t.buffer("rotary_pos_emb", (n, rotary_dim), "float32")
    if t.ends[0]:
        of_batch(t, "position ids", (t.training.batch_size, n), "int64")
    table = op.constant(t, (n, rotary_dim), "float32")
    return table, table


def rotate(t: Tape, x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate x [B, heads, n, h] in one kernel (FusedRoPEFunc). Saves only the angles."""
    made = t.tensor(x.shape, x.dtype)
    return t.record("fused_rope", [x, tables[0]], [made], [Saved(tables[0], "angles")], by=rotate)[0]


def attention(t: Tape, q: Tensor, k: Tensor, v: Tensor, terms: Scores) -> Tensor:
    """Attend with the kernel that DotProductAttention selects: of cuDNN on H100, of flash-attn on A100, and unfused in float32.

    Transformer Engine copies queries, keys and values that are strided, unless they are one projection for cuDNN, and for flash-attn
    those of several sequences, whose output is copied, too.
    """
    pytorch.note_sinks(t, terms)
    if terms.softcap or (terms.bias and terms.bias.dtype != "bool"):
        raise UnsupportedError(
            "the attention of implementation megatron-core neither soft-caps scores nor adds ALiBi; choose implementation pytorch-eager"
        )
    q, k, v = (op.cast_lower_precision(t, x) for x in (q, k, v))
    q.by_head = k.by_head = v.by_head = False  # [n, B, heads, ..]
    name = kernel(t, q, v)
    one_projection = q.interleaved and k.interleaved and v.interleaved
    B = q.shape[0]
    given = q, k, v
    if not one_projection:
        q, k, v = (op.contiguous(t, x, 1 if strided(x) else None) for x in given)
    if name == "math":
        return unfused(t, q, k, v)
    if name == "cudnn":
        return on_devices(t, q, k, v, partial(cudnn, t))
    copied, width = 1 if one_projection else exceeds_one(B), v.shape[-1]
    packed = op.contiguous(t, q, copied), op.contiguous(t, k, copied), as_wide(t, op.contiguous(t, v, copied), q)
    made = on_devices(t, *packed, partial(flash, t, q.shape[-1] + width))
    op.keep_alive(t, *given, q, k, v)
    if packed[2].shape[-1] is width:
        return op.contiguous(t, made, exceeds_one(B))
    return op.contiguous(t, op.narrow(t, made, width), 1)


def on_devices(t: Tape, q: Tensor, k: Tensor, v: Tensor, kernel: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
    """Attend with a kernel, or with those of the devices that share each sequence."""
    return kernel(q, k, v) if choose(is_one, t.context) else attend(t, q, k, v, kernel)


def cudnn(t: Tape, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend with the kernel of cuDNN, with its logsumexp and state of random numbers."""
    statistics = [t.tensor((*q.shape[:3], 1), "float32", needs_grad=False), t.tensor((2,), "int64", needs_grad=False)]
    return kernels.fused_sdpa(t, "cudnn_attention", (q, k, v), None, statistics)


def flash(t: Tape, of_model: Size, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend with the kernel of flash-attn; ``of_model``: width of queries and values without padding."""
    statistics = [t.tensor(q.shape[:3], "float32", needs_grad=False), t.tensor((2,), "int64", needs_grad=False)]
    return kernels.fused_sdpa(t, "flash_attention", (q, k, v), None, statistics, of_model=of_model)


def strided(x: Tensor) -> bool:
    """Return whether x is a view of some channels of a wider tensor."""
    return x.interleaved or product(x.storage.shape) != product(x.shape)


def as_wide(t: Tape, v: Tensor, q: Tensor) -> Tensor:
    """Return values as wide as queries, padded with zeros if they are narrower, as flash-attn requires."""
    if structure(v.shape[-1]) == structure(q.shape[-1]):
        return v
    return t.record("pad", [v], [t.tensor((*v.shape[:-1], q.shape[-1]), v.dtype)], by=as_wide)[0]


def kernel(t: Tape, q: Tensor, v: Tensor) -> str:
    """Return the kernel (get_attention_backend): flash, cudnn or math. Transformer Engine requires a GPU."""
    if t.device == "cpu":
        raise UnsupportedError("implementation megatron-core requires a GPU; choose device a100 or h100")
    forced, width, values = t.training.attention_kernel, structure(q.shape[-1]), structure(v.shape[-1])
    if forced == "efficient":
        raise UnsupportedError("implementation megatron-core has no efficient attention kernel; choose flash, cudnn or math")
    fused = q.dtype != "float32" and max(width, values) <= WIDEST_HEAD and max(width, values) % ALIGNMENT == 0
    hopper = t.training.device == "h100"
    unequal = width != values and min(width, values) >= UNEQUAL and (width, values) != OF_DEEPSEEK
    by_cudnn = fused and not unequal and width % ALIGNMENT == values % ALIGNMENT == 0 and (hopper or max(width, values) <= WIDEST_HEAD // 2)
    if (forced == "flash" and not fused) or (forced == "cudnn" and not by_cudnn):
        raise UnsupportedError(f"the {forced} attention kernel does not support these inputs; choose math")
    if forced != "auto":
        return forced
    if by_cudnn and hopper:
        return "cudnn"
    return "flash" if fused else "math"


def unfused(t: Tape, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Product, softmax with mask, dropout, product (UnfusedDotProductAttention); the heads are then copied back side by side."""
    B, H, n, h = q.shape
    k, v = (repeated(t, x, H) for x in (k, v))
    scores = op.matmul(t, q, k.view(B, H, h, n), pairs=True)
    with t.without_autocast():
        probabilities = op.softmax(t, scores)
    mixed = op.matmul(t, pytorch.drop(t, probabilities), v, pairs=True)
    return op.contiguous(t, mixed, 1)


def repeated(t: Tape, x: Tensor, heads: Size) -> Tensor:
    """Repeat KV heads [B, K, n, h] to all query heads: a copy."""
    if x.shape[1] == heads:
        return x
    return t.record("repeat_interleave", [x], [t.tensor((x.shape[0], heads, *x.shape[2:]), x.dtype)], by=repeated)[0]


def drop(t: Tape, x: Tensor) -> Tensor:
    """Apply dropout in the kernel that adds x to the residual stream: it saves a mask of one byte per element, and no result."""
    if not t.training.dropout:
        return x
    kept = t.tensor(x.shape, "bool", needs_grad=False)
    same = Tensor(x.shape, x.dtype, x.parts, needs_grad=x.needs_grad)
    return t.record("dropout", [x], [same, kept], [Saved(kept, "mask")], by=drop)[0]


def cross_entropy(t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross entropy per token in float32 (VocabParallelCrossEntropy). Saves the probabilities, the targets and their mask.

    Its temporary tensors are 16 bytes per token more than its result: maximum, index of rows, two copies of the target's logit. The
    compiled function (core/fusions/fused_cross_entropy.py) has the logits in float32 besides.
    """
    tokens = product(targets.shape)
    with t.at("", "inputs"):
        labels = op.contiguous(t, targets, exceeds_one(targets.shape[0]))
        masked, found = t.tensor(targets.shape, "int64", needs_grad=False), t.tensor(targets.shape, "bool", needs_grad=False)
    with t.at("", "loss"):
        made = t.tensor(targets.shape, "float32")
    probabilities = t.tensor(logits.shape, "float32", needs_grad=False)
    outputs = [made, probabilities, masked, found]
    saved = [Saved(probabilities, "probabilities"), Saved(masked, "targets"), Saved(found, "mask of targets")]
    temporary = 16 * tokens + (probabilities.bytes if t.training.cross_entropy_fusion == "native" else 0)
    sends = [Sent("all-reduce", made.bytes, "forward")] * 3 * t.tensor_parallel  # the largest logit, that of the target, the sum
    t.record("cross_entropy", [logits, labels], outputs, saved, temporary=temporary, by=cross_entropy, sends=sends)
    op.keep_alive(t, logits, labels)
    return made


def fused_cross_entropy(t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross entropy per token in float32 (CrossEntropyFunction of Transformer Engine 2.20, pytorch/triton/cross_entropy.py).

    The forward pass computes the gradient of the logits, which is all that it saves: in float32, up to release 2.17 in the logits' memory.
    Backward multiplies that in place, and autograd casts it. Temporary: 12 bytes per token, also of each tensor-parallel device, and in
    the newer releases two numbers of tokens.
    """
    in_place = t.training.cross_entropy_fusion == "te-2.11"
    with t.at("", "inputs"):
        labels = op.contiguous(t, targets, exceeds_one(targets.shape[0]))
    with t.at("", "loss"):
        made = t.tensor(targets.shape, "float32")
    gradient = logits if in_place else t.tensor(logits.shape, "float32", needs_grad=False)
    numbers = 12 * product(targets.shape)
    gathered = numbers * t.degree if t.tensor_parallel else 0
    t.record(
        "cross_entropy",
        [logits, labels],
        [made] if in_place else [made, gradient],
        [Saved(gradient, "gradients of the logits")],
        temporary=numbers + gathered + (0 if in_place else 2 * 8),
        backward_temporary=-gradient.bytes if logits.dtype == gradient.dtype else 0,
        sends=[Sent("all-gather", gathered, "forward")] * t.tensor_parallel,
        by=fused_cross_entropy,
    )
    op.keep_alive(t, logits, labels)
    return made


def mean_cross_entropy(t: Tape, logits: Tensor, targets: Tensor) -> Tensor:
    """Return the sum of the losses of tokens that the batch does not mask, divided by their number (loss_func)."""
    B = targets.shape[0]
    loss_mask, count = of_batch(t, "loss mask", targets.shape, "float32"), of_batch(t, "number of tokens", (), "int32")
    kinds = {"none": cross_entropy, "native": cross_entropy, "te": fused_cross_entropy, "te-2.11": fused_cross_entropy}
    losses = op.contiguous(t, kinds[t.training.cross_entropy_fusion](t, logits, targets), exceeds_one(B))
    with t.at("", "loss"):
        (total,) = t.record("sum", [op.multiply(t, losses, loss_mask)], [t.tensor((), "float32")], by=mean_cross_entropy)
        return t.record("divide", [total, count], [t.tensor((), "float32")], by=mean_cross_entropy)[0]


MEGATRON_CORE = replace(
    PYTORCH,
    norm=norm,
    linear=linear,
    activation=activation,
    gated=gated,
    positions=positions,
    mask=mask,
    rotate=rotate,
    rotate_latent=lambda t, q, k, tables: (rotate(t, q, tables), rotate(t, k, tables)),
    rotary_tables=rotary_tables,
    attention=attention,
    drop=drop,
    cross_entropy=mean_cross_entropy,
    default_loss=mean_cross_entropy,
    experts=experts,
    modules=ModelClass(fused_gate_up=True, shared_first=True, router="compute", scores_chosen="float32"),
    enter=enter,
    leave=leave,
    fuses_qkv=True,
    recomputes_whole=True,
    not_counted=(
        *PYTORCH.not_counted,
        "auxiliary losses of routers",
        "unfused attention's softmax without a kernel, where that does not support the sequence length",
    ),
)
