"""Models that transformers builds from a config.json: the class of its ``model_type``, on the meta device."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from planner.verify import CannotMeasureError

# Text models whose model_type is not registered with AutoModelForCausalLM.
CLASSES = {"mistral4": "Mistral4ForCausalLM"}


def parameters(path: Path) -> tuple[str, int]:
    """Return the class's name and its number of parameters, a tied one once. Raises CannotMeasureError if transformers cannot build it."""
    try:
        import torch
        import transformers
    except ModuleNotFoundError as error:
        raise CannotMeasureError(f"{error.name} is not installed") from error
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        kind = str(config["model_type"])
        with warnings.catch_warnings(), torch.device("meta"):
            warnings.simplefilter("ignore")  # transformers' own, about run time
            read = transformers.AutoConfig.for_model(**config)
            build: Any = getattr(transformers, CLASSES[kind]) if kind in CLASSES else transformers.AutoModelForCausalLM.from_config
            model = build(read)
    except Exception as error:
        raise CannotMeasureError(f"transformers cannot build {path.name}: {error}") from error
    return type(model).__name__, sum(parameter.numel() for parameter in model.parameters())
