"""Position encodings that layers share, computed once per forward pass: rotary tables and ALiBi's bias.

Rotary: Su et al. 2021 (arXiv:2104.09864). ALiBi: Press et al. 2021 (arXiv:2108.12409).
"""

from __future__ import annotations

from collections import Counter

from planner.spec.precision import Dtype
from planner.spec.records import Attention, LatentAttention, Layer, Model
from planner.trace import cache, relative
from planner.trace import primitives as op
from planner.trace.implementation import Scores
from planner.trace.nodes import Saved
from planner.trace.sizes import Size
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


class PositionTables:
    """The tensors that the layers of one forward pass share."""

    def __init__(self, t: Tape, model: Model, B: Size, n: Size) -> None:
        layers = [layer for run in model.runs for layer in run.layers]
        rotary = dict.fromkeys(frequencies(t, layer) for layer in layers if layer.positions.type == "rope")
        if not rotary and model.positions.type == "rope" and t.implementation.constant_buffers:
            rotary = {(model.positions.rotary_dim, False): None}
        heads = dict.fromkeys(layer.attention.n_heads for layer in layers if layer.attention and layer.positions.type == "alibi")
        self.one_mask = t.modules.mask_buffer == "layer"  # the buffers have the windows
        windows = dict.fromkeys(self.window(layer) for layer in layers if attends(layer))
        with t.at("positions", "position"):
            if dtype := t.implementation.mask_buffer(t, "model"):
                t.buffer("bias", (model.context_length, model.context_length), dtype)
            ids = t.implementation.position_ids(t, n)
            make = t.implementation.rotary_tables or rotary_tables
            self.n = n
            self.tables = {} if t.modules.tables_in_attention else {(dim, windowed): make(t, n, dim) for dim, windowed in rotary}
            self.alibi_in_rows = t.modules.alibi.startswith("row")
            self.biases = {H: alibi(t, B, n, H) for H in heads}
            self.masks = {window: t.implementation.mask(t, B, n, window) for window in windows}
            spare = t.implementation.mask(t, B, n, None) if t.modules.both_masks and len(windows) == 1 else None
            shared = t.modules.query_scale == "shared" and any(layer.positions.type == "none" for layer in layers)
            self.scale = position_scale(t, n, "float32") if shared else None  # of queries without rotation
        self.relative, self.of_cross = relative_biases(t, model, n)
        kinds = (layer.attention for layer in layers if layer.attention and not layer.attention.shared_kv)
        self.to_store = Counter((kind.n_kv_heads, kind.head_dim, kind.window) for kind in kinds)  # layers that are not traced yet
        self.mask_of_all = next(iter(self.masks.values())) if t.modules.masks_mixers and self.masks else None
        self.keys_and_values: dict[tuple[Size | None, ...], tuple[Tensor, Tensor]] = {}
        self.selected: Tensor | None = None  # the keys that the latest indexer selected
        self.selects = False  # whether that was the indexer of the latest layer
        self.per_layer: Tensor | None = None
        self.learned: Tensor | None = None  # a bias of scores
        self.shared = (*([ids] if ids else []), *self.biases.values())
        others = (*self.masks.values(), spare, self.scale, self.relative, self.of_cross)
        self.all = (*self.every_table, *self.shared, *(tensor for tensor in others if tensor))

    @property
    def every_table(self) -> tuple[Tensor, ...]:
        """The cosines and sines of all layers."""
        return tuple(table for tables in self.tables.values() for table in tables)

    def rotary(self, t: Tape, layer: Layer) -> tuple[Tensor, Tensor]:
        """Return a layer's cosines and sines: its own, the shared ones, or copies of their first halves with each element twice."""
        if t.modules.tables_in_attention:
            return rotary_tables(t, self.n, layer.positions.rotary_dim)
        tables = self.tables[frequencies(t, layer)]
        if not t.modules.tables_per_layer:
            return tables
        cos, sin = (t.record("repeat_interleave", [table], [op.like(t, table)], by=PositionTables.rotary)[0] for table in tables)
        return cos, sin

    def selection(self, t: Tape) -> tuple[Tensor, ...]:
        """Return the selected keys that the previous layer passes on, if any: each indexer's in a tensor of its own."""
        if self.selected is None or not t.modules.passes_selection:
            return ()
        if self.selects:
            made = t.tensor(self.selected.shape, self.selected.dtype, needs_grad=False)
            (self.selected,) = t.record("selected keys", [], [made], by=PositionTables.selection)
        self.selects = False
        return (self.selected,)

    def hold(self, t: Tape) -> None:
        """Save the last keys and values of each kind, if recomputed layers hold them."""
        for keys in dict.fromkeys(self.keys_and_values.values()) if t.stores_keys else ():
            op.store(t, "model", *keys, saved=[Saved(tensor, "keys and values") for tensor in keys])

    def window(self, layer: Layer) -> Size | None:
        """Return the window of the layer's mask; layers of one window share it."""
        return layer.attention.window if layer.attention and not self.one_mask else None

    def of(self, t: Tape, layer: Layer) -> tuple[Tensor, ...]:
        """Return the tensors passed to a layer: tables, what all layers share, its mask, and keys and values of an earlier layer."""
        kind = layer.attention
        keys = self.earlier(kind) if kind and kind.shared_kv else ()
        mask = self.masks[self.window(layer)] if attends(layer) else self.mask_of_all
        optional = (mask, self.query_scale(layer), self.per_layer)
        return (*self.tables_of(t, layer), *self.shared, *(tensor for tensor in optional if tensor), *keys)

    def tables_of(self, t: Tape, layer: Layer) -> tuple[Tensor, ...]:
        """Return the cosines and sines passed to a layer: all, or in some classes only those that it reads."""
        if not (t.modules.own_tables or t.modules.tables_per_window):
            return self.every_table
        return self.tables.get(frequencies(t, layer), ()) if layer.positions.type == "rope" else ()

    def provide(self, t: Tape, kind: Attention, keys: Tensor, values: Tensor) -> None:
        """Provide the keys and values of a layer to later ones. The last layer of a kind stores them if the class does so."""
        heads = kind.n_kv_heads, kind.head_dim, kind.window
        self.to_store[heads] -= 1
        if t.stores_keys and not self.to_store[heads]:
            op.store(t, "model", keys, values)
        self.keys_and_values |= dict.fromkeys(
            [(kind.n_kv_heads, kind.head_dim), (kind.n_kv_heads, kind.head_dim, kind.window)], (keys, values)
        )

    def earlier(self, kind: Attention) -> tuple[Tensor, Tensor]:
        """Return keys and values of the latest layer with its own, as many and as wide: one with the same window, if there is one."""
        heads = kind.n_kv_heads, kind.head_dim
        return self.keys_and_values.get((*heads, kind.window)) or self.keys_and_values[heads]

    def query_scale(self, layer: Layer) -> Tensor | None:
        """Return the factor per position by which a layer without rotary positions multiplies its queries, if it does."""
        return self.scale if layer.positions.type == "none" else None

    def scores(self, t: Tape, layer: Layer) -> Scores:
        """Return the terms of a layer's scores: ALiBi's or T5's bias, the mask [B, 1, n, n] that layers of one window share, or both."""
        mask = self.masks[self.window(layer)]
        if layer.attention and layer.positions.type == "alibi":
            bias = self.biases[layer.attention.n_heads]
            return Scores(bias, mask if self.alibi_in_rows else None)
        own = relative.bias(t, self.n, layer.attention.n_heads, layer.positions.buckets) if layer.attention and own_table(layer) else None
        if self.relative or own:
            return Scores(mask=mask, relative=own or self.relative)
        return Scores(self.learned, mask) if self.learned else Scores(mask)


def relative_biases(t: Tape, model: Model, n: Size) -> tuple[Tensor | None, Tensor | None]:
    """Return the bias of a stack with bucketed positions, and that of its cross-attention, if there are any."""
    kind = model.runs[0].layers[0].attention
    if model.positions.type != "bucketed" or model.positions.per_layer or kind is None:
        return None, None
    with t.at("positions", "position"):
        own = relative.bias(t, n, kind.n_heads, model.positions.buckets)
        m = t.encoded.shape[1] if t.encoded else None
        zeros = m is not None and t.implementation.constant_buffers
        return own, relative.of_cross_attention(t, n, m, kind.n_heads) if m is not None and zeros else None


def own_table(layer: Layer) -> bool:
    """Return whether the layer has its own bias of distances."""
    return layer.positions.type == "bucketed" and layer.positions.per_layer


def frequencies(t: Tape, layer: Layer) -> tuple[Size, bool]:
    """Return the rotated channels and, in some classes, whether the layer has a window: layers with equal ones share cosines and sines."""
    windowed = layer.attention is not None and layer.attention.window is not None
    whole = layer.attention.head_dim if layer.attention and t.modules.tables_of_whole_heads else layer.positions.rotary_dim
    return whole, windowed and t.modules.tables_per_window


def attends(layer: Layer) -> bool:
    """Return whether the layer has attention scores."""
    return layer.attention is not None or any(isinstance(mixer, LatentAttention) for mixer in layer.mixers)


def rotary_tables(t: Tape, n: Size, rotary_dim: Size) -> tuple[Tensor, Tensor]:
    """Return cosines and sines [n, rotary_dim] in the dtype of weights or, in attention, of values, or in float32 without a cast."""
    if t.modules.stored_tables:
        return stored_tables(t, n, rotary_dim)
    if t.implementation.constant_buffers:
        for name in ("inv_freq", "original_inv_freq", *(("unused.inv_freq", "unused.original_inv_freq") * t.modules.unused_frequencies)):
            t.buffer(name, (rotary_dim // 2,), "float32")
    if t.modules.complex_tables:
        (both,) = t.record("polar", [], [t.tensor((n, rotary_dim), "float32", needs_grad=False)], by=rotary_tables)
        return both, both
    like = t.precision.compute if t.modules.tables_in_attention else t.precision.weights
    dtype = "float32" if t.modules.tables_in_float32 else like
    width = rotary_dim // 2 if t.modules.half_tables else rotary_dim
    shape = (t.training.batch_size, 1, n, width) if t.modules.tables_per_sequence else (n, width)
    tables = [t.tensor(shape, dtype, needs_grad=False) for _ in range(2)]
    cos, sin = t.record("rotary tables", [], tables, by=rotary_tables)
    return cos, sin


def stored_tables(t: Tape, n: Size, rotary_dim: Size) -> tuple[Tensor, Tensor]:
    """Return halves [n, rotary_dim / 2] of rows that are selected from a buffer of all positions and, in most classes, cast."""
    t.buffer("embed_positions", (t.model.context_length, rotary_dim), "float32")
    (wide,) = t.record("index", [], [t.tensor((n, rotary_dim), "float32", needs_grad=False)], by=stored_tables)
    rows = wide if t.modules.tables_in_float32 else op.cast(t, wide, t.precision.weights)
    cos, sin = op.split(t, rows, *[(n, rotary_dim // 2)] * 2)
    return cos, sin


def position_scale(t: Tape, n: Size, dtype: Dtype) -> Tensor:
    """Return a factor [n, 1] for each position."""
    return t.record("scale of positions", [], [t.tensor((n, 1), dtype, needs_grad=False)], by=position_scale)[0]


def alibi(t: Tape, B: Size, n: Size, H: Size) -> Tensor:
    """Return ALiBi's bias as the class makes it."""
    match t.modules.alibi:
        case "square" | "square_per_sequence" as kind:
            return alibi_bias(t, 1 if kind == "square" else B, n, H)
        case "row_per_sequence":
            row = t.tensor((B, H, 1, cache.length(t, n, None)), t.precision.weights, needs_grad=False)
        case "row_of_context":
            row = t.tensor((1, H, 1, t.model.context_length), "float32", needs_grad=False)
    return t.record("alibi", [], [row], by=alibi)[0]


def alibi_bias(t: Tape, rows: Size, n: Size, H: Size) -> Tensor:
    """Return ALiBi's bias and causal mask [rows, H, n, n], computed in float32 and cast to the weights' dtype."""
    slopes, places, distances, wide = (t.tensor(shape, "float32", needs_grad=False) for shape in ((H,), (n,), (n, n), (rows, H, n, n)))
    t.record("distances", [], [slopes, places, distances], by=alibi_bias)
    t.record("alibi bias", [slopes, distances], [wide], by=alibi_bias)
    bias = op.cast(t, wide, t.precision.weights)
    op.keep_alive(t, slopes, places, distances)
    return bias
