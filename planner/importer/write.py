"""The text of a spec for an imported model, with comments that name the source keys."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from planner.importer.laid import Laid
from planner.importer.reader import Imported, SpecModel
from planner.spec.language import leaves
from planner.spec.printable import printable

_WIDTH = 120
_PLAIN = re.compile(r"[A-Za-z_][\w./+-]*")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})

_BASICS = (
    "model_type", "vocab_size", "pad_vocab_to_multiple_of", "context_length", "d_model", "n_layers", "n_heads", "n_kv_heads", "head_dim",
    "d_ff",
)  # fmt: skip
_FIRST = ("mixer", "attention", "latent_attention")
_LAST = ("feed_forward", "experts", "norm", "block", "positions")
# Parts of every model, which are omitted if empty; any other part is present because it is written.
_ALWAYS = ("attention", "feed_forward", "norm", "head")
_ONCE = ("embedding_norm", "embedding_scale", "embedding_dim", "final_norm", "head", "per_layer_embedding", "prediction", "extra")


def spec_text(
    imported: Imported,
    name: str,
    *,
    source: str | Sequence[str] = "",
    schema: str = "",
    description: str = "",
    expect: Mapping[str, int] | None = None,
    comments: bool = True,
    laid: Laid | None = None,
) -> str:
    """Return a spec as YAML: a line per size and per part, with source keys, notes and unknown keys; with its layout, if it is given."""
    lines = [f"# yaml-language-server: $schema={schema}"] if schema else []
    if comments:
        lines += _remarks(imported)
    lines.append(f"name: {_scalar(name)}")
    lines += [f"description: {_scalar(description)}"] if description else []
    lines += _sources([source] if isinstance(source, str) else source)
    lines += [f"omits: {_flow(list(imported.omits))}"] if imported.omits else []
    lines += [f"extends: catalog/{imported.extends}"] if imported.extends else ["model:", *_model(imported, comments=comments)]
    if imported.training:
        lines += ["training:", *(_trained(key, value, imported if comments else None) for key, value in imported.training.items())]
    if laid:
        lines += ["cluster:", f"  device: {_scalar(laid.device)}", f"  devices: {laid.devices}", "layout:"]
        settings = laid.settings or {"data_parallel": ("ddp", "")}
        for key, (value, origin) in settings.items():
            comment = f"  # {origin}" if comments and origin and origin != key else ""
            lines.append(f"  {key}: {_flow(value)}{comment}")
    if expect:
        lines += ["expect:", *(f"  {key}: {value}" for key, value in expect.items())]
    return "\n".join(lines) + "\n"


def _sources(addresses: Sequence[str]) -> list[str]:
    if len(addresses) > 1:
        return ["source:", *(f"  - {_scalar(address)}" for address in addresses)]
    return [f"source: {_scalar(address)}" for address in addresses if address]


def _trained(key: str, value: Any, imported: Imported | None) -> str:  # a spec's value
    origin = ", ".join(name for name in imported.origins.get(f"training.{key}", ()) if name != key) if imported else ""
    missing = imported is not None and f"training.{key}" in imported.defaults
    comment = f"  # {origin}" if origin else f"  # {_missing(imported)}" if imported and missing else ""
    return f"  {key}: {_flow(value)}{comment}"


def _missing(imported: Imported) -> str:
    return f"not in the file; default of {imported.model_type}"


def _remarks(imported: Imported) -> Iterator[str]:
    text = f"{imported.composite} (text part: {imported.model_type})" if imported.composite else imported.model_type
    yield f"# Imported from a configuration of type {text}. Comments show the source keys of each line."
    for note in imported.notes:
        yield from textwrap.wrap(printable(f"Note: {note}."), _WIDTH, initial_indent="# ", subsequent_indent="#   ")
    if imported.not_understood:
        text = printable(f"Unknown keys, assumed not to affect the model: {', '.join(imported.not_understood)}.")
        yield from textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False)


def _model(imported: Imported, *, comments: bool) -> Iterator[str]:
    model = spare(imported.model)
    parts = [key for key in model if key not in (*_BASICS, *_ONCE, "layers")]
    layers = [*(key for key in _FIRST if key in parts), *(key for key in parts if key not in (*_FIRST, *_LAST))]
    layers += [key for key in _LAST if key in parts]
    groups = ([key for key in _BASICS if key in model], layers, [key for key in _ONCE if key in model])
    for number, group in enumerate(groups):
        if number == len(groups) - 1 and "layers" in model:
            yield from _layers(model["layers"], _origin("layers", imported) if comments else "")
        for key in group:
            yield from _setting(key, model[key], _origin(key, imported) if comments else "")


def _origin(key: str, imported: Imported) -> str:
    names = imported.origins.get(key, ())
    if not names and key in _BASICS and key in imported.defaults:
        return _missing(imported)
    return ", ".join(name for name in names if name != key)


def _setting(key: str, value: Any, origin: str) -> Iterator[str]:  # a spec's value
    comment = f"  # {origin}" if origin else ""
    line = f"  {key}: {_flow(value)}"
    if key == "extra":
        yield f"  {key}:{comment}"
        yield from (f"    - {_flow(tensor)}" for tensor in value)
    elif len(line) + len(comment) <= _WIDTH or not comment:
        yield line + comment
    else:
        yield from textwrap.wrap(origin, _WIDTH - 4, initial_indent="  # ", subsequent_indent="  #   ")
        yield line


def _layers(runs: list[SpecModel], origin: str) -> Iterator[str]:
    yield "  layers:"
    if origin:
        yield from textwrap.wrap(origin, _WIDTH - 4, initial_indent="    # ", subsequent_indent="    #   ")
    for run in runs:
        yield from _element(run, "    ")


def _element(element: SpecModel, indent: str) -> Iterator[str]:
    """Yield a layer group, a layer or a tensor: in one line if it fits, else a line per key."""
    line = f"{indent}- {_flow(element)}"
    if len(line) <= _WIDTH:
        yield line
        return
    start = f"{indent}- "
    for key, value in element.items():
        if key in ("layers", "extra") and isinstance(value, list):
            yield f"{start}{key}:"
            for inner in value:
                yield from _element(inner, f"{indent}    ")
        else:
            yield f"{start}{key}: {_flow(value)}"
        start = f"{indent}  "


def spare(model: SpecModel) -> SpecModel:
    """Return the model without defaults."""
    per_layer = {key for run in model.get("layers", []) for layer in (run, *run.get("layers", [])) for key in layer}
    derived = {
        "n_kv_heads": model.get("n_heads") if not per_layer & {"n_heads", "n_kv_heads"} else None,
        "head_dim": _divided(model) if not per_layer & {"n_heads", "head_dim", "d_model"} else None,
        "d_ff": 4 * model["d_model"] if _is_plain(model) and "d_ff" not in per_layer else None,
    }
    defaults = _defaults()
    made: SpecModel = {}
    for key, value in model.items():
        if key in derived and value == derived[key]:
            continue
        kept = _without_defaults(key, value, defaults) if isinstance(value, dict) else value
        if kept == {} and key not in _ALWAYS:
            kept = value
        if kept != {} and not (key in defaults and kept == defaults[key]) and not (key == "positions" and kept == "learned"):
            made[key] = kept
    return made


@cache
def _defaults() -> Mapping[str, Any]:
    """Return the schema's defaults by the dotted key within ``model``."""
    return {key.removeprefix("model."): part.get("default") for key, part in leaves().items() if key.startswith("model.")}


def _is_plain(model: SpecModel) -> bool:
    feed_forward = model.get("feed_forward", {})
    return isinstance(feed_forward, dict) and feed_forward.get("type", "plain") == "plain"


def _divided(model: SpecModel) -> int | None:
    if not model.get("n_heads") or model["d_model"] % model["n_heads"]:
        return None
    quotient: int = model["d_model"] // model["n_heads"]
    return quotient


def _without_defaults(key: str, value: SpecModel, defaults: Mapping[str, Any]) -> SpecModel:
    kept: SpecModel = {}
    for name, inner in value.items():
        dotted = f"{key}.{name}"
        shorthand = name == "bias" and inner is True and defaults.get(f"{dotted}.q", defaults.get(f"{dotted}.up")) is True
        if not shorthand and not (dotted in defaults and defaults[dotted] == inner and type(defaults[dotted]) is type(inner)):
            kept[name] = inner
    return kept


def _flow(value: Any) -> str:  # a spec's value
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:  # a spec's value
    if isinstance(value, str):
        return value if (_PLAIN.fullmatch(value) or value.startswith("https://")) and value.lower() not in _WORDS else json.dumps(value)
    return json.dumps(value)
