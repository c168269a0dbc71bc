"""Models built by Hugging Face transformers: an independent implementation of the spec."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any
from unittest import mock

from planner.spec.records import Model, Training
from planner.verify import CannotMeasureError
from planner.verify.families import ACTIVATION_NAMES, family_of

if TYPE_CHECKING:
    import torch
    from torch import nn

ATTENTION = {"transformers": "sdpa", "transformers-eager": "eager"}


def build(model: Model, training: Training, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """Return transformers' module for the model. Raises ``CannotMeasureError``, also if transformers is not installed."""
    if training.recompute == "selective":
        raise CannotMeasureError("implementation transformers does not support recompute: selective; use full or none")
    if training.recompute_every > 1:
        raise CannotMeasureError("implementation transformers recomputes every layer; remove recompute_every")
    try:
        import transformers
    except ImportError as error:
        raise CannotMeasureError(f"transformers cannot be imported ({error}); pip install transformers") from error
    family = family_of(model)
    config = getattr(transformers, family.config)(**family.keys(model, float(training.dropout)))
    make = getattr(transformers, family.model)
    return module_of(config, make, training, device, dtype, sdpa=make._supports_sdpa)  # noqa: SLF001 - no public name


def module_of(
    config: Any,  # noqa: ANN401 - a configuration of transformers, which has no types here
    make: Callable[[Any], nn.Module],
    training: Training,
    device: torch.device,
    dtype: torch.dtype,
    *,
    sdpa: bool = True,
) -> nn.Module:
    """Return a module of transformers, ready to train with the training's attention and recomputation.

    ``sdpa``: whether the class supports it; otherwise its default is eager attention.
    """
    import torch
    from transformers.initialization import no_init_weights

    config._attn_implementation = ATTENTION.get(training.implementation, "sdpa") if sdpa else "eager"  # noqa: SLF001 - no other setting
    config.use_cache = training.use_cache
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device), no_init_weights():
            module = make(config)
            on_device(module, device)
    finally:
        torch.set_default_dtype(before)
    module.tie_weights()  # type: ignore[operator] # a method of transformers' models
    module.loss_type = "ForCausalLM"  # type: ignore[assignment] # its default, without a warning
    module.train()
    if training.recompute == "full":
        module.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})  # type: ignore[operator] # the same
    return module


def on_device(module: nn.Module, device: torch.device) -> None:
    """Move parameters to the device that the module creates elsewhere, since torch.normal ignores the default device."""
    import torch

    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            if parameter.device.type != device.type:
                setattr(part, name, torch.nn.Parameter(torch.empty_like(parameter, device=device)))


def our_name(name: str, model: Model) -> str:
    """Return our name for a module or parameter of transformers' class."""
    name += "."
    for theirs, ours in (*family_of(model).names, *ACTIVATION_NAMES):
        name = name.replace(theirs, ours)
    return name.removesuffix(".")


@contextmanager
def simulated_runtime(*, padded: bool = False) -> Iterator[None]:
    """Keep transformers from treating fake tensors as an export, for which it builds other attention masks than in training.

    ``padded``: masks are built as if some tokens were padding, which tensors without data do not show.
    """
    skips = mock.patch("transformers.masking_utils._ignore_causal_mask_sdpa", lambda *_: False) if padded else nullcontext()  # noqa: PT008
    with mock.patch("transformers.utils.import_utils.is_fake_tensor", lambda _: False), skips:  # noqa: PT008 - a Mock would hold the tensor
        yield


def parameters(model: Model) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter by our name, a tied one once, matrices as [out, in]."""
    import torch

    training = Training(batch_size=1, sequence_length=1, implementation="transformers-eager")  # all classes have eager attention
    module = build(model, training, torch.device("meta"), torch.float32)
    turned = {f"{name}.weight" for name, part in module.named_modules() if type(part).__name__ == "Conv1D"}  # GPT-2's are [in, out]
    shapes = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    return {our_name(name, model): shape[::-1] if name in turned else shape for name, shape in shapes.items()}
