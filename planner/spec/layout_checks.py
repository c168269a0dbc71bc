"""Checks of clusters and layouts: degrees that divide devices, the model's sizes and the batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from math import gcd, isqrt, prod

from planner import devices
from planner.spec.amount import BITS_PER_SECOND, BYTES, amount
from planner.spec.defaults import (
    MODEL_DEGREES,
    d_ff,
    data_degree,
    device,
    gradient_accumulation,
    has_feed_forward,
    kernels_of,
    n_kv_heads,
    per_node,
    sequence_length,
)
from planner.spec.key_checks import key_checks
from planner.spec.mixers import names
from planner.spec.problems import Problem, quote
from planner.spec.records import Layout
from planner.spec.records.layout import V_SHAPED
from planner.spec.resolve import n_layers
from planner.spec.settings import Document, Settings, Unresolved

Problems = Iterator[Problem]

TRIED = 1_000_000  # possible divisors
ARMS = 2  # of a V


def divisors(number: int) -> list[int]:
    """Return the divisors of a number, ascending; of a huge one only those with a factor that is not."""
    small = [one for one in range(1, min(isqrt(number), TRIED) + 1) if number % one == 0]
    return sorted({*small, *(number // one for one in small)})


def nearest(value: int, allowed: list[int]) -> str:
    """Return the allowed values next to one that is not."""
    below = [one for one in allowed if one < value][-1:]
    above = [one for one in allowed if one > value][:1]
    return " or ".join(f"{one}" for one in (*below, *above))


def known_device(_: Settings, document: Document, __: Settings | None) -> Problems:
    """Find unknown devices and units."""
    if (cluster := document.cluster) is None or not cluster.written("device"):
        return
    written = cluster.get("device")
    if isinstance(written, str) and devices.find(written) is None:
        near = devices.nearest(written)
        hint = f"did you mean {' or '.join(near)}?" if near else "write device: {memory: 80GiB}"
        yield cluster.problem("device", "device", f"unknown device {quote(written)}", hint)
    amounts = {"reserve": (BYTES, "2GiB"), "inter_node": (BITS_PER_SECOND, "400Gb/s")}
    amounts |= {} if isinstance(written, str) else {"device.memory": (BYTES, "80GiB")}
    for key, (units, example) in amounts.items():
        node = cluster.written(key)
        if node and isinstance(node.value, str) and amount(node.value, units) is None:
            yield cluster.problem(
                key, "unit", f"cluster.{key} must be a number and a unit, not {quote(node.text)}", f"for example {example}"
            )


def reserve(_: Settings, document: Document, __: Settings | None) -> Problems:
    """Find a reserve that leaves a step no memory."""
    if (cluster := document.cluster) is None:
        return
    _name, memory_bytes = device(cluster)
    reserved = amount(str(cluster.get("reserve")), BYTES)
    if reserved is not None and reserved >= memory_bytes:
        message = f"reserve {quote(str(cluster.get('reserve')))} leaves nothing of a device's {memory_bytes >> 20} MiB"
        most = (memory_bytes - 1) >> 20
        yield cluster.problem("reserve", "reserve", message, f"write at most {most}MiB" if most > 0 else "write a device with more memory")


def nodes(_: Settings, document: Document, __: Settings | None) -> Problems:
    """Find nodes that are not full."""
    if (cluster := document.cluster) is None:
        return
    count, each = cluster.size("devices"), per_node(cluster)
    if count > each and count % each:
        hint = f"write {nearest(each, divisors(count))}, or devices: {count // each * each} or {(count // each + 1) * each}"
        yield cluster.problem("per_node", "per-node", f"per_node {each} does not divide devices {count}", hint)


def belongs_together(_: Settings, document: Document, laid: Settings | None) -> Problems:
    """Find a layout without a cluster, and several devices without a layout."""
    if laid and document.cluster is None:
        hint = "write cluster: {device: H100-80GB-SXM, devices: 8}"
        yield laid.node.mark.problem("layout-cluster", "layout requires a cluster", hint)
    if document.cluster and laid is None and (count := document.cluster.size("devices")) > 1:
        message = f"cluster has {count} devices, but no layout divides the model among them"
        yield document.cluster.problem("devices", "layout-missing", message, "write layout: {data_parallel: fsdp}, or devices: 1")


def kernels(settings: Settings, document: Document, _: Settings | None) -> Problems:
    """Find kernels of other devices than the cluster's."""
    if document.cluster is None:
        return
    name, _memory = device(document.cluster)
    known, written = kernels_of(name), settings.written("device")
    if known and written and settings.get("device") != known:
        message = f"device {settings.get('device')} contradicts cluster.device {name}"
        yield settings.problem("device", "device", message, f"remove it, or write {known}")
    if known is None and written is None:
        message = f"the kernels that PyTorch chooses on a {name} were not measured"
        yield document.cluster.problem("device", "device", message, "write training.device: h100 or a100 to plan with its kernels")


def global_batch(settings: Settings, document: Document, laid: Settings | None) -> Problems:
    """Find a global batch that is no whole number of micro-batches on each device."""
    if not settings.written("global_batch_size"):
        return
    sequences, degree = settings.size("global_batch_size"), data_degree(document.cluster, laid)
    together = settings.size("batch_size") * degree
    if sequences % together:
        parts = f"batch_size {settings.size('batch_size')} * {degree} data-parallel devices"
        choices = [one for one in (sequences // together * together, (sequences // together + 1) * together) if one]
        message = f"{parts} = {together} does not divide global_batch_size {sequences}"
        yield settings.problem("global_batch_size", "global-batch", message, f"write {' or '.join(map(str, choices))}")
    elif settings.written("gradient_accumulation") and settings.get("gradient_accumulation") != sequences // together:
        said = settings.get("gradient_accumulation")
        message = f"gradient_accumulation is {said}, but global_batch_size {sequences} is {sequences // together} passes of {together}"
        yield settings.problem("gradient_accumulation", "global-batch", message, "keep one of them")


def degrees(layout: Settings, settings: Settings, document: Document) -> Problems:
    """Find degrees that do not divide devices, heads, widths, vocabulary, layers, experts or the sequence."""
    found: list[str] = []
    for key, sizes in _shared(layout, settings, document).items():
        degree = layout.size(key)
        if wrong := [f"{name} {size}" for name, size in sizes.items() if size % degree]:
            found += wrong
            fitting = nearest(degree, divisors(gcd(*sizes.values())))
            yield layout.problem(key, "degree", f"{key} {degree} does not divide {', '.join(wrong)}", f"write {fitting}")
    together = prod(layout.size(key) for key in MODEL_DEGREES)
    count = document.cluster.size("devices") if document.cluster else 0
    if document.cluster and count % together and not any(name.startswith("devices") for name in found):
        parts = " * ".join(f"{key} {layout.size(key)}" for key in MODEL_DEGREES if layout.size(key) > 1)
        above = -(-count // together) * together
        yield document.cluster.problem("devices", "degree", f"{parts} does not divide devices {count}", f"write devices: {above}")


def _shared(layout: Settings, settings: Settings, document: Document) -> Mapping[str, Mapping[str, int]]:
    """Return what each degree must divide."""
    context, sequences = layout.size("context_parallel"), layout.get("sequence_parallel")
    found: dict[str, dict[str, int]] = {key: {} for key in (*MODEL_DEGREES, "expert_parallel", "virtual_stages")}
    if document.cluster:
        count = document.cluster.size("devices")
        for key in MODEL_DEGREES:
            others = prod(layout.size(other) for other in MODEL_DEGREES if other != key)
            among = f"devices {count} / {others} =" if others > 1 else "devices"
            found[key] |= {among: count // others} if layout.size(key) > 1 and count % others == 0 else {}
    if not by_megatron(settings):  # which pads the vocabulary until it divides
        found["tensor_parallel"]["padded vocab_size"] = _padded_vocabulary(document)
    for each in (layer for group in document.groups for layer in group.layers):
        with suppress(Unresolved):
            found["tensor_parallel"] |= _of_layer(each, layout.size("tensor_parallel") if by_megatron(settings) else 1)
            found["context_parallel"] |= _exchanged_heads(each, layout) if context > 1 and layout.get("context_kind") == "ulysses" else {}
            found["expert_parallel"] |= {"experts.count": each.size("experts.count")} if each.on("experts") else {}
    with suppress(Unresolved):
        devices_of = {f"data-parallel devices{' * context_parallel' * (context > 1)}": data_degree(document.cluster, layout) * context}
        found["expert_parallel"] |= devices_of if found["expert_parallel"] and not by_megatron(settings) else {}
    layers, stages = n_layers(document), layout.size("pipeline_parallel")
    if not _of_ends(layout):
        found["pipeline_parallel"]["n_layers"] = layers
        found["virtual_stages"] |= {} if layers % stages else {f"n_layers {layers} / {stages} =": layers // stages}
    n = sequence_length(settings, document.model)
    if sequences:
        found["tensor_parallel"] |= {} if n % context else {"sequence_length": n // context}
    return found


def _padded_vocabulary(document: Document) -> int:
    V, multiple = document.model.size("vocab_size"), document.model.size("pad_vocab_to_multiple_of")
    return -(-V // multiple) * multiple


def _of_layer(layer: Settings, replicas: int) -> Mapping[str, int]:
    """Return what tensor-parallel devices divide. Up to ``replicas`` of them can have the same KV heads."""
    keys = n_kv_heads(layer) if "attention" in names(layer) else 0
    heads = {"n_heads": layer.size("n_heads"), "n_kv_heads": replicas if replicas % keys == 0 else keys} if keys else {}
    return heads | ({"d_ff": d_ff(layer)} if has_feed_forward(layer) else {})


def by_megatron(settings: Settings) -> bool:
    """Return whether Megatron-LM divides the model, not PyTorch."""
    return settings.get("implementation") in ("megatron", "megatron-core")


def _exchanged_heads(layer: Settings, layout: Settings) -> Mapping[str, int]:
    """Return the heads of a layer that each tensor-parallel device has, by name."""
    tensor = layout.size("tensor_parallel")
    heads = {"n_heads": layer.size("n_heads"), "n_kv_heads": n_kv_heads(layer)} if "attention" in names(layer) else {}
    return {f"{name} {size} / {tensor} =" if tensor > 1 else name: size // tensor for name, size in heads.items() if size % tensor == 0}


def sequences(layout: Settings, settings: Settings, document: Document) -> Problems:
    """Find sequences that context-parallel devices cannot divide: each has two parts, unless DeepSpeed exchanges them for heads."""
    degree, n = layout.size("context_parallel"), sequence_length(settings, document.model)
    each = 1 if layout.get("context_kind") == "ulysses" and not by_megatron(settings) else 2
    if degree > 1 and n % (each * degree):
        multiple, count = each * degree, document.cluster.size("devices") if document.cluster else 0
        near = " or ".join(str(one) for one in (n // multiple * multiple, (n // multiple + 1) * multiple) if one)
        fitting = nearest(degree, divisors(gcd(n // each, count))) if n % each == 0 and count else ""
        message = f"context_parallel {degree} requires sequences of a multiple of {multiple} tokens, and sequence_length is {n}"
        hint = f"write sequence_length: {near}{f', or context_parallel: {fitting}' if fitting else ''}"
        yield layout.problem("context_parallel", "context-parallel", message, hint)


def sharing(layout: Settings, settings: Settings, document: Document) -> Problems:
    """Find a single device that would share with others, and groups of hsdp that do not divide the devices."""
    kind, degree = layout.get("data_parallel"), data_degree(document.cluster, layout) * layout.size("context_parallel")
    if kind != "ddp" and degree == 1 and not by_megatron(settings):
        message = f"data_parallel {kind} requires several data-parallel devices, and there is 1"
        yield layout.problem("data_parallel", "data-parallel", message, "remove it, or lower the other degrees")
    shard, context = layout.size("shard_degree"), layout.size("context_parallel")
    if kind != "hsdp" or degree == 1:
        return
    written = layout.written("shard_degree")
    if not written:
        message = "data_parallel hsdp requires shard_degree"
    elif degree % shard:
        message = f"shard_degree {shard} does not divide the {degree} data-parallel devices"
    elif shard % context:
        message = f"shard_degree {shard} is no multiple of context_parallel {context}, whose devices share weights"
    else:
        return
    fitting = nearest(shard if written else 1, [one for one in divisors(degree) if one % context == 0])
    yield layout.problem("shard_degree", "shard-degree", message, f"write shard_degree: {fitting}")


def within_tensor_parallel(layout: Settings, _: Settings, __: Document) -> Problems:
    """Find what tensor-parallel devices divide without any."""
    for key in ("sequence_parallel", "loss_parallel"):
        if layout.get(key) and layout.size("tensor_parallel") == 1:
            message = f"{key} requires tensor_parallel above 1"
            yield layout.problem(key, "tensor-parallel", message, "remove it, or write tensor_parallel: 2")


def expert_groups(layout: Settings, settings: Settings, document: Document) -> Problems:
    """Find experts whose groups, which Megatron-Core forms of the devices of a stage, do not divide these, and widths that do not."""
    tensor = layout.size("tensor_parallel")
    among = layout.size("expert_tensor_parallel") if layout.written("expert_tensor_parallel") else tensor
    layers = [each for group in document.groups for each in group.layers if each.on("experts")]
    if document.cluster is None or not layers or not by_megatron(settings):
        return
    of_stage, together = document.cluster.size("devices") // layout.size("pipeline_parallel"), layout.size("expert_parallel") * among
    if of_stage % together:
        message = f"expert_parallel {layout.size('expert_parallel')} * {among} does not divide the {of_stage} devices of a stage"
        yield layout.problem("expert_parallel", "degree", message, f"let their product be {nearest(together, divisors(of_stage))}")
    for each in layers:
        sizes = {"experts.d_ff": (among, "expert_tensor_parallel")}
        sizes |= {"experts.shared.d_ff": (tensor, "tensor_parallel")} if each.on("experts.shared") else {}
        for name, (degree, key) in sizes.items():
            if each.size(name) % degree:
                message = f"{key} {degree} does not divide {name} {each.size(name)}"
                yield layout.problem(key, "degree", message, f"write {nearest(degree, divisors(each.size(name)))}")
                return


def _of_ends(layout: Settings) -> Mapping[str, int]:
    """Return the layers of the first and of the last stage of a pipeline, where they are written."""
    return {key: layout.size(key) for key in ("first_stage_layers", "last_stage_layers") if layout.written(key)}


def unequal_stages(layout: Settings, _: Settings, document: Document) -> Problems:
    """Find layers of the first and of the last stage that leave the other stages no equal number of layers."""
    of_ends, pipeline = _of_ends(layout), layout.size("pipeline_parallel")
    for key in of_ends if pipeline == 1 else ():
        yield layout.problem(key, "stage-layers", f"{key} requires pipeline_parallel above 1", "remove it, or write pipeline_parallel: 2")
    if not of_ends or pipeline == 1:
        return
    layers, inner = n_layers(document), pipeline * layout.size("virtual_stages") - len(of_ends)
    key, rest = list(of_ends)[-1], layers - sum(of_ends.values())
    others = rest + of_ends[key]
    fitting = [others - each * inner for each in range(others // inner, 0, -1)] if inner else [others]
    if of_ends[key] not in fitting:
        written, hint = " and ".join(f"{name} {count}" for name, count in of_ends.items()), nearest(of_ends[key], fitting)
        message = f"{written} of n_layers {layers} leave {rest} layers, which {inner} other stages cannot have in equal parts"
        yield layout.problem(key, "stage-layers", message, f"write {key}: {hint}" if hint else "lower pipeline_parallel or virtual_stages")


def within_expert_parallel(layout: Settings, _: Settings, document: Document) -> Problems:
    """Find imbalance of experts that every device has, and devices that would share experts of a model without any."""
    if layout.get("imbalance") != 1 and layout.size("expert_parallel") == 1:
        message = "imbalance requires expert_parallel above 1"
        yield layout.problem("imbalance", "expert-parallel", message, "remove it, or write expert_parallel: 2")
    if layout.size("expert_parallel") > 1 and not any(layer.on("experts") for group in document.groups for layer in group.layers):
        yield layout.problem("expert_parallel", "expert-parallel", "expert_parallel requires experts, and the model has none", "remove it")


def schedule(layout: Settings, settings: Settings, document: Document) -> Problems:
    """Find schedules without the microbatches and stages that they need."""
    stages, virtual, kind = layout.size("pipeline_parallel"), layout.size("virtual_stages"), layout.get("schedule")
    if stages == 1:
        return
    passes = gradient_accumulation(settings, data_degree(document.cluster, layout))
    fewest = {"1f1b": (stages, "pipeline_parallel"), "dualpipev": (2 * stages, "stages")}.get(str(kind), (1, ""))
    if passes < fewest[0] and not by_megatron(settings):
        message = f"schedule {kind} requires at least {fewest[0]} microbatches ({fewest[1]}), and there are {passes}"
        yield layout.problem("pipeline_parallel", "microbatches", message, f"write gradient_accumulation: {fewest[0]} or more")
    rounds = max(1, passes // stages)
    rounds = stages if by_megatron(settings) else rounds
    if kind in ("interleaved", "zero_bubble") and passes % rounds:
        message = f"schedule {kind} requires a multiple of {rounds} microbatches, one for each round of {stages}, and there are {passes}"
        yield layout.problem("pipeline_parallel", "microbatches", message, f"write gradient_accumulation: {-(-passes // stages) * stages}")
    needed = {"interleaved": ("virtual_stages above 1", virtual > 1)} | dict.fromkeys(V_SHAPED, ("virtual_stages: 2", virtual == ARMS))
    required, fits = needed.get(str(kind), ("", True))
    if not fits:
        message = f"schedule {kind} requires {required}, not {virtual}"
        yield layout.problem("virtual_stages", "virtual-stages", message, "write virtual_stages: 2")


TRAINING = (known_device, reserve, nodes, belongs_together, kernels, global_batch)
LAYOUT = (
    *key_checks(Layout),
    degrees,
    unequal_stages,
    sequences,
    sharing,
    within_tensor_parallel,
    within_expert_parallel,
    expert_groups,
    schedule,
)
