"""A language model of one stack of layers: the forward pass from token ids to the loss."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import cast

from planner.spec.records import Model, Training
from planner.trace import alternating, blocks, encoder, masks, tower
from planner.trace import primitives as op
from planner.trace.adapters import check_tuned, trained_copy
from planner.trace.collectives import enter, gather_vocabulary
from planner.trace.context_parallel import token_ids
from planner.trace.embeddings import look_up, per_layer_inputs, summed, tables, token_rows
from planner.trace.implementations import implementation_of
from planner.trace.inference import Inference
from planner.trace.layers import declare
from planner.trace.losses import chunked_cross_entropy, finished, loss
from planner.trace.nodes import Node, Sent, Unit
from planner.trace.outputs import inputs, loss_of_sequences, transformed, with_buffer
from planner.trace.positions import PositionTables
from planner.trace.prediction import predict
from planner.trace.prompts import embedded, learned_bias, without_prompts
from planner.trace.prompts import prompts as prompts_of
from planner.trace.runs import last_apart, run_layers
from planner.trace.sizes import Size, product
from planner.trace.stages import Stage, received, sent
from planner.trace.tape import Buffer, Parameter, Shape, Tape
from planner.trace.tensor import Tensor
from planner.trace.unsupported import UnsupportedError
from planner.trace.virtual_tokens import prefixes, prepended

WHOLE, EMBEDDING, HEAD = "model", "embed_tokens", "norm and lm_head"
LOSS = "loss"
"""The units besides layers: the whole model with its head, the token embedding, and what follows the layers."""


@dataclass(frozen=True, slots=True)
class Piped:
    """A stage, the bytes that stages pass on for a microbatch, and the output of one that does not compute the loss."""

    stage: Stage
    passed: Size
    output: Tensor | None


@dataclass(frozen=True, slots=True)
class Trace:
    """One forward pass: its operations, parameters and buffers, and the tensors to show."""

    nodes: tuple[Node, ...]
    parameters: tuple[Parameter, ...]
    stacks: tuple[tuple[int, int, Size], ...]  # of equal layers: index of the first parameter, index after the last, and count
    units: tuple[Unit, ...]  # the token embedding, layers and what follows them, in order
    buffers: tuple[Buffer, ...]
    shapes: tuple[Shape, ...]
    inputs_bytes: Size  # token ids and targets, of all microbatches of a pipeline
    not_counted: tuple[str, ...]
    piped: Piped | None = None  # if it is a stage of a pipeline
    parts: tuple[Trace, ...] = ()  # the stages of a device, one or several

    @property
    def buffers_bytes(self) -> Size:
        """Bytes of all buffers."""
        return sum(buffer.bytes for buffer in self.buffers)

    @property
    def correction_biases(self) -> Size:
        """Elements of router correction biases that are buffers: stored in checkpoints too."""
        return sum(product(buffer.shape) * buffer.copies for buffer in self.buffers if buffer.component == "router")


def trace(
    model: Model, training: Training, stage: Stage | None = None, *, context_rank: int = 0, inference: Inference | None = None
) -> Trace:
    """Trace the forward pass and the loss of B sequences of n tokens, with prediction layers if the training counts them.

    ``stage``: only of one stage of a pipeline. ``context_rank``: of the device with that number in context parallelism.
    """
    t = new_tape(model, training, context_rank, inference)
    if stage and not (stage.first and stage.last):
        return _trace_of_stage(t, model, stage)
    B, n = training.batch_size, cast("Size", t.sequence)
    with t.at("", "inputs"):
        ids, targets = inputs(t)
        mask = masks.of_tokens(t)
        t.show("token ids", ids)
        source, pixels = encoder.read(t), tower.read(t)
    with t.at("model"):
        t.boundary(WHOLE, starts=True)
        t.declared = declared = {f"{t.path}.{item.name}": item for item in model.extra}
        if t.stores_keys and training.recompute == "full":
            model = replace(model, runs=last_apart(model.runs))
        (model, masks_of_prefix), prompts = prefixes(t, model), prompts_of(t)
        with t.unit(EMBEDDING):
            stored, table, project_in = tables(t, model, prompts.rows)
            read = encoder.before(t, table, source, ids, targets)
            embed = partial(look_up, t, table, project_in)
            x, alive = embedded(t, ids, prompts, embed) if t.modules.prompts else (embed(read), [])
            x, labels, n, prepared = prepended(t, x, targets, n)
        x, of_images = tower.joined(t, x, ids, pixels)
        x = t.implementation.drop(t, summed(t, model, x, alive))
        positions = PositionTables(t, model, B, n + prompts.length)
        if t.modules.prompts:
            positions.learned = learned_bias(t, x)
        if model.per_layer_embedding:
            positions.per_layer = per_layer_inputs(t, model, model.per_layer_embedding, ids, x)
        alternates, dtype = alternating.alternates(t, model), x.dtype
        x = alternating.expanded(t, x) if alternates else x
        x = run_layers(t, model.runs, positions, x)
        positions.hold(t)
        t.declared = declared
        x = alternating.merged(t, x, dtype) if alternates else x
        last = len(t.parameters)
        t.boundary(HEAD, starts=True)
        if model.final_norm:
            x = blocks.norm(t, model.norm, x, "norm")
        op.keep_alive(t, *positions.all, *alive, *of_images, *(one for one in (positions.learned, t.encoded) if one))
        declare(t, declared.values(), x)
        whole, x = x, without_prompts(t, x, n) if t.modules.prompts else x
    if model.head_type != "language":
        return _of_sequences(t, x, last, ids, targets)
    weights = _head(t, stored, table.shape[1])
    score = partial(_score, t, *weights)
    loss = _next_tokens(t, inference, *weights, x) if inference else score(x, labels)
    t.units.append(Unit(HEAD, last, len(t.parameters), 1))
    if inference:
        return _recorded(t, ids.bytes)
    op.keep_alive(t, *prepared, *masks_of_prefix, *([whole] if t.modules.prompts else []))
    if model.prediction and training.count_prediction:
        predict(t, model.prediction, positions, x, (ids, targets), loss, embed, score)
    return _recorded(t, sum(one.storage.bytes for one in (source, pixels, read if read is ids else None, targets, mask) if one))


def _of_sequences(t: Tape, x: Tensor, first: int, ids: Tensor, targets: Tensor) -> Trace:
    """Trace a head that has no logits of tokens, whose first parameter has the given number."""
    loss_of_sequences(t, x, targets)
    _end(t)
    t.units.append(Unit(HEAD, first, len(t.parameters), 1))
    return _recorded(t, ids.storage.bytes + targets.storage.bytes)


def _head(t: Tape, embedding: Tensor, width: Size) -> tuple[Tensor | None, Tensor, Tensor | None]:
    """Return the projection before the LM head, if any, and the weight and the bias of the head."""
    model = t.model
    with t.at("model.project_out", "other"):
        apart = model.embedding_dim is not None and not model.head_transform
        project_out = t.weight("weight", (width, model.d_model), op.LINEAR) if apart else None
    with t.at("lm_head", "head"):
        rows = partial(token_rows, t, width, "LM head: V · width")
        head = embedding if model.tied_head else trained_copy(t, "head", rows)[1]
        return project_out, head, token_rows(t, None, "bias: V") if model.head_bias else None


def _recorded(t: Tape, inputs_bytes: Size, piped: Piped | None = None) -> Trace:
    """Return the trace that the tape has recorded. Raises UnsupportedError for parts to train that the model lacks."""
    check_tuned(t)
    recorded = tuple(t.nodes), tuple(t.parameters), tuple(t.stacks), tuple(t.units), tuple(t.buffers), tuple(t.shapes)
    return Trace(*recorded, inputs_bytes, (*t.implementation.not_counted, *t.notes), piped)


def _trace_of_stage(t: Tape, model: Model, stage: Stage) -> Trace:
    """Trace a stage: plain layers, with the embedding before the first ones, with final norm, head and loss after the last ones."""
    B, n = t.training.batch_size, t.sequence
    t.ends = stage.first, stage.last
    with t.at("", "inputs"):
        ids, targets = token_ids(t)
        if t.megatron and any(t.ends):  # which loads each microbatch when it runs
            t.record("batch", [], [one for one, is_read in zip((ids, targets), t.ends, strict=True) if is_read], by=_trace_of_stage)
    with t.at("model"):
        t.boundary(WHOLE, starts=True)
        if stage.first:
            with t.unit(EMBEDDING):
                _, table, project_in = tables(t, model, 0)
                x = look_up(t, table, project_in, ids)
            x = t.implementation.drop(t, summed(t, model, x, []))
        else:
            x = received(t, stage)
        size = x.bytes
        positions = PositionTables(t, model, B, n)
        x = run_layers(t, stage.runs, positions, x, stage.first_layer)
        last = len(t.parameters)
        if stage.last:
            t.boundary(HEAD, starts=True)
            x = blocks.norm(t, model.norm, x, "norm") if model.final_norm else x
        op.keep_alive(t, *positions.all)
        if not stage.last:
            t.boundary(WHOLE, starts=False)
    if stage.last:
        with t.at("lm_head", "head"):
            head = token_rows(t, model.d_model, "LM head: V · width")
        _score(t, None, head, None, x, targets)
        t.units.append(Unit(HEAD, last, len(t.parameters), 1))
    else:
        sent(t, stage, x)
    if t.megatron and model.tied_head and any(t.ends):  # _allreduce_word_embedding_grads
        table = next(stored.tensor for stored in t.parameters if stored.component in ("embedding", "head"))
        t.record("all-reduce", [], [], sends=[Sent("all-reduce", table.bytes, "step", "ends")], by=_trace_of_stage)
    inputs = 0 if t.megatron else t.training.gradient_accumulation * (ids.storage.bytes + targets.storage.bytes)
    piped = Piped(stage, size, None if stage.last else x)
    return _recorded(t, inputs, piped)


def of_stages(parts: tuple[Trace, ...]) -> Trace:
    """Return the stages of one device as one trace, whose nodes are of one microbatch in each."""
    starts = accumulate((len(part.parameters) for part in parts[:-1]), initial=0)
    placed = list(zip(starts, parts, strict=True))
    return replace(
        parts[0],
        nodes=tuple(node for part in parts for node in part.nodes),
        parameters=tuple(stored for part in parts for stored in part.parameters),
        stacks=tuple((start + first, start + end, count) for start, part in placed for first, end, count in part.stacks),
        units=tuple(replace(one, first=start + one.first, end=start + one.end) for start, part in placed for one in part.units),
        buffers=tuple(buffer for part in parts for buffer in part.buffers),
        parts=parts,
    )


def new_tape(model: Model, training: Training, context_rank: int = 0, inference: Inference | None = None) -> Tape:
    """Return an empty tape."""
    return Tape(implementation_of(model, training), model, training, inference, context_rank=context_rank)


def _score(t: Tape, project_out: Tensor | None, head: Tensor, bias: Tensor | None, x: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of the last hidden states [B, n, d_model]. They stay alive until then if the model computes it."""
    x, states = _read_by_head(t, project_out, x)
    states += [t.encoded] if t.encoded else []  # which the model's output has, too
    kind = t.training.loss
    if kind.startswith("linear") and t.model.logit_softcap:
        raise UnsupportedError(f"{kind} does not support head.logit_softcap; choose loss cross_entropy")
    with t.at("lm_head", "head"):
        t.show("final hidden states", x)
    with t.at("loss" if kind.startswith("linear") else "lm_head", "head"):
        chunked, fused = kind == "linear_cross_entropy_chunked", t.implementation.fused_loss if kind == "default" else None
        never = chunked or fused
        x = x if never else enter(t, x)
        logits = Tensor((*x.shape[:-1], head.shape[0]), t.precision.compute, ()) if never else t.implementation.linear(t, x, head, bias)
        logits = logits if t.loss_parallel else gather_vocabulary(t, logits)
        logits = with_buffer(t, logits) if t.modules.logits_bias else logits
        t.show("logits", logits)
    with t.at(LOSS, "logits"):
        if never:
            made = finished(t, fused(t, x, head, targets) if fused else chunked_cross_entropy(t, x, head, bias, targets))
            _end(t)
            return made
        if t.model.logit_softcap:
            logits = op.softcap(t, op.cast(t, logits, "float32") if t.modules.softcaps_in_float32 else logits)
        after = kind in {"cross_entropy", "cross_entropy_shifted", "cross_entropy_float32"} or (
            kind == "default" and t.implementation.loss_outside
        )
        if after:
            op.keep_alive(t, *states, x)
            _end(t)
        made = loss(t, logits, targets)
        if not after:
            op.keep_alive(t, *states)
            _end(t)
        return finished(t, made, logits)


def _read_by_head(t: Tape, project_out: Tensor | None, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return the last hidden states as the LM head reads them, and those that variables keep alive."""
    if project_out is not None:
        with t.at("model.project_out", "other"):
            x = op.linear(t, x, project_out)
    x = transformed(t, x) if t.model.head_transform else x
    states = [x]
    if t.modules.scales_head_input:
        x = op.mul_scalar(t, x)
        states.append(x)
    if t.modules.residual_in_float32:
        x = op.cast(t, x, t.precision.weights)
    return x, states


def _next_tokens(t: Tape, inference: Inference, project_out: Tensor | None, head: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    """Return logits of the last hidden states [B, n, d_model]: of each sequence's last token, or of all."""
    B, n, width = x.shape
    states = [x]
    with t.at("lm_head", "head"):
        (last,) = op.split(t, x, (B, 1 if inference.logits == "last" else n, width))
        read, kept = _read_by_head(t, project_out, last)
        logits = t.implementation.linear(t, read, head, bias)
        if t.model.logit_softcap:
            logits = op.softcap(t, op.cast(t, logits, "float32") if t.modules.softcaps_in_float32 else logits)
        op.keep_alive(t, *states, *kept)
        return t.show("logits", logits)


def _end(t: Tape) -> None:
    """Record the end of the head and of the model."""
    t.boundary(HEAD, starts=False)
    t.boundary(WHOLE, starts=False)
