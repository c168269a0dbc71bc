"""Mixers: which ones a layer has, and the settings of those that are not attention as records."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from planner.spec.nodes import UNREADABLE
from planner.spec.records import (
    GatedDeltaNet,
    Indexer,
    KimiDeltaAttention,
    LatentAttention,
    LightningAttention,
    Mamba,
    Mamba2,
    Mixer,
    Mlstm,
    RgLru,
    Rwkv,
    ShortConvolution,
)
from planner.spec.settings import Settings, Unresolved

if TYPE_CHECKING:
    from collections.abc import Callable

# A mixer's name is the key of its settings, and the fields of its record are the keys in there.
RECORDS: dict[str, type[Mixer]] = {
    "latent_attention": LatentAttention,
    "mamba": Mamba,
    "mamba2": Mamba2,
    "gated_delta_net": GatedDeltaNet,
    "kimi_delta_attention": KimiDeltaAttention,
    "lightning_attention": LightningAttention,
    "rg_lru": RgLru,
    "rwkv": Rwkv,
    "short_convolution": ShortConvolution,
    "mlstm": Mlstm,
}


def names(settings: Settings) -> tuple[str, ...]:
    """Return the names of a layer's mixers, side by side; ``none`` is no mixer. Raises Unresolved."""
    written = settings.written("mixer")
    chosen = [node.value for node in written.elements()] if written else []
    if UNREADABLE in chosen:
        raise Unresolved("mixer")
    return tuple(str(name) for name in chosen or [settings.get("mixer")] if name != "none")


def mixers(settings: Settings) -> tuple[Mixer, ...]:
    """Return a layer's mixers beside its attention, or in its place."""
    return tuple(_mixer(settings, name) for name in names(settings) if name != "attention")


def _mixer(settings: Settings, name: str) -> Mixer:
    made: Mixer = record(RECORDS[name], settings, name, **{key: find(settings) for key, find in _FOUND_ELSEWHERE.get(name, {}).items()})
    return made


def record(kind: type[Any], settings: Settings, group: str, **found: object) -> Any:  # noqa: ANN401 - of that kind
    """Return the record of a group whose keys are its fields, but for those that are found already."""
    keys = (field.name for field in fields(kind) if field.name not in found)
    return kind(**found, **{key: settings.get(f"{group}.{key}") for key in keys})


def _dt_rank(settings: Settings) -> int:
    """Return d_model / 16, rounded up, unless written (state-spaces/mamba, modules/mamba_simple.py)."""
    rank: int = settings.get("mamba.dt_rank", -(-settings.get("d_model") // 16))
    return rank


def _indexer(settings: Settings) -> Indexer | None:
    group = "latent_attention.indexer"
    if not settings.on(group):
        return None
    made: Indexer = record(Indexer, settings, group)
    return made


_FOUND_ELSEWHERE: dict[str, dict[str, Callable[[Settings], object]]] = {
    "latent_attention": {
        "n_heads": lambda settings: settings.get("n_heads"),
        "q_rank": lambda settings: settings.get_or_none("latent_attention.q_rank"),
        "indexer": _indexer,
    },
    "mamba": {"dt_rank": _dt_rank},
    "short_convolution": {"width": lambda settings: settings.get("short_convolution.width", settings.get("d_model"))},
}
