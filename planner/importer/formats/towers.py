"""Towers of composite configurations that a spec counts under ``model.vision``: CLIP's in LLaVA.

Read from transformers 5.24: models/llava/configuration_llava.py, models/clip/configuration_clip.py and their modeling files.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.importer.engine import Row, read, row
from planner.importer.keys import *
from planner.importer.neutral import UNREAD
from planner.importer.reader import Config, SpecModel

CLIP: Row = row(
    {
        "patches": {
            "image": size("image_size", 224),
            "size": size("patch_size", 32),
            "channels": size("num_channels", 3),
            "bias": False,
        },
        "d_model": size("hidden_size", 768),
        "n_layers": layers("num_hidden_layers", 12),
        "n_heads": size("num_attention_heads", 12),
        "d_ff": size("intermediate_size", 3072),
        "activation": activation("hidden_act", "quick_gelu"),
        "embedding_norm": True,
        "final_norm": True,
    },
    ignored={UNREAD: "vocab_size projection_dim initializer_factor"},
)
LLAVA: Row = row(
    {
        "projector.activation": activation("projector_hidden_act", "gelu"),
        "projector.bias": flag("multimodal_projector_bias", True),
        "reads_tokens": choice("vision_feature_select_strategy", {"default": False, "full": True}, False),
    }
)
KEYS = ("projector_hidden_act", "multimodal_projector_bias", "vision_feature_select_strategy")
LAYER = -2
"""LLaVA's state that is read, counted from the output of the last layer, -1."""


def vision(config: Config, model_type: str) -> SpecModel | None:
    """Return the tower and the projector of a configuration, if a spec has them: one layer's states of CLIP's, in a LLaVA."""
    given = config.get("vision_config")
    if (
        model_type != "llava"
        or "audio_config" in config
        or not isinstance(given, Mapping)
        or given.get("model_type", "clip_vision_model") != "clip_vision_model"
    ):
        return None
    tower, layer = read(CLIP, given, "clip_vision_model").model, config.get("vision_feature_layer", LAYER)
    if not isinstance(layer, int) or isinstance(layer, bool):
        return None
    n_layers = tower["n_layers"]
    reads = n_layers + 1 + layer if layer < 0 else layer
    if not 1 <= reads <= n_layers:
        return None
    around = read(LLAVA, {key: config[key] for key in KEYS if key in config}, model_type).model
    return {**tower, **({} if reads == n_layers else {"read_layers": reads}), **around}
