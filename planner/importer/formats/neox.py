"""GPT-NeoX's configurations, which resemble Megatron-LM's and mean something else."""

from __future__ import annotations

from planner.importer.format import Format, Given
from planner.importer.reader import Imported, UnsupportedConfigError

# Keys that only GPT-NeoX has; it ties weights, norms, positions and parallel blocks under names of its own.
_ONLY = ("pos_emb", "no_weight_tying", "gpt_j_residual", "gpt_j_tied", "rotary_pct", "attention_config", "mlp_type", "pipe_parallel_size")


def _found(given: Given) -> list[str]:
    return [key for key in given.config if str(key).replace("-", "_") in _ONLY]


def _read(given: Given) -> Imported:
    raise UnsupportedConfigError(f"this looks like a configuration of GPT-NeoX, which is not supported: it has {', '.join(_found(given))}")


FORMAT = Format("GPT-NeoX", "none", "EleutherAI's gpt-neox: megatron/neox_arguments/neox_args.py", lambda given: bool(_found(given)), _read)
