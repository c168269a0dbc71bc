"""The formats of configurations, in the order in which a file is held to them: what is more particular comes first."""

from __future__ import annotations

from planner.importer.format import Format
from planner.importer.formats import (
    axolotl,
    deepseek,
    huggingface,
    levanter,
    litgpt,
    llamafactory,
    megatron,
    nanogpt,
    nanogpt_overrides,
    nanotron,
    neox,
    olmo,
    olmo_core,
    params,
    peft,
    torchtitan,
    torchtune,
    trl,
)  # fmt: skip

FORMATS: tuple[Format, ...] = (
    torchtitan.FORMAT, nanotron.FORMAT, levanter.FORMAT, olmo_core.FORMAT, olmo.FORMAT, axolotl.FORMAT, torchtune.FORMAT,
    llamafactory.FORMAT, trl.FORMAT, peft.FORMAT, deepseek.FORMAT, params.FORMAT, huggingface.FORMAT, neox.FORMAT, megatron.FORMAT,
    litgpt.FORMAT, nanogpt_overrides.FORMAT, nanogpt.FORMAT,
)  # fmt: skip
PROGRAMS = tuple(dict.fromkeys(one.name for one in (huggingface.FORMAT, megatron.FORMAT, *FORMATS)))
"""The programs whose files are read, the most frequent first."""
