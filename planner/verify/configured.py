"""The model that a Hugging Face config.json means to transformers itself: the class that its ``model_type`` names, on the meta device."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from planner.verify import CannotMeasureError

# Text models that AutoModelForCausalLM does not know under the type of their own configuration.
CLASSES = {"mistral4": "Mistral4ForCausalLM"}


def configured(path: Path) -> tuple[str, int]:
    """Return the class's name and the parameters that it stores, a tied one once.

    Raises CannotMeasureError where transformers is missing, has no such class, or cannot build it.
    """
    try:
        import torch
        import transformers
    except ModuleNotFoundError as error:
        raise CannotMeasureError(f"{error.name} is not installed") from error
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        kind = str(config["model_type"])
        with warnings.catch_warnings(), torch.device("meta"):
            warnings.simplefilter("ignore")  # transformers' own, about what it would do at run time
            read = transformers.AutoConfig.for_model(**config)
            build: Any = getattr(transformers, CLASSES[kind]) if kind in CLASSES else transformers.AutoModelForCausalLM.from_config
            model = build(read)
    except Exception as error:
        raise CannotMeasureError(f"transformers does not build {path.name}: {error}") from error
    return type(model).__name__, sum(parameter.numel() for parameter in model.parameters())
