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


def read(config: dict[str, Any], *, whole: bool = False) -> tuple[Any, Callable[[Any], nn.Module]]:
    """Return transformers' configuration, and the function that makes its model: of a composite the language model, unless ``whole``.

    Raises ``CannotMeasureError`` without transformers.
    """
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise CannotMeasureError(f"{error.name} is not installed") from error
    its = transformers.AutoConfig.for_model(**config)
    build: Callable[[Any], nn.Module] = _architecture(its)._from_config  # noqa: SLF001 - what from_config of AutoModelForCausalLM calls
    if is_composite(its) and not whole:
        from planner.verify.language_part import builder

        return its, builder(build)
    return its, build


def is_composite(config: Any) -> bool:  # noqa: ANN401 - a configuration of transformers, which has no types here
    """Return whether a configuration describes a model of images or sound besides text."""
    return not {"text_config", "vision_config"}.isdisjoint(type(config).sub_configs)


def supports_sdpa(config: Any) -> bool:  # noqa: ANN401 - the same
    """Whether the class of transformers' configuration implements attention by sdpa; its default is eager attention otherwise."""
    return bool(_architecture(config)._supports_sdpa)  # noqa: SLF001 - no public name


def _architecture(config: Any) -> Any:  # noqa: ANN401 - a configuration and a class
    """Return the class that transformers builds from a configuration."""
    import transformers

    if config.model_type in CLASSES:
        return getattr(transformers, CLASSES[config.model_type])
    tasks = ("MASKED_LM", "IMAGE_CLASSIFICATION", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ")
    others: Any = [getattr(transformers, f"MODEL_FOR_{task}_MAPPING") for task in tasks]
    for mapping in others if not is_composite(config) else ():
        if type(config) in mapping:
            return getattr(transformers, (config.architectures or [""])[0], None) or mapping[type(config)]
    names = ("IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "CAUSAL_LM") if is_composite(config) else ("CAUSAL_LM",)
    mappings: Any = [getattr(transformers, f"MODEL_FOR_{name}_MAPPING") for name in names]
    found = next((mapping[type(config)] for mapping in mappings if type(config) in mapping), None)
    if found is None:
        raise CannotMeasureError(f"it has no language model for a config.json of type {config.model_type}")
    return found


def parameters(path: Path, *, whole: bool = False) -> tuple[str, int]:
    """Return the class's name and its number of parameters, a tied one once; of a composite those of its language model, unless ``whole``.

    Raises CannotMeasureError if transformers cannot build it.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        raise CannotMeasureError(f"{error.name} is not installed") from error
    try:
        with warnings.catch_warnings(), torch.device("meta"):
            warnings.simplefilter("ignore")  # transformers' own, about run time
            config, build = read(json.loads(path.read_text(encoding="utf-8")), whole=whole)
            model = build(config)
    except Exception as error:
        raise CannotMeasureError(f"transformers cannot build {path.name}: {error}") from error
    return str(getattr(model, "title", type(model).__name__)), sum(parameter.numel() for parameter in model.parameters())
