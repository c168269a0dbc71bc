"""Settings to records. Every default that is not a constant of the schema is stated here, once."""

from __future__ import annotations

from datetime import date
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from planner.spec.extra import extra
from planner.spec.language import leaves
from planner.spec.mixers import mixers, names, record
from planner.spec.precision import RECIPES
from planner.spec.records import (
    Attention,
    Claim,
    Experts,
    FeedForward,
    GradientDtype,
    Layer,
    Model,
    MultiTokenPrediction,
    Norm,
    PerLayerEmbedding,
    Positions,
    Precision,
    Run,
    Scenario,
    Spec,
    Training,
    Waiver,
)
from planner.spec.settings import Document, Settings, Unresolved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.spec.extra import Sizes


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
    V: int = settings.get("vocab_size")
    multiple: int = settings.get("pad_vocab_to_multiple_of")
    return Model(
        vocab_size=V,
        padded_vocab_size=-(-V // multiple) * multiple,
        context_length=settings.get("context_length"),
        d_model=settings.get("d_model"),
        n_layers=n_layers(document),
        runs=tuple(Run(group.count, tuple(layer(document, settings) for settings in group.layers)) for group in document.groups),
        positions=_embedded_positions(settings),
        norm=norm(settings),
        embedding_norm=settings.get("embedding_norm"),
        embedding_scale=settings.get("embedding_scale"),
        final_norm=settings.get("final_norm"),
        tied_head=settings.get("head.tied"),
        head_bias=settings.get("head.bias"),
        logit_softcap=_softcap(settings, "head.logit_softcap"),
        embedding_dim=_if_written(settings, "embedding_dim"),
        per_layer_embedding=record(PerLayerEmbedding, settings, "per_layer_embedding") if settings.on("per_layer_embedding") else None,
        prediction=record(MultiTokenPrediction, settings, "prediction") if settings.on("prediction") else None,
        model_type=_if_written(settings, "model_type"),
        extra=extra(settings, sizes(document, settings)),
    )


def n_layers(document: Document) -> int:
    """Return the layers of all runs."""
    return sum(group.count * len(group.layers) for group in document.groups)


def sizes(document: Document, settings: Settings) -> Sizes:
    """Return the sizes that the shapes of extra tensors may name, of a layer or of the model."""
    return {
        "V": lambda: settings.get("vocab_size"),
        "d_model": lambda: settings.get("d_model"),
        "n_layers": lambda: n_layers(document),
        "n_heads": lambda: settings.get("n_heads"),
        "n_kv_heads": lambda: n_kv_heads(settings),
        "head_dim": lambda: head_dim(settings),
        "d_ff": lambda: d_ff(settings),
        "context_length": lambda: settings.get("context_length"),
    }


def layer(document: Document, settings: Settings) -> Layer:
    """Return one layer."""
    return Layer(
        attention=attention(settings) if "attention" in names(settings) else None,
        feed_forward=feed_forward(settings) if has_feed_forward(settings) else None,
        mixers=mixers(settings),
        experts=experts(settings) if settings.on("experts") else None,
        positions=_layer_positions(settings),
        norm=norm(settings),
        norm_placement=settings.get("norm.placement"),
        block=settings.get("block"),
        extra=extra(settings, sizes(document, settings)),
    )


def attention(settings: Settings) -> Attention:
    """Return a layer's attention; n_kv_heads is n_heads unless written."""
    return Attention(
        n_heads=settings.get("n_heads"),
        n_kv_heads=n_kv_heads(settings),
        head_dim=head_dim(settings),
        v_head_dim=_if_written(settings, "attention.v_head_dim"),
        qkv=settings.get("attention.qkv"),
        q_bias=settings.get("attention.bias.q"),
        k_bias=settings.get("attention.bias.k"),
        v_bias=settings.get("attention.bias.v"),
        o_bias=settings.get("attention.bias.o"),
        qk_norm=settings.get("attention.qk_norm"),
        window=settings.get_or_none("attention.window"),
        chunked=settings.get("attention.chunked"),
        logit_softcap=_softcap(settings, "attention.logit_softcap"),
        output_gate=settings.get("attention.output_gate"),
        sinks=settings.get("attention.sinks"),
        output_norm=settings.get("attention.output_norm"),
        keys_as_values=settings.get("attention.keys_as_values"),
        shared_kv=settings.get("attention.shared_kv"),
        differential=settings.get("attention.differential"),
    )


def n_kv_heads(settings: Settings) -> int:
    """Return n_kv_heads, n_heads unless written."""
    heads: int = settings.get("n_kv_heads", settings.get("n_heads"))
    return heads


def head_dim(settings: Settings) -> int:
    """Return head_dim, d_model / n_heads unless written; raises Unresolved where that does not divide."""
    if settings.written("head_dim"):
        written: int = settings.get("head_dim")
        return written
    d_model: int = settings.get("d_model")
    n_heads: int = settings.get("n_heads")
    if d_model % n_heads:
        raise Unresolved("head_dim")
    divided: int = settings.get("head_dim", default_head_dim(d_model, n_heads))
    return divided


def default_head_dim(d_model: int, n_heads: int) -> int:
    """Return the width of a head that is not written."""
    return d_model // n_heads


def default_d_ff(d_model: int) -> int:
    """Return the width of a plain feed-forward that is not written."""
    return 4 * d_model


def has_feed_forward(settings: Settings) -> bool:
    """Return whether a layer has a dense feed-forward, whose place experts take unless they stand beside it."""
    if settings.get("feed_forward.type") == "none":
        return False
    return not settings.on("experts") or bool(settings.get("experts.beside_feed_forward"))


def feed_forward(settings: Settings) -> FeedForward:
    """Return a layer's feed-forward; a plain one has no gate and so no bias of it, and RWKV's channel mixing leaves no choice."""
    type_ = settings.get("feed_forward.type")
    if type_ == "rwkv":
        return FeedForward(d_ff(settings), activation="relu_squared", gate_bias=False, up_bias=False, down_bias=False, channel_mix=True)
    return FeedForward(
        d_ff=d_ff(settings),
        gated=type_ == "gated",
        activation=settings.get("feed_forward.activation"),
        gate_bias=type_ == "gated" and settings.get("feed_forward.bias.gate"),
        up_bias=settings.get("feed_forward.bias.up"),
        down_bias=settings.get("feed_forward.bias.down"),
        hidden_norm=settings.get("feed_forward.hidden_norm"),
    )


def d_ff(settings: Settings) -> int:
    """Return d_ff, 4 * d_model unless written; a gated feed-forward has no usual width."""
    gated = settings.get("feed_forward.type") == "gated"
    width: int = settings.get("d_ff", None if gated else default_d_ff(settings.get("d_model")))
    return width


def experts(settings: Settings) -> Experts:
    """Return a layer's experts."""
    shared = settings.on("experts.shared")
    return Experts(
        **{key: settings.get(f"experts.{key}") for key in _EXPERTS},
        gated=settings.get("experts.type") == "gated",
        shared_d_ff=settings.get("experts.shared.d_ff") if shared else None,
        shared_gate=settings.get("experts.shared.gate") if shared else False,
        latent_dim=settings.get_or_none("experts.latent_dim"),
        capacity_factor=Fraction(settings.get("experts.capacity_factor")),
    )


# Keys of experts that are fields of the record.
_EXPERTS = (
    *("count", "top_k", "d_ff", "activation", "bias", "scoring", "normalize", "scores_dtype"),
    *("router_bias", "correction_bias", "empty"),
)


def _if_written(settings: Settings, key: str) -> Any:  # noqa: ANN401 - the schema has checked what type it is
    """Return a setting that follows from others unless written, which the record says as None."""
    return settings.get(key) if settings.written(key) else None


def _softcap(settings: Settings, key: str) -> Fraction | None:
    cap = settings.get_or_none(key)
    return None if cap is None else Fraction(cap)


def norm(settings: Settings) -> Norm:
    """Return a layer's norm, or the model's; the bias is true for a layernorm with weight, else false, unless written."""
    type_, weight = settings.get("norm.type"), settings.get("norm.weight")
    return Norm(type_, weight, settings.get("norm.bias", type_ == "layernorm" and weight), settings.get("norm.unit_offset"))


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
    """Return the positions as the embedding sees them, to which rotary_dim is nothing."""
    try:
        return _layer_positions(settings)
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
        device=settings.get("device"),
        attention_kernel=settings.get("attention_kernel"),
        loss=settings.get("loss"),
        keep_logits=settings.get("keep_logits"),
        kv_cache=settings.get("kv_cache"),
        optimizer_kernel=settings.get("optimizer_kernel"),
        muon_experts=settings.get("muon_experts"),
        ema=settings.get("ema"),
        reserve_bytes=settings.get("reserve_bytes"),
        round_allocations=settings.get("round_allocations"),
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


def _gradient_dtype(settings: Settings, precision: Precision) -> GradientDtype:
    default, *others = RECIPES[precision].gradients
    chosen: GradientDtype = settings.get("gradient_dtype", default) if others else default
    return chosen


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
