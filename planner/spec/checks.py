"""Checks across settings, which a schema cannot express. Each check is a function; it reports nothing if it depends on an invalid value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date
from itertools import chain
from typing import TYPE_CHECKING

from planner.spec import layout_checks, part_checks, stack_checks
from planner.spec.defaults import (
    context_length,
    data_degree,
    gradient_dtype_of,
    has_feed_forward,
    head_dim,
    liger_of,
    n_kv_heads,
    sequence_length,
    step_tokens,
)
from planner.spec.key_checks import key_checks
from planner.spec.liger import LOSSES, switches_on
from planner.spec.mixers import names
from planner.spec.part_checks import attends
from planner.spec.precision import GRADIENTS, RECIPES
from planner.spec.problems import Problem, quote
from planner.spec.records import Base, Layer, Model, Norm, RecomputeModules, Training
from planner.spec.records.training import CHOOSES_KERNEL
from planner.spec.serving_checks import SERVING
from planner.spec.settings import Document, Settings, Unresolved
from planner.spec.tuning_checks import TUNING

if TYPE_CHECKING:
    from collections.abc import Iterable

Problems = Iterator[Problem]

MOST_LAYERS = 512  # listed and different; the deepest published models have fewer than 200
MOST_TRACED = 4096  # in all scenarios


def check(document: Document) -> tuple[Problem, ...]:
    """Return everything that does not go together in a spec."""
    if too_many := tuple(cost(document)):
        return too_many
    model = document.model
    layers = [settings for group in document.groups for settings in group.layers]
    found: Iterable[Problem] = chain(
        _run(_DOCUMENT, document),
        _run(_MODEL, model),
        _run(_NORM, model),  # of the final norm, which no layer need share
        *(_run(_LAYER, settings) for settings in layers),
        *(_run(_ATTENTION, settings) for settings in layers if "attention" in _mixers(settings)),
        *(_run(_TRAINING, settings, model) for _, settings in document.scenarios),
        *(_run(_WITH_MODEL, settings, document) for _, settings in document.scenarios),
        *(_run((tokens_and_steps, *layout_checks.TRAINING), settings, document, laid) for settings, laid in document.on_devices),
        _run(SERVING, document.serving, document) if document.serving else (),
        *(_run(layout_checks.LAYOUT, laid, settings, document) for settings, laid in document.on_devices if laid and document.cluster),
    )
    return tuple(dict.fromkeys(found))  # a setting that layers share is wrong once


def _mixers(settings: Settings) -> tuple[str, ...]:
    try:
        return names(settings)
    except Unresolved:
        return ()


def _run(checks: Iterable[Callable[..., Problems]], *sections: Document | Settings | None) -> Problems:
    for each in checks:
        try:
            yield from each(*sections)
        except Unresolved:
            continue


def n_layers(document: Document) -> Problems:
    """n_layers is the sum over the runs."""
    if document.model.written("layers") and document.model.written("n_layers"):
        said, summed = document.model.get("n_layers"), sum(group.count * len(group.layers) for group in document.groups)
        if said != summed:
            message, hint = f"n_layers is {said}, but layers defines {summed} layers", f"write n_layers: {summed}, or remove it"
            yield document.model.problem("n_layers", "layer-count", message, hint)


def cost(document: Document) -> Problems:
    """Layers that differ are few, since a plan takes time for each of them in each scenario."""
    listed, scenarios = sum(len(group.layers) for group in document.groups), len(document.scenarios)
    hint = "write layers that repeat as a group with a count"
    if listed > MOST_LAYERS:
        message = f"layers lists {listed:,} layers, not counting equal ones in a row; at most {MOST_LAYERS} can be planned"
        yield document.model.problem("layers", "too-many-layers", message, hint)
    elif listed * scenarios > MOST_TRACED:
        message = f"{listed:,} listed layers in {scenarios} scenarios are more than {MOST_TRACED:,} together"
        yield document.model.problem("layers", "too-many-layers", message, hint)


def run_positions(document: Document) -> Problems:
    """Learned and sinusoidal positions are added at the embedding, so a run cannot bring them in."""
    embedded = _added_positions(document.model)
    for group in document.groups:
        for settings in group.layers:
            own = _added_positions(settings)
            if own and own != embedded:
                message = f"{own[0]} positions are added at the embedding, not in a run of layers"
                yield settings.problem("positions", "run-positions", message, "write them under model.positions")


def _added_positions(settings: Settings) -> tuple[str, int] | None:
    type_ = settings.get("positions.type")
    return (type_, settings.get("positions.offset", 0)) if type_ in ("learned", "sinusoidal") else None


def scenario_names(document: Document) -> Problems:
    """Every scenario has its own name."""
    seen = {"base": ""}
    written = document.root.items().get("scenarios")
    for (name, _), node in zip(document.scenarios[1:], written.elements() if written else (), strict=True):
        mark = node.items()["name"].mark if "name" in node.items() else node.mark
        if name == "base":
            yield mark.problem("scenario-name", "'base' is reserved for the spec's own training section", "rename the scenario")
        elif name in seen:
            yield mark.problem("scenario-name", f"duplicate scenario {quote(name)} (first used on line {seen[name]})", "rename one of them")
        if name:
            seen.setdefault(name, str(mark.line + 1))


def waiver_dates(document: Document) -> Problems:
    """Waivers end on days of the calendar."""
    written = document.root.items().get("waivers")
    for number, node in enumerate(written.elements() if written else ()):
        until = node.items().get("until")
        if until is None or not isinstance(until.value, str):
            continue
        if not _DATE.fullmatch(until.value) or not _is_a_day(until.value):
            message = f"invalid date {quote(until.value)} for waivers[{number}].until"
            yield until.mark.problem("date", message, "use YYYY-MM-DD, for example 2027-01-31")


_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _is_a_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def heads_divide_width(settings: Settings) -> Problems:
    """d_model / n_heads is whole where head_dim is not written."""
    d_model, n_heads = settings.get("d_model"), settings.get("n_heads")
    if not settings.written("head_dim") and d_model % n_heads:
        message = f"n_heads {n_heads} does not divide d_model {d_model}"
        yield settings.problem("n_heads", "head-dim", message, "write head_dim, or make d_model a multiple of n_heads")


def kv_heads_divide_heads(settings: Settings) -> Problems:
    """Each key and value head serves as many query heads."""
    heads, kv_heads = settings.get("n_heads"), n_kv_heads(settings)
    if heads % kv_heads:
        message = f"n_kv_heads {kv_heads} does not divide n_heads {heads}"
        yield settings.problem("n_kv_heads", "kv-heads", message, "n_heads must be a multiple of n_kv_heads")


def fused_bias(settings: Settings) -> Problems:
    """One matrix for q, k and v has one bias vector or none."""
    qkv = settings.get("attention.qkv")
    biases = {settings.get(f"attention.bias.{part}") for part in "qkv"}
    if qkv != "separate" and len(biases) > 1:
        message = f"q, k and v are one matrix (qkv: {qkv}), which has a bias for all of them or none"
        yield settings.problem("attention.bias", "fused-bias", message, "write attention.qkv: separate, or give q, k and v the same")


def fused_per_head(settings: Settings) -> Problems:
    """q, k and v head by head need as many key and value heads as query heads."""
    heads, kv_heads = settings.get("n_heads"), n_kv_heads(settings)
    if settings.get("attention.qkv") == "fused_per_head" and heads != kv_heads:
        message = f"fused_per_head lays out q, k and v of each head, but n_kv_heads {kv_heads} is not n_heads {heads}"
        yield settings.problem("attention.qkv", "fused-per-head", message, "write qkv: fused")


def gated_d_ff(settings: Settings) -> Problems:
    """Without d_ff a gated feed-forward has no usual width."""
    if settings.get("feed_forward.type") == "gated" and not settings.written("d_ff") and has_feed_forward(settings):
        yield settings.problem("feed_forward.type", "d-ff", "a gated feed-forward requires d_ff: it has no default", "write d_ff")


def gate_bias(settings: Settings) -> Problems:
    """Only a gated feed-forward has a gate."""
    bias = settings.written("feed_forward.bias")
    gate = bias.items().get("gate") if bias else None
    if gate and gate.value is True and settings.get("feed_forward.type") == "plain":
        hint = "remove gate, or write feed_forward.type: gated"
        yield settings.problem("feed_forward.bias.gate", "gate-bias", "a plain feed-forward has no gate to give a bias", hint)


def parallel_placement(settings: Settings) -> Problems:
    """In a parallel block, attention and feed-forward read normed input."""
    block, placement = settings.get("block"), settings.get("norm.placement")
    if block != "sequential" and placement != "before":
        key = "norm.placement" if settings.written("norm.placement") else "block"
        message = f"block {block} has its norms before the sublayers, not {placement}"
        yield settings.problem(key, "parallel-placement", message, "write norm.placement: before, or block: sequential")


def rotary_dim(settings: Settings) -> Problems:
    """Rope rotates pairs of a head's channels."""
    if settings.get("positions.type") != "rope" or not attends(settings):
        return
    written = settings.written("positions.rotary_dim")
    rotated = settings.get("positions.rotary_dim") if written else head_dim(settings)
    key = "positions.rotary_dim" if written else "head_dim" if settings.written("head_dim") else "n_heads"
    if rotated % 2:
        name = "rotary_dim" if written else "head_dim"
        yield settings.problem(key, "rotary-dim", f"rope rotates pairs of channels, and {name} {rotated} is odd", "make it even")
    if rotated > head_dim(settings):
        message = f"rotary_dim {rotated} exceeds head_dim {head_dim(settings)}"
        yield settings.problem(key, "rotary-dim", message, f"write at most {head_dim(settings)}")


def sequence_in_context(settings: Settings, model: Settings) -> Problems:
    """Learned positions end at context_length."""
    n, longest = sequence_length(settings, model), context_length(model)
    if model.get("positions.type") == "learned" and n > longest:
        message = f"sequence_length {n} exceeds context_length {longest}, the size of the learned position embedding"
        yield settings.problem("sequence_length", "context-length", message, f"write at most {longest}, or raise context_length")


def gradient_dtype(settings: Settings, _: Settings) -> Problems:
    """Only a precision with a choice of gradients takes one."""
    precision = settings.get("precision")
    choosers = [name for name, recipe in RECIPES.items() if len(recipe.gradients) > 1]
    if settings.written("gradient_dtype") and precision not in choosers:
        message = f"gradient_dtype requires precision: {' or '.join(choosers)}, not {precision}"
        yield settings.problem("gradient_dtype", "gradient-dtype", message, "remove it")
    elif settings.written("gradient_dtype") and (chosen := settings.get("gradient_dtype")) not in RECIPES[precision].gradients:
        choices = " or ".join(RECIPES[precision].gradients)
        yield settings.problem(
            "gradient_dtype", "gradient-dtype", f"precision {precision} has no gradients in {chosen}", f"write {choices}"
        )


def tokens_and_steps(settings: Settings, document: Document, laid: Settings | None) -> Problems:
    """Both tokens and steps state the same fact."""
    if settings.written("tokens") and settings.written("steps"):
        each = step_tokens(settings, document.model, data_degree(document.cluster, laid))
        said, steps = settings.get("tokens"), settings.get("steps")
        if said != steps * each:
            message = f"tokens is {said}, but {steps} steps of {each} tokens (B * n * gradient_accumulation) are {steps * each}"
            yield settings.problem("tokens", "tokens-steps", message, "keep one of tokens and steps")


def soap(settings: Settings, _: Settings) -> Problems:
    """SOAP counts steps of all weights, but 16-bit gradients are copied to float32 in a step per weight."""
    precision, recipe = settings.get("precision"), RECIPES[settings.get("precision")]
    if settings.get("optimizer") == "soap" and recipe.master and GRADIENTS[gradient_dtype_of(settings)] == recipe.weights:
        message = f"optimizer soap requires gradient_dtype fp32 with precision {precision}"
        yield settings.problem("optimizer", "soap", message, "write gradient_dtype: fp32")


def optimizer_in_backward(settings: Settings, _: Settings) -> Problems:
    """Gradients can be used at once only if nothing else waits for them: other passes, scaling, copies in another dtype."""
    if not settings.get("optimizer_in_backward"):
        return
    for name, allowed in (("gradient_accumulation", (1,)), ("precision", ("fp32", "bf16-autocast", "bf16"))):
        if settings.get(name) not in allowed:
            message = f"optimizer_in_backward requires {name} {' or '.join(map(str, allowed))}, not {settings.get(name)}"
            yield settings.problem("optimizer_in_backward", "optimizer-in-backward", message, f"remove it, or write {name}: {allowed[0]}")
    if (optimizer := settings.get("optimizer")) in ("muon", "soap"):
        message = f"optimizer_in_backward is not supported with optimizer {optimizer}"
        yield settings.problem("optimizer_in_backward", "optimizer-in-backward", message, "remove it, or write another optimizer")


def kernels(settings: Settings, _: Document) -> Problems:
    """Attention has no kernel of every name on every device, nor for every dtype."""
    kernel, precision = settings.get("attention_kernel"), settings.get("precision")
    if kernel in ("flash", "cudnn") and RECIPES[precision].compute == "float32":
        message = f"{kernel} attention computes in 16 bits, and the precision is {precision}"
        yield settings.problem("attention_kernel", "attention-kernel", message, "write efficient or math, or another precision")
    if kernel in ("efficient", "cudnn") and settings.get("device") == "cpu":
        yield settings.problem("attention_kernel", "attention-kernel", f"a CPU has no {kernel} attention", "write auto, flash or math")


def capped_scores(settings: Settings, document: Document) -> Problems:
    """Fused attention cannot cap the scores. Classes of transformers that cap them have none."""
    implementation = settings.get("implementation")
    if implementation == "transformers" or implementation not in (*CHOOSES_KERNEL, "torchtitan"):
        return
    for layer in (layer for group in document.groups for layer in group.layers):
        if attends(layer) and layer.get_or_none("attention.logit_softcap") is not None:
            section, key = (settings, "implementation") if settings.written("implementation") else (layer, "attention.logit_softcap")
            message = f"the fused attention of implementation {implementation} cannot cap the scores (attention.logit_softcap)"
            yield section.problem(key, "softcap", message, "write training.implementation: pytorch-eager")


def capped_logits(settings: Settings, document: Document) -> Problems:
    """Only a loss of logits can have them capped."""
    loss = settings.get("loss")
    if loss.startswith("linear") and document.model.get_or_none("head.logit_softcap") is not None:
        message = f"loss {loss} projects by the head itself and cannot cap the logits (head.logit_softcap)"
        yield settings.problem("loss", "softcap", message, "write loss: cross_entropy")


def liger(settings: Settings, document: Document) -> Problems:
    """Kernels of liger-kernel are for GPUs and the classes that it supports; its losses replace the model's own."""
    chosen, kind = liger_of(settings), document.model.written("model_type")
    if chosen is None:
        return
    if settings.get("device") == "cpu":
        yield settings.problem("liger", "liger", "the kernels of liger-kernel require a GPU", "remove it, or write another device")
    if kind is None:
        return
    try:
        replaced = switches_on(document.model.get("model_type"), chosen) & LOSSES
    except ValueError as error:
        yield settings.problem("liger", "liger", str(error), "change or remove it")
        return
    if replaced and settings.get("loss") != "default":
        message = f"liger.{min(replaced)} replaces the default loss, not {settings.get('loss')}"
        yield settings.problem("liger", "liger", message, f"write loss: default, or liger.{min(replaced)}: false")


def muon_experts(settings: Settings, document: Document) -> Problems:
    """Only where there are experts can their optimizer be chosen."""
    chosen = settings.get("optimizer") == "muon" and settings.get("muon_experts") != "adamw"
    if chosen and not any(layer.on("experts") for group in document.groups for layer in group.layers):
        yield settings.problem("muon_experts", "muon-experts", "muon_experts requires a model with experts", "remove it")


def count_prediction(settings: Settings, document: Document) -> Problems:
    """Prediction layers can be counted only where there are any."""
    if settings.get("count_prediction") and not document.model.on("prediction"):
        message = "count_prediction requires a model with prediction layers"
        yield settings.problem("count_prediction", "count-prediction", message, "remove it, or write model.prediction")


_DOCUMENT = (*part_checks.DOCUMENT, *stack_checks.DOCUMENT, n_layers, run_positions, scenario_names, waiver_dates)
_MODEL = key_checks(Model)
_NORM = key_checks(Norm, "norm.")
_LAYER = (*key_checks(Layer), gated_d_ff, gate_bias, parallel_placement, rotary_dim, *part_checks.LAYER)
_ATTENTION = (heads_divide_width, kv_heads_divide_heads, fused_bias, fused_per_head, *part_checks.ATTENTION)
_KEYS = (*key_checks(Training), *key_checks(RecomputeModules, "recompute_modules."), *key_checks(Base, "base."))
_TRAINING = (*_KEYS, sequence_in_context, gradient_dtype, soap, optimizer_in_backward)
_WITH_MODEL = (kernels, capped_scores, capped_logits, liger, muon_experts, count_prediction, *stack_checks.WITH_MODEL, *TUNING)
