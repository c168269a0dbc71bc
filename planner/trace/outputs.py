"""What follows the last hidden states besides an LM head: BERT's transform before it, a pooled first token, and classes."""

from __future__ import annotations

from planner.trace import blocks
from planner.trace import primitives as op
from planner.trace.context_parallel import token_ids
from planner.trace.losses import cross_entropy, finished
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

NO_HEAD = "the loss, which other code computes from the last hidden states"


def inputs(t: Tape) -> tuple[Tensor, Tensor]:
    """Return token ids, or pixels [B, patches, channels · size²], and the targets of the loss.

    These are those of tokens, a class [B, 1] for each sequence, or none.
    """
    ids, targets = token_ids(t)
    if kind := t.model.patches:
        shape = (t.training.batch_size, t.sequence - kind.tokens, kind.channels * kind.size * kind.size)
        ids = t.tensor(shape, t.precision.weights, needs_grad=False)
    shapes = {"classes": (t.training.batch_size, 1), "none": (0,)}
    return ids, t.tensor(shapes[t.model.head_type], "int64", needs_grad=False) if t.model.head_type in shapes else targets


def transformed(t: Tape, x: Tensor) -> Tensor:
    """Return norm(activation(dense(x))) of the width of the token embedding (BertPredictionHeadTransform in transformers 5.24)."""
    model = t.model
    width = model.d_model if model.embedding_dim is None else model.embedding_dim
    feed = model.runs[0].layers[0].feed_forward
    with t.at("lm_head.transform", "head"):
        x = t.implementation.activation(
            t, feed.activation if feed else "gelu", blocks.linear(t, x, width, "dense", bias=model.transform_bias)
        )
        return blocks.norm(t, model.norm, x, "norm")


def with_buffer(t: Tape, logits: Tensor) -> Tensor:
    """Return logits plus a bias [1, V] that is a buffer, as BART's final_logits_bias."""
    shape = 1, t.vocabulary
    t.buffer("final_logits_bias", shape, t.precision.weights)
    return op.add(t, logits, op.constant(t, shape, t.precision.weights))


def pooled(t: Tape, x: Tensor) -> Tensor:
    """Return the first token [B, 1, d] of each sequence, projected and activated if the model has a pooler."""
    B, _, d = x.shape
    (first,) = op.split(t, x, (B, 1, d))
    kind = t.model.pooler
    if kind == "none":
        return first
    projected = blocks.linear(t, first, d, "pooler", bias=True)
    return op.tanh(t, projected) if kind == "tanh" else t.implementation.activation(t, kind, projected)


def loss_of_sequences(t: Tape, x: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of classes of hidden states [B, n, d]. Without a head, one that saves nothing stands for that of other code."""
    with t.at("head", "head"):
        t.show("final hidden states", x)
        if t.model.head_type == "none":
            outputs = [x] if t.model.pooler == "none" else [x, pooled(t, x)]
            t.note(NO_HEAD)
            (made,) = t.record("sum", outputs, [t.tensor((), x.dtype)], by=loss_of_sequences)
            return finished(t, made, *outputs)
        logits = t.show("logits", blocks.linear(t, pooled(t, x), t.model.classes, "classifier", bias=True))
    with t.at("loss", "logits"):
        made = cross_entropy(t, logits, targets)
    op.keep_alive(t, x)
    return finished(t, made, logits)
