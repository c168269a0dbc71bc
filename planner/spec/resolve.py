"""Settings to records. Every default that is not a constant of the schema is stated here, once."""

from __future__ import annotations

from datetime import date
from fractions import Fraction
from typing import TYPE_CHECKING

from planner.spec.language import leaves
from planner.spec.records import (
    Attention,
    Claim,
    FeedForward,
    GradientDtype,
    Layer,
    Model,
    Norm,
    Positions,
    Run,
    Scenario,
    Spec,
    Training,
    Waiver,
)
from planner.spec.settings import Document, Settings, Unresolved

if TYPE_CHECKING:
    from collections.abc import Iterator


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
        scenarios=tuple(Scenario(name, training(settings, document.model)) for name, settings in document.scenarios),
        sources=() if source is None else tuple(str(node.value) for node in source.elements() or [source]),
        description=text.get("description", ""),
        claims=tuple(_claims(document)),
        places={path: node.mark.place for path, node in document.root.walk()},
        defaulted=tuple(key for key in leaves() if key in document.defaulted),
        tags=tuple(str(node.value) for node in root["tags"].elements()) if "tags" in root else (),
        waivers=tuple(_waivers(document)),
        written=document.root,
    )


def model(document: Document) -> Model:
    """Return the model."""
    settings = document.model
    runs = tuple(Run(group.count, tuple(map(layer, group.layers))) for group in document.groups)
    V: int = settings.get("vocab_size")
    multiple: int = settings.get("pad_vocab_to_multiple_of")
    return Model(
        vocab_size=V,
        padded_vocab_size=-(-V // multiple) * multiple,
        context_length=settings.get("context_length"),
        d_model=settings.get("d_model"),
        n_layers=sum(run.count * len(run.layers) for run in runs),
        runs=runs,
        positions=_embedded_positions(settings),
        norm=norm(settings),
        embedding_norm=settings.get("embedding_norm"),
        final_norm=settings.get("final_norm"),
        tied_head=settings.get("head.tied"),
        head_bias=settings.get("head.bias"),
    )


def layer(settings: Settings) -> Layer:
    """Return one layer."""
    return Layer(
        attention=attention(settings),
        feed_forward=feed_forward(settings),
        positions=positions(settings),
        norm=norm(settings),
        norm_placement=settings.get("norm.placement"),
        block=settings.get("block"),
    )


def attention(settings: Settings) -> Attention:
    """Return a layer's attention; n_kv_heads is n_heads unless written."""
    return Attention(
        n_heads=settings.get("n_heads"),
        n_kv_heads=settings.get("n_kv_heads", settings.get("n_heads")),
        head_dim=head_dim(settings),
        qkv=settings.get("attention.qkv"),
        q_bias=settings.get("attention.bias.q"),
        k_bias=settings.get("attention.bias.k"),
        v_bias=settings.get("attention.bias.v"),
        o_bias=settings.get("attention.bias.o"),
        qk_norm=settings.get("attention.qk_norm"),
    )


def head_dim(settings: Settings) -> int:
    """Return head_dim, d_model / n_heads unless written; raises Unresolved where that does not divide."""
    if settings.written("head_dim"):
        written: int = settings.get("head_dim")
        return written
    d_model: int = settings.get("d_model")
    n_heads: int = settings.get("n_heads")
    if d_model % n_heads:
        raise Unresolved("head_dim")
    divided: int = settings.get("head_dim", d_model // n_heads)
    return divided


def feed_forward(settings: Settings) -> FeedForward:
    """Return a layer's feed-forward; d_ff is 4 * d_model unless written, a plain one has no gate and so no bias of it."""
    gated = settings.get("feed_forward.type") == "gated"
    return FeedForward(
        d_ff=settings.get("d_ff", None if gated else 4 * settings.get("d_model")),
        gated=gated,
        activation=settings.get("feed_forward.activation"),
        gate_bias=gated and settings.get("feed_forward.bias.gate"),
        up_bias=settings.get("feed_forward.bias.up"),
        down_bias=settings.get("feed_forward.bias.down"),
    )


def norm(settings: Settings) -> Norm:
    """Return a layer's norm, or the model's; the bias is true for a layernorm with weight, else false, unless written."""
    type_, weight = settings.get("norm.type"), settings.get("norm.weight")
    return Norm(type_, weight, settings.get("norm.bias", type_ == "layernorm" and weight))


def positions(settings: Settings) -> Positions:
    """Return a layer's positions; rotary_dim is head_dim unless written."""
    type_ = settings.get("positions.type")
    return Positions(
        type_,
        offset=settings.get("positions.offset") if type_ == "learned" else 0,
        rotary_dim=settings.get("positions.rotary_dim", head_dim(settings)) if type_ == "rope" else 0,
    )


def _embedded_positions(settings: Settings) -> Positions:
    """Return the positions as the embedding sees them, to which rotary_dim is nothing."""
    try:
        return positions(settings)
    except Unresolved:  # rope whose heads only the runs describe
        return Positions(settings.get("positions.type"))


def training(settings: Settings, model: Settings) -> Training:
    """Return one way of training; sequence_length is context_length unless written."""
    precision = settings.get("precision")
    return Training(
        batch_size=settings.get("batch_size"),
        sequence_length=sequence_length(settings, model),
        gradient_accumulation=settings.get("gradient_accumulation"),
        tokens=tokens(settings, model),
        precision=precision,
        gradient_dtype=_gradient_dtype(settings, precision),
        optimizer=settings.get("optimizer"),
        dropout=Fraction(settings.get("dropout")),
        recompute=settings.get("recompute"),
        implementation=settings.get("implementation"),
        flops_convention=settings.get("flops_convention"),
    )


def sequence_length(settings: Settings, model: Settings) -> int:
    """Return n."""
    n: int = settings.get("sequence_length", model.get("context_length"))
    return n


def tokens(settings: Settings, model: Settings) -> int | None:
    """Return the tokens of the whole training, from the steps where they are written instead; None where neither is."""
    if settings.written("tokens"):
        written: int = settings.get("tokens")
        return written
    if settings.written("steps"):
        return step_tokens(settings, model) * int(settings.get("steps"))
    return None


def step_tokens(settings: Settings, model: Settings) -> int:
    """Return the tokens of one optimizer step: B * n * gradient_accumulation."""
    B: int = settings.get("batch_size")
    accumulated: int = settings.get("gradient_accumulation")
    return B * sequence_length(settings, model) * accumulated


def _gradient_dtype(settings: Settings, precision: str) -> GradientDtype:
    if precision == "bf16-master":
        chosen: GradientDtype = settings.get("gradient_dtype", "fp32")
        return chosen
    return "bf16" if precision == "bf16" else "fp32"


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
