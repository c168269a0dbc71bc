"""Non-uniform layers: the settings of each as a short list of layer groups."""

from __future__ import annotations

from math import inf

from planner.importer.reader import SpecModel

_LONGEST_GROUP = 16  # layers that repeat as one group
_MIXERS = (
    "mamba", "mamba2", "gated_delta_net", "kimi_delta_attention", "lightning_attention", "rg_lru", "rwkv", "short_convolution", "mlstm",
)  # fmt: skip


def with_layers(model: SpecModel, layers: list[SpecModel]) -> SpecModel:
    """Return the model with the settings of each layer, except windows as long as the context."""
    layers = [without_idle_window(layer, model.get("context_length", inf)) for layer in layers]
    if not any(layers):
        return model
    if any(layer != layers[0] for layer in layers):
        return {**model, "layers": runs(layers)}
    common = {key: value for key, value in layers[0].items() if key != "extra"}  # at the top level, `extra` belongs to the model
    own = {"layers": [{"count": len(layers), "extra": layers[0]["extra"]}]} if "extra" in layers[0] else {}
    return merged(model, common, own)


def without_idle_window(layer: SpecModel, context: float) -> SpecModel:
    """Return a layer, or a model, without a window that is as long as the context."""
    attention = layer.get("attention", {})
    if attention.get("window", 0) < context:
        return layer
    rest = {key: value for key, value in attention.items() if key not in {"window", "chunked"}}
    return {key: value for key, value in layer.items() if key != "attention"} | ({"attention": rest} if rest else {})


def by_layer(*kinds: list[SpecModel]) -> list[SpecModel]:
    """Return the merged settings of each layer."""
    return [merged(*parts) for parts in zip(*kinds, strict=True)]


def merged(*parts: SpecModel) -> SpecModel:
    """Return mappings merged key by key; later ones override."""
    whole: SpecModel = {}
    for part in parts:
        for key, value in part.items():
            below = whole.get(key)
            whole[key] = merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return whole


def runs(layers: list[SpecModel]) -> list[SpecModel]:
    """Return a short ``layers`` list of repeated layers and repeated groups, first to last."""
    made: list[SpecModel] = []
    start = 0
    while start < len(layers):
        groups = [(period, _repeats(layers, start, period)) for period in range(1, _LONGEST_GROUP + 1)]
        period, count = max(groups, key=_gain)
        made.append({"count": count, **layers[start]} if period == 1 else {"count": count, **_group(layers[start : start + period])})
        start += period * count
    return made


def _group(layers: list[SpecModel]) -> SpecModel:
    """Return a group of layers, with their common settings once."""
    common = {key: value for key, value in layers[0].items() if all(key in layer and layer[key] == value for layer in layers)}
    return {**common, "layers": [{key: value for key, value in layer.items() if key not in common} for layer in layers]}


def _gain(group: tuple[int, int]) -> tuple[int, int]:
    """Rank a group by how many lines it saves; shorter groups first."""
    period, count = group
    if period == 1:
        return count - 1, -1
    return (period * count - period - 1 if count > 1 else -1), -period


def _repeats(layers: list[SpecModel], start: int, period: int) -> int:
    """Return how often the ``period`` layers from ``start`` repeat."""
    end = start + period
    while end < len(layers) and layers[end] == layers[end - period]:
        end += 1
    return max((end - start) // period, 1)


def without_unused_mixers(model: SpecModel) -> SpecModel:
    """Return the model without mixers that no layer uses: in a hybrid's configuration all layers may be attention."""
    layers = [model, *(layer for run in model.get("layers", []) for layer in (run, *run.get("layers", [])))]
    used = {
        mixer
        for layer in layers
        if "mixer" in layer
        for mixer in (layer["mixer"] if isinstance(layer["mixer"], list) else [layer["mixer"]])
    }
    return {key: value for key, value in model.items() if key not in _MIXERS or key in used}
