"""Settings to records: what a field states is read mechanically."""

from __future__ import annotations

from datetime import date
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from planner.spec.amount import BYTES, amount
from planner.spec.defaults import (
    OF_LAYER,
    RULES,
    bytes_of,
    context_length,
    d_ff,
    device,
    encoder_length,
    gradient_accumulation,
    has_feed_forward,
    head_dim,
    images,
    kernels_of,
    prompt_length,
    sequence_length,
    served_on,
    tokens,
    vocab_size,
)
from planner.spec.extra import extra
from planner.spec.key import held, keys, of_the_layer
from planner.spec.language import leaves
from planner.spec.mixers import RECORDS, names
from planner.spec.nodes import Node
from planner.spec.records import (
    Attention,
    Cluster,
    FeedForward,
    Layer,
    Layout,
    Model,
    Norm,
    Positions,
    Run,
    Serving,
    Training,
)
from planner.spec.records.document import Claim, Scenario, Spec, Waiver
from planner.spec.settings import Document, Settings, Unresolved

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def feed_forward(settings: Settings) -> FeedForward:
    """Return a layer's feed-forward; a plain one has no gate and so no bias of it, and RWKV's channel mixing leaves no choice."""
    type_ = settings.get("feed_forward.type")
    if type_ == "rwkv":
        return FeedForward(d_ff(settings), activation="relu_squared", gate_bias=False, up_bias=False, down_bias=False, channel_mix=True)
    no_gate = {} if type_ == "gated" else {"gate_bias": False}
    return made(FeedForward, settings, "feed_forward.", gated=type_ == "gated", **no_gate)


def positions(settings: Settings) -> Positions:
    """Return a layer's positions; rotary_dim is head_dim unless written."""
    type_ = settings.get("positions.type")
    if type_ == "bucketed":
        return Positions(type_, buckets=settings.get("positions.buckets"), per_layer=settings.get("positions.per_layer"))
    return Positions(
        type_,
        offset=settings.get("positions.offset") if type_ == "learned" else 0,
        frozen=type_ == "learned" and bool(settings.get("positions.frozen")),
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
        "encoder_length": encoder_length(settings, model),
        "images": images(settings, model),
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
    amounts = {"device": name, "memory_bytes": memory_bytes, "cache_bytes": bytes_of(settings, "cache_memory")}
    return made(Serving, settings, "", prompt=prompt_length(settings, model), **amounts)


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
