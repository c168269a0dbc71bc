"""Settings to records. What a field states is read mechanically; every default that rests on other settings is stated here, once."""

from __future__ import annotations

from dataclasses import fields
from datetime import date
from fractions import Fraction
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

from planner import devices
from planner.spec.amount import BYTES, amount, fraction
from planner.spec.extra import extra
from planner.spec.key import held, keys, of_the_layer
from planner.spec.language import leaves
from planner.spec.mixers import RECORDS, names
from planner.spec.nodes import UNREADABLE, Node
from planner.spec.precision import RECIPES
from planner.spec.records import (
    Adapters,
    Attention,
    Cluster,
    Device,
    Experts,
    FeedForward,
    GradientDtype,
    Layer,
    Layout,
    Liger,
    Model,
    Norm,
    Patches,
    Positions,
    Run,
    Serving,
    Training,
)
from planner.spec.records.document import Claim, Scenario, Spec, Waiver
from planner.spec.records.mixers import Mamba, ShortConvolution
from planner.spec.settings import Document, Settings, Unresolved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from planner.spec.extra import Sizes
    from planner.spec.key import Key

Kind = TypeVar("Kind")


def resolve(document: Document, file: str) -> Spec:
    """Return the record of a spec that has no problems."""
    root = document.root.items()
    resolved = model(document)
    text = {key: str(root[key].value) for key in ("name", "description") if key in root}
    source = root.get("source")
    return Spec(
        name=text["name"],
        path=file,
        model=resolved,
        scenarios=tuple(
            Scenario(name, training(settings, document.model, layout(document.cluster, laid)))
            for (name, _), (settings, laid) in zip(document.scenarios, document.on_devices, strict=True)
        ),
        serving=serving(document.serving, document.model, document.cluster),
        sources=() if source is None else tuple(str(node.value) for node in source.elements() or [source]),
        description=text.get("description", ""),
        claims=tuple(_claims(document)),
        places={path: node.mark.place for path, node in document.root.walk()},
        defaulted=tuple(key for key in leaves() if key in document.defaulted),
        tags=_texts(root.get("tags")),
        omits=_texts(root.get("omits")),
        waivers=tuple(_waivers(document)),
        written=document.root,
    )


def _texts(written: Node | None) -> tuple[str, ...]:
    return tuple(str(node.value) for node in written.elements()) if written else ()


def words(settings: Settings, *, key: str) -> tuple[str, ...]:
    """Return a word, or several. Raises Unresolved."""
    written = settings.written(key)
    if written is None:
        default = leaves()[f"{settings.section}.{key}"].get("default")
        return (settings.get(key),) if default else ()
    found = [node.value for node in written.elements() or [written]]
    if UNREADABLE in found:
        raise Unresolved(key)
    return tuple(str(word) for word in found)


def made(kind: type[Kind], settings: Settings, group: str = "", **found: object) -> Kind:
    """Return a record of the settings of a group (``attention.``), but for the fields that are found already."""
    found |= {name: rule(settings) for name, rule in RULES.get(kind, {}).items()}
    found |= {name: OF_LAYER[name](settings) for name in of_the_layer(kind)}
    off: list[str] = []
    for field, key in keys(kind):
        path = key.path or field.name
        if not held(kind, field):
            off += [f"{path}."] if key.form == "none" and not settings.on(group + path) else []
        elif field.name not in found and not path.startswith(tuple(off)):
            found[field.name] = _value(settings, group + path, field.type, key)
    return kind(**found)


def _value(settings: Settings, path: str, type_: object, key: Key) -> object:
    """Return a setting as the record has it; where it is another setting unless written, the record has None."""
    if key.kind:
        return made(key.kind, settings, f"{path}.") if key.form == "mapping" or settings.on(path) else None
    if key.derived and not settings.written(path):
        return None
    value = settings.get_or_none(path) if key.none else settings.get(path)
    return Fraction(str(value)) if value is not None and str(type_).startswith("Fraction") else value


def model(document: Document) -> Model:
    """Return the model."""
    settings = document.model
    V, multiple = vocab_size(settings), settings.size("pad_vocab_to_multiple_of")
    return made(
        Model,
        settings,
        padded_vocab_size=-(-V // multiple) * multiple,
        vocab_multiple=multiple,
        n_layers=n_layers(document),
        runs=tuple(Run(group.count, tuple(layer(document, settings) for settings in group.layers)) for group in document.groups),
        positions=_embedded_positions(settings),
        norm=made(Norm, settings, "norm."),
        extra=extra(settings, sizes(document, settings)),
    )


def vocab_size(settings: Settings) -> int:
    """Return the rows of the token embedding, of which there are none if patches replace tokens: then the classes."""
    return settings.size("vocab_size", settings.size("head.classes") if settings.on("patches") else None)


def context_length(settings: Settings) -> int:
    """Return the longest sequence, that of an image unless written."""
    return settings.size("context_length", made(Patches, settings, "patches.").length if settings.on("patches") else None)


def n_layers(document: Document) -> int:
    """Return the layers of all runs."""
    return sum(group.count * len(group.layers) for group in document.groups)


def sizes(document: Document, settings: Settings) -> Sizes:
    """Return the sizes that the shapes of extra tensors may name, of a layer or of the model."""
    return {
        "V": lambda: vocab_size(settings),
        "d_model": lambda: settings.get("d_model"),
        "n_layers": lambda: n_layers(document),
        "context_length": lambda: context_length(settings),
        **{name: partial(rule, settings) for name, rule in OF_LAYER.items()},
    }


def layer(document: Document, settings: Settings) -> Layer:
    """Return one layer."""
    mixed = names(settings)
    return made(
        Layer,
        settings,
        attention=made(Attention, settings, "attention.") if "attention" in mixed else None,
        feed_forward=feed_forward(settings) if has_feed_forward(settings) else None,
        mixers=tuple(made(RECORDS[name], settings, f"{name}.") for name in mixed if name != "attention"),
        positions=_layer_positions(settings),
        extra=extra(settings, sizes(document, settings)),
    )


def n_kv_heads(settings: Settings) -> int:
    """Return n_kv_heads, n_heads unless written."""
    return settings.size("n_kv_heads", settings.size("n_heads"))


def head_dim(settings: Settings) -> int:
    """Return head_dim, d_model / n_heads unless written; raises Unresolved where that does not divide."""
    if settings.written("head_dim"):
        return settings.size("head_dim")
    d_model, n_heads = settings.size("d_model"), settings.size("n_heads")
    if d_model % n_heads:
        raise Unresolved("head_dim")
    return settings.size("head_dim", default_head_dim(d_model, n_heads))


def default_head_dim(d_model: int, n_heads: int) -> int:
    """Return the width of a head that is not written."""
    return d_model // n_heads


def default_d_ff(d_model: int) -> int:
    """Return the width of a plain feed-forward that is not written."""
    return 4 * d_model


def has_feed_forward(settings: Settings) -> bool:
    """Return whether a layer has a dense feed-forward, which experts replace unless ``beside_feed_forward`` is set."""
    if settings.get("feed_forward.type") == "none":
        return False
    return not settings.on("experts") or bool(settings.get("experts.beside_feed_forward"))


def feed_forward(settings: Settings) -> FeedForward:
    """Return a layer's feed-forward; a plain one has no gate and so no bias of it, and RWKV's channel mixing leaves no choice."""
    type_ = settings.get("feed_forward.type")
    if type_ == "rwkv":
        return FeedForward(d_ff(settings), activation="relu_squared", gate_bias=False, up_bias=False, down_bias=False, channel_mix=True)
    no_gate = {} if type_ == "gated" else {"gate_bias": False}
    return made(FeedForward, settings, "feed_forward.", gated=type_ == "gated", **no_gate)


def d_ff(settings: Settings) -> int:
    """Return d_ff, 4 * d_model unless written; a gated feed-forward has no usual width."""
    gated = settings.get("feed_forward.type") == "gated"
    return settings.size("d_ff", None if gated else default_d_ff(settings.size("d_model")))


def positions(settings: Settings) -> Positions:
    """Return a layer's positions; rotary_dim is head_dim unless written."""
    type_ = settings.get("positions.type")
    return Positions(
        type_,
        offset=settings.get("positions.offset") if type_ == "learned" else 0,
        rotary_dim=settings.get("positions.rotary_dim", head_dim(settings)) if type_ == "rope" else 0,
    )


def _layer_positions(settings: Settings) -> Positions:
    """Return the positions that a layer's mixers know: latent attention rotates channels of its own, and only attention rotates any."""
    mixed, type_ = names(settings), settings.get("positions.type")
    if "attention" in mixed or type_ not in ("rope", "alibi"):
        return positions(settings)
    if "latent_attention" in mixed:
        return Positions(type_, rotary_dim=settings.get("latent_attention.rope_dim"))
    return Positions("none")


def _embedded_positions(settings: Settings) -> Positions:
    """Return the positions of the model: rotary ones also if no layer has attention, since the model still makes cosines and sines."""
    try:
        made = _layer_positions(settings)
        return positions(settings) if made.type == "none" and settings.get("positions.type") == "rope" else made
    except Unresolved:  # rope whose heads only the runs describe
        return Positions(settings.get("positions.type"))


def training(settings: Settings, model: Settings, layout: Layout | None = None) -> Training:
    """Return one way of training."""
    degree = layout.data_degree if layout else 1
    found: dict[str, object] = {
        "sequence_length": sequence_length(settings, model),
        "tokens": tokens(settings, model, degree),
        "gradient_accumulation": gradient_accumulation(settings, degree),
    }
    if layout and not settings.written("device") and (kernels := kernels_of(layout.cluster.device)):
        found["device"] = kernels
    return made(Training, settings, "", layout=layout, **found)


def layout(cluster: Settings | None, settings: Settings | None) -> Layout | None:
    """Return a layout on the cluster: without keys, that of one device. None without a cluster."""
    if cluster is None:
        return None
    name, memory_bytes = device(cluster)
    found: dict[str, object] = {"device": name, "memory_bytes": memory_bytes, "reserve_bytes": amount(cluster.get("reserve"), BYTES)}
    on = made(Cluster, cluster, "", **found)
    return made(Layout, settings or Settings(Node(cluster.node.mark, {}), "layout", cluster.defaulted), cluster=on)


def serving(settings: Settings | None, model: Settings, cluster: Settings | None) -> Serving | None:
    """Return how the model is served, None if the spec does not say."""
    if settings is None:
        return None
    name, memory_bytes = served_on(settings, cluster)
    amounts = {"device": name, "memory_bytes": memory_bytes, "cache_bytes": _amount(settings, "cache_memory")}
    return made(Serving, settings, "", prompt=prompt_length(settings, model), **amounts)


def prompt_length(settings: Settings, model: Settings) -> int:
    """Return the tokens of a prompt: what outputs leave of the context unless written."""
    return settings.size("prompt", context_length(model) - settings.size("output"))


def served_on(settings: Settings, cluster: Settings | None) -> tuple[str | None, int | None]:
    """Return the device that serves the model, if it is in the catalog, and its memory: the cluster's unless written. Raises Unresolved."""
    if not settings.written("memory"):
        return device(cluster) if cluster else (None, None)
    known = devices.find(settings.get("memory"))
    return (known.name, known.memory_bytes) if known else (None, _amount(settings, "memory"))


def _amount(settings: Settings, key: str) -> int | None:
    if not settings.written(key):
        return None
    found = whole_amount(settings.get(key))
    if found is None:
        raise Unresolved(key)
    return found


def whole_amount(text: str) -> int | None:
    """Return an amount of memory in whole bytes, of a rounded one those below it: 3.81GiB, as a log prints it. None if it is not one."""
    value = fraction(text, BYTES)
    return int(value) if value else None


def data_degree(cluster: Settings | None, layout: Settings | None) -> int:
    """Return the devices that read different data. Raises Unresolved if the other degrees do not divide the devices."""
    if cluster is None:
        return 1
    degrees = [layout.size(key) for key in MODEL_DEGREES] if layout else []
    if cluster.size("devices") % prod(degrees):
        raise Unresolved("devices")
    return cluster.size("devices") // prod(degrees)


MODEL_DEGREES = ("tensor_parallel", "pipeline_parallel", "context_parallel")


def device(cluster: Settings) -> tuple[str, int]:
    """Return the name of the cluster's devices and the memory of one. Raises Unresolved for no or an unknown device, or amount."""
    if not cluster.written("device"):
        raise Unresolved("device")
    written = cluster.get("device")
    if isinstance(written, str):
        if known := devices.find(written):
            return known.name, known.memory_bytes
    elif (size := amount(str(cluster.get("device.memory")), BYTES)) is not None:
        return f"device with {cluster.get('device.memory')}", size
    raise Unresolved("device")


def per_node(cluster: Settings) -> int:
    """Return the devices of a full node, as in the device catalog unless written."""
    written = cluster.get("device") if cluster.written("device") else None
    known = devices.find(written) if isinstance(written, str) else None
    return cluster.size("per_node", known.per_node if known else devices.PER_NODE)


def kernels_of(device: str) -> Device | None:
    """Return the device class whose kernels PyTorch chooses on a device of the catalog, None if that was not measured."""
    return next((kind for kind, families in KERNELS.items() if device.partition("-")[0] in families), None)


KERNELS: dict[Device, tuple[str, ...]] = {"a100": ("A100", "A800"), "h100": ("H100", "H800", "H200", "H20", "GH200")}


def sequence_length(settings: Settings, model: Settings) -> int:
    """Return n, context_length unless written."""
    return settings.size("sequence_length", context_length(model))


def tokens(settings: Settings, model: Settings, degree: int) -> int | None:
    """Return the tokens of the whole training, from the steps where they are written instead; None where neither is."""
    if settings.written("tokens"):
        return settings.size("tokens")
    if settings.written("steps"):
        return step_tokens(settings, model, degree) * settings.size("steps")
    return None


def step_tokens(settings: Settings, model: Settings, degree: int) -> int:
    """Return the tokens of one optimizer step: B * n * gradient_accumulation * the data-parallel devices."""
    passes = gradient_accumulation(settings, degree)
    return settings.size("batch_size") * sequence_length(settings, model) * passes * degree


def gradient_accumulation(settings: Settings, degree: int) -> int:
    """Return the passes per optimizer step, from the global batch where that is written. Raises Unresolved if it does not divide."""
    if not settings.written("global_batch_size"):
        return settings.size("gradient_accumulation")
    sequences, together = settings.size("global_batch_size"), settings.size("batch_size") * degree
    if sequences % together:
        raise Unresolved("global_batch_size")
    return sequences // together


def gradient_dtype_of(settings: Settings) -> GradientDtype:
    """Return the dtype of gradients: the chosen one if the precision has a choice."""
    default, *others = RECIPES[settings.get("precision")].gradients
    chosen: GradientDtype = settings.get("gradient_dtype", default) if others else default
    return chosen


def input_gradients(settings: Settings) -> bool:
    """Return whether the embedded tokens require a gradient: a model with adapters makes them do so for recomputation."""
    recomputes = settings.get("recompute") == "full" and str(settings.get("implementation")).startswith("transformers")
    return bool(settings.get("input_gradients")) if settings.written("input_gradients") else recomputes and settings.on("adapters")


def liger_of(settings: Settings) -> Liger | None:
    """Return the switches of liger-kernel, None if it is off."""
    written = settings.written("liger")
    if written is None or written.value is False:
        return None
    return Liger(**{one.name: settings.get(f"liger.{one.name}") for one in fields(Liger) if one.name in written.items()})


# What rests on other settings: fields of all records that take a key of the layer, and fields of one record.
OF_LAYER: dict[str, Callable[[Settings], int]] = {
    "n_heads": lambda settings: settings.size("n_heads"),
    "n_kv_heads": n_kv_heads,
    "head_dim": head_dim,
    "d_ff": d_ff,
}
RULES: dict[type[Any], dict[str, Callable[[Settings], object]]] = {
    Model: {"vocab_size": vocab_size, "context_length": context_length},
    Norm: {"bias": lambda settings: settings.get("norm.bias", settings.get("norm.type") == "layernorm" and settings.get("norm.weight"))},
    Experts: {"gated": lambda settings: settings.get("experts.type") == "gated"},
    Mamba: {"dt_rank": lambda settings: settings.get("mamba.dt_rank", -(-settings.get("d_model") // 16))},  # modules/mamba_simple.py
    ShortConvolution: {"width": lambda settings: settings.get("short_convolution.width", settings.get("d_model"))},
    Cluster: {"per_node": lambda settings: min(per_node(settings), settings.size("devices"))},
    Adapters: {name: partial(words, key=f"adapters.{name}") for name in ("targets", "feedforward", "layers")},
    Training: {
        "gradient_dtype": gradient_dtype_of,
        "liger": liger_of,
        "input_gradients": input_gradients,
        **{name: partial(words, key=name) for name in ("train", "also_train")},
    },
}


def _claims(document: Document) -> Iterator[Claim]:
    expect = document.root.items().get("expect")
    for figure, node in (expect.items() if expect else {}).items():
        if isinstance(node.value, int):
            yield Claim(figure, node.value, node.mark.place)


def _waivers(document: Document) -> Iterator[Waiver]:
    written = document.root.items().get("waivers")
    for node in written.elements() if written else ():
        said = {key: str(inner.value) for key, inner in node.items().items()}
        yield Waiver(said["budget"], said["reason"], date.fromisoformat(said["until"]), node.items()["budget"].mark.place)
