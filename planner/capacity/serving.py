"""Memory and FLOPs of a model that answers requests: a pass over the prompts, then one pass per token of the outputs.

A pass without gradients keeps nothing but the cache, so its peak is a walk along its operators. Weights, buffers, the ids of the prompts
and the cache of earlier tokens are allocated besides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from planner import devices
from planner.capacity.cached import by_kind, replaced
from planner.capacity.figures import Parameters, Weight
from planner.capacity.flops import total
from planner.capacity.formats import served
from planner.capacity.forward_pass import ForwardPass
from planner.capacity.parameters import parameters
from planner.capacity.pool import of_device, pool
from planner.capacity.roofline import bound
from planner.capacity.served import Bounds, Pass, Pooled, Served
from planner.capacity.timeline import MemoryTimeline
from planner.spec.mixers import RECORDS
from planner.spec.records import (
    LatentAttention,
    LightningAttention,
    Mixer,
    Mlstm,
    Model,
    Precision,
    RgLru,
    Rwkv,
    ServedWeights,
    Serving,
    Spec,
    Training,
)
from planner.spec.records.serving import PLAIN_WEIGHTS
from planner.trace.decoder import Trace, trace
from planner.trace.dominance import undominated
from planner.trace.inference import Inference
from planner.trace.sizes import Choice, Size, hinted, maximum, symbol
from planner.trace.tape import Parameter
from planner.trace.unsupported import UnsupportedError

PRECISIONS: dict[ServedWeights, Precision] = {"bf16": "bf16", "fp16": "bf16", "fp32": "fp32"}
"""The recipe with the sizes of each type: float16 has those of bfloat16."""
NEXT_IDS = 8  # bytes of the id of a sequence's next token
VOCABULARY_MULTIPLE = 64
"""vLLM pads the vocabulary to a multiple: VocabParallelEmbedding."""
OF_ENGINES = ("activations of a pass, the CUDA context, graphs and workspaces of kernels, which leave less for the cache",)
NOT_COUNTED = (
    "the CUDA context, workspaces inside kernels (cuBLAS, attention) and fragmentation of the allocator",
    "copies of the cache by beam search, and everything that sampling of tokens allocates",
)


def serve(spec: Spec, serving: Serving, training: Training) -> Served | Pooled:
    """Return the figures of a spec's model as its engine serves it; transformers with the kernels of the training's device.

    Raises UnsupportedError, prefixed with the spec's path, if a pass or a cache is not modeled.
    """
    try:
        if serving.engine != "transformers":
            return _pooled(spec, serving, training)
        _refuse(spec.model, serving, training)
        return _figures(spec, serving, training)
    except UnsupportedError as error:
        raise UnsupportedError(f"{spec.path}: error[not-modelled]: serving of {spec.name}: {error}") from None


def of_section(spec: Spec) -> Served | Pooled | None:
    """Return the figures of a spec's section ``serving``, if it has one, with the kernels of its base scenario."""
    return serve(spec, spec.serving, spec.scenarios[0].training) if spec.serving else None


@dataclass(frozen=True, slots=True)
class ServingFormulas:
    """The figures of a spec's section ``serving`` over symbols, whose values are in ``values``, and the choices that they depend on."""

    served: Served | Pooled
    values: Mapping[str, int]
    choices: Sequence[Choice]


SERVING_INPUTS = {"users": "batch_size", "prompt": "prompt", "output": "output", "memory": "memory_bytes"}
"""The symbols of serving, and the fields of ``Serving`` that they are."""


def serving_formulas(spec: Spec) -> ServingFormulas | None:
    """Return the figures of a spec's section over symbols for requests and memory, without bounds; None if it has none."""
    own, choices = spec.serving, list[Choice]()
    if own is None:
        return None
    values = {name: getattr(own, field) or devices.entries()[0].memory_bytes for name, field in SERVING_INPUTS.items()}
    symbols = {field: symbol(name, values[name], choices) for name, field in SERVING_INPUTS.items()}
    serving = replace(own, **symbols, device=None)  # type: ignore[arg-type]  # sizes in place of integers
    try:
        return ServingFormulas(serve(spec, serving, spec.scenarios[0].training), values, choices)
    except (TypeError, UnsupportedError):
        return None


def _pooled(spec: Spec, serving: Serving, training: Training) -> Pooled:
    made = _trace(spec.model, serving, training, 1, Inference())
    counted = parameters(made)
    sizes = _sizes(spec.model, made, counted, serving)
    weights = sum(_of_device(*one, spec.model, serving.tensor_parallel) for one in zip(made.parameters, sizes, strict=True))
    return Pooled(
        name=spec.name,
        spec_path=spec.path,
        serving=serving,
        params=_whole(counted.total),
        weights_bytes=weights,
        pool=pool(spec.model, serving, weights),
        bounds=None if _latent(spec.model) else _bounds(spec.model, serving, training, sizes, *_passes(spec.model, serving, training)),
        not_counted=(*spec.omits, *OF_ENGINES),
    )


def _sizes(model: Model, made: Trace, counted: Parameters[Size], serving: Serving) -> list[int]:
    """Return the bytes of all copies of each weight."""
    if serving.weights in PLAIN_WEIGHTS:
        return [_whole(stored.tensor.bytes * stored.copies) for stored in made.parameters]
    return served(model, cast("tuple[Weight, ...]", counted.weights), serving.weights, serving.group_size)


def _of_device(stored: Parameter, whole: int, model: Model, devices: int) -> int:
    """Return the bytes of a weight on one device: a part of matrices of layers and of the vocabulary, all of norms and routers."""
    if devices == 1 or stored.component in ("norm", "router", "position") or len(stored.tensor.shape) == 1:
        return whole
    if stored.component in ("embedding", "head"):
        rows, width = model.padded_vocab_size, whole // model.padded_vocab_size
        return -(-rows // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE // devices * width
    heads = next((layer.attention.n_kv_heads for run in model.runs for layer in run.layers if layer.attention), None)
    if heads and any(f".{name}_proj." in stored.name for name in "kv"):
        return whole // heads * of_device(heads, devices)
    if heads and ".qkv_proj." in stored.name and heads % devices:
        raise UnsupportedError(f"a fused projection of {heads} key heads with tensor_parallel {devices} is not modeled yet")
    return whole // devices


def _figures(spec: Spec, serving: Serving, training: Training) -> Served:
    prompts, *steps = _passes(spec.model, serving, training)
    counted = parameters(prompts)
    sizes = _sizes(spec.model, prompts, counted, serving)
    weights = sum(sizes)
    start = weights + prompts.buffers_bytes + prompts.inputs_bytes
    prefill, cached = _pass(prompts, start)
    constant = cached - _replaced(steps[0])  # what no later pass replaces
    passes = [_pass(one, start + NEXT_IDS * serving.batch_size + constant + _replaced(one)) for one in steps]
    (first, _), (last, grown) = passes[0], passes[-1]
    return Served(
        name=spec.name,
        spec_path=spec.path,
        serving=serving,
        params=_whole(counted.total),
        weights_bytes=weights,
        buffers_bytes=_whole(prompts.buffers_bytes),
        inputs_bytes=_whole(prompts.inputs_bytes),
        cache_bytes=_whole(cached),
        cache_after_bytes=_whole(constant + grown),
        caches=by_kind(spec.model, prompts, steps[0], steps[-1]),
        prefill=prefill,
        first=first,
        last=last,
        bounds=_bounds(spec.model, serving, training, sizes, prompts, *steps),
        not_counted=(*spec.omits, *NOT_COUNTED),
    )


def _passes(model: Model, serving: Serving, training: Training) -> tuple[Trace, ...]:
    """Trace the pass over the prompts, over the first token and, if there are several, over the last one."""
    room = (serving.cache.room or serving.prompt + serving.output) if serving.cache.type == "static" else None
    steps = (_trace(model, serving, training, 1, Inference(serving.prompt, past, room)) for past in _pasts(serving))
    return (_trace(model, serving, training, serving.prompt, Inference(room=room)), *steps)


def _bounds(model: Model, serving: Serving, training: Training, sizes: Sequence[int], prompts: Trace, *steps: Trace) -> Bounds | None:
    """Return the bounds of passes on a device of the catalog whose rate and bandwidth are known."""
    device = devices.find(serving.device) if serving.device else None
    if device is None:
        return None
    prefix = _trace(model, serving, training, serving.shared_prefix, Inference()) if serving.shared_prefix else None
    first = bound(prompts, device, serving.weights, sizes, serving.tensor_parallel, less=prefix)
    last = bound(steps[-1], device, serving.weights, sizes, serving.tensor_parallel, queries=serving.draft_tokens + 1)
    return Bounds(first, last, serving) if first and last else None


def _latent(model: Model) -> bool:
    """Whether layers have latent attention, for which engines multiply fewer matrices than transformers does."""
    return any(layer.mixers for run in model.runs for layer in run.layers)


def _trace(model: Model, serving: Serving, training: Training, n: int, inference: Inference) -> Trace:
    """Trace one pass over n tokens of each sequence."""
    settings = Training(
        batch_size=serving.batch_size,
        sequence_length=n,
        precision=PRECISIONS.get(serving.weights, "bf16"),
        implementation="transformers" if serving.attention == "sdpa" else "transformers-eager",
        device=training.device,
        mixer_kernels=training.mixer_kernels,
    )
    return trace(model, settings, inference=inference)


def _pasts(serving: Serving) -> tuple[int, ...]:
    """Return the tokens before the first and the last token of an output."""
    return tuple(dict.fromkeys((serving.prompt, serving.prompt + serving.output - 1)))


def _pass(made: Trace, start: Size) -> tuple[Pass, Size]:
    """Return the figures of a pass, and the bytes of the cache that it makes. ``start``: allocated before it."""
    timeline = MemoryTimeline(1, {})
    walk = ForwardPass(timeline, made.nodes, {}, "forward")
    walk.go(made.nodes)
    sizes = timeline.sizes(timeline.samples)
    largest = max(range(len(sizes)), key=[hinted(size) for size in sizes].__getitem__)
    peak = start + maximum(*undominated(sizes))
    return Pass(_whole(total(made.nodes, "forward")), _whole(peak), timeline.samples[largest].operator), walk.until_the_end


def _replaced(made: Trace) -> Size:
    """Return the bytes of the cache that a pass replaces."""
    return sum(copies * storage.bytes for storage, copies in replaced(made))


def _whole(size: Size) -> int:
    """Return a size of a model of integers."""
    return cast("int", size)


def _refuse(model: Model, serving: Serving, training: Training) -> None:
    """Raise UnsupportedError for what no pass of inference models yet, or transformers does not run."""
    for mixer in (mixer for run in model.runs for layer in run.layers for mixer in layer.mixers):
        if isinstance(mixer, RgLru | Mlstm):
            raise UnsupportedError(f"the states of {_name(mixer)} are not modeled yet")
        if isinstance(mixer, Rwkv) and serving.batch_size > 1:
            raise UnsupportedError("transformers decodes rwkv wrongly if there are several sequences; choose batch_size 1")
        if isinstance(mixer, LightningAttention) and serving.cache.type == "static":
            raise UnsupportedError("transformers has no static cache for lightning_attention; choose cache dynamic")
        if training.mixer_kernels == "fused" and not isinstance(mixer, LatentAttention):
            raise UnsupportedError(f"passes of fused kernels of {_name(mixer)} are not modeled yet; choose training.mixer_kernels plain")
    if model.model_type == "cpmant":
        raise UnsupportedError("learned prompts before cached tokens are not modeled yet")


def _name(mixer: Mixer) -> str:
    return next(name for name, kind in RECORDS.items() if isinstance(mixer, kind))
