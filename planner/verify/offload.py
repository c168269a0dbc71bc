"""Activation offloading: saved tensors are copied to the host, and back when the backward pass reads them.

As torchtune's OffloadActivations without streams (training/_activation_offloading.py): around the model, but not its LM head.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from planner.capacity.activations import SMALLEST_OFFLOADED


@contextmanager
def offloading(module: nn.Module) -> Iterator[None]:
    """Offload what the part of the module before its LM head saves, inside."""
    weights = {id(tensor.untyped_storage()) for tensor in (*module.parameters(), *module.buffers())}

    def pack(tensor: Tensor) -> tuple[Tensor, torch.device]:
        stays = tensor.numel() * tensor.element_size() < SMALLEST_OFFLOADED or id(tensor.untyped_storage()) in weights
        return tensor.detach() if stays else tensor.to("cpu"), tensor.device  # detached: an output would keep its own graph alive

    def unpack(packed: tuple[Tensor, torch.device]) -> Tensor:
        return packed[0].to(packed[1])

    trunk = cast("nn.Module", getattr(module, "base_model", None) or module.model)  # a property of transformers' classes
    hooks = saved_tensors_hooks(pack, unpack)
    before = trunk.register_forward_pre_hook(lambda *_: hooks.__enter__())
    after = trunk.register_forward_hook(lambda *_: hooks.__exit__())
    yield
    before.remove()
    after.remove()
