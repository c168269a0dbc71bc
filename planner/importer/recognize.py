"""Recognize the format of a configuration and read it."""

from __future__ import annotations

from collections.abc import Mapping

from planner.importer.format import Given
from planner.importer.formats import FORMATS
from planner.importer.reader import Imported, UnsupportedConfigError
from planner.importer.syntax import parsed


def read_config(text: str, file: str) -> Imported:
    """Return the model of a configuration; the ``file``'s name helps to distinguish JSON from Python. Raises UnsupportedConfigError."""
    given = Given(text, parsed(text, file))
    for one in FORMATS:
        if one.recognizes(given):
            return one.read(given)
    if isinstance(given.config.get("model"), Mapping):
        raise UnsupportedConfigError("unrecognized configuration (is it already a spec?)")
    raise UnsupportedConfigError(
        "unrecognized configuration: Hugging Face's has `model_type`, Megatron-LM's num_layers, hidden_size and num_attention_heads, "
        "nanoGPT's and LitGPT's n_layer, n_head and n_embd"
    )
