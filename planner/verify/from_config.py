"""Models that transformers builds from a config.json: the class of its ``model_type``."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.verify import CannotMeasureError

if TYPE_CHECKING:
    from torch import nn

# Text models whose model_type is not registered with AutoModelForCausalLM.
CLASSES = {"mistral4": "Mistral4ForCausalLM"}


def read(config: dict[str, Any]) -> tuple[Any, Callable[[Any], nn.Module]]:
    """Return transformers' configuration, and the function that makes its model. Raises ``CannotMeasureError`` without transformers."""
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise CannotMeasureError(f"{error.name} is not installed") from error
    kind = str(config["model_type"])
    automatic: Any = transformers.AutoModelForCausalLM
    return transformers.AutoConfig.for_model(**config), getattr(transformers, CLASSES[kind]) if kind in CLASSES else automatic.from_config


def supports_sdpa(config: Any) -> bool:  # noqa: ANN401 - a configuration of transformers, which has no types here
    """Whether the class of transformers' configuration implements attention by sdpa; its default is eager attention otherwise."""
    import transformers

    kind = config.model_type
    by_config: Any = transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    architecture: Any = getattr(transformers, CLASSES[kind]) if kind in CLASSES else by_config[type(config)]
    return bool(architecture._supports_sdpa)  # noqa: SLF001 - no public name


def parameters(path: Path) -> tuple[str, int]:
    """Return the class's name and its number of parameters, a tied one once. Raises CannotMeasureError if transformers cannot build it."""
    try:
        import torch
    except ModuleNotFoundError as error:
        raise CannotMeasureError(f"{error.name} is not installed") from error
    try:
        with warnings.catch_warnings(), torch.device("meta"):
            warnings.simplefilter("ignore")  # transformers' own, about run time
            config, build = read(json.loads(path.read_text(encoding="utf-8")))
            model = build(config)
    except Exception as error:
        raise CannotMeasureError(f"transformers cannot build {path.name}: {error}") from error
    return type(model).__name__, sum(parameter.numel() for parameter in model.parameters())
