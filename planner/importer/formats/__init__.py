"""The formats of configurations, in the order in which a file is held to them: what is more particular comes first."""

from __future__ import annotations

from planner.importer.format import Format
from planner.importer.formats import huggingface, litgpt, megatron, nanogpt, neox, olmo, olmo_core

FORMATS: tuple[Format, ...] = (
    olmo_core.FORMAT, olmo.FORMAT, huggingface.FORMAT, neox.FORMAT, megatron.FORMAT, litgpt.FORMAT, nanogpt.FORMAT,
)  # fmt: skip
