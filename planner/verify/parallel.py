"""A model divided over devices by PyTorch's own code: DTensor's tensor parallelism, FSDP2, stages of torch.distributed.pipelining."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import set_rotate_method
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from planner.spec.precision import GRADIENTS, RECIPES
from planner.spec.records import Layout, Training
from planner.trace.sizes import structure
from planner.trace.stages import Stage
from planner.verify.expert_parallel import Meshes, placement

COLUMNS = ("q_proj", "k_proj", "v_proj", "qkv_proj", "gate_proj", "up_proj")
ROWS = ("o_proj", "down_proj")
NORMS = ("input_layernorm", "post_attention_layernorm")
NORMS_OF_HEADS = ("q_norm", "k_norm")


def dimensions(layout: Layout) -> dict[str, int]:
    """Return the dimensions of the mesh of devices, the last one of neighbors."""
    shards = layout.shard_degree if layout.data_parallel == "hsdp" else layout.sharing_degree
    return {"pp": layout.pipeline_parallel, "replicas": layout.sharing_degree // shards, "dp": shards, "tp": layout.tensor_parallel}


def of_sequences(layout: Layout, mesh: DeviceMesh) -> DeviceMesh | None:
    """Return the mesh of the devices that share sequences, which are neighbors among those that share weights, if there are any."""
    of_each = layout.context_parallel
    return None if of_each == 1 else mesh._unflatten("dp", (mesh["dp"].size() // of_each, of_each), ("data", "cp"))["cp"]  # noqa: SLF001


class Parts:
    """The parts of ``modules.CausalLM`` or of transformers' Llama, which has the same names."""

    def __init__(self, module: Any, whole: Any) -> None:  # noqa: ANN401 - one of two classes, and peft's around it
        self.whole, self.trunk = whole, module.model
        self.layers: list[Any] = list(self.trunk.layers)

    @property
    def positions(self) -> nn.Module | None:
        """The learned positions."""
        found: nn.Module | None = getattr(self.trunk, "embed_positions", None)
        return found


def cut(parts: Parts, stage: Stage) -> None:
    """Leave only the parts of a stage."""
    count = sum(run.count * len(run.layers) for run in stage.runs)
    first = structure(stage.first_layer)
    parts.layers = parts.layers[first : first + structure(count)]
    parts.trunk.layers = nn.ModuleList(parts.layers)
    if not stage.first:
        parts.trunk.embed_tokens, parts.trunk.embed_positions = nn.Identity(), None
    if not stage.last:
        parts.trunk.norm, parts.whole.lm_head = nn.Identity(), nn.Identity()


def share_matrices(parts: Parts, layout: Layout, mesh: DeviceMesh) -> None:
    """Divide the matrices of layers, the embedding and the head over the devices of tensor parallelism."""
    whole, between = Replicate(), Shard(1) if layout.sequence_parallel else Replicate()
    table, head = (getattr(module, "weight", None) for module in (parts.trunk.embed_tokens, parts.whole.lm_head))
    for layer in parts.layers:
        parallelize_module(layer, mesh, _of_layer(layer, between, layout))
        attention = layer.self_attn
        if hasattr(attention, "record"):
            H, K = (size // layout.tensor_parallel for size in (attention.record.n_heads, attention.record.n_kv_heads))
            attention.record = replace(attention.record, n_heads=H, n_kv_heads=K)
    last = Shard(-1) if layout.loss_parallel else whole
    outside: dict[str, Any] = {
        "model.embed_tokens": RowwiseParallel(input_layouts=whole, output_layouts=between),
        "lm_head": ColwiseParallel(input_layouts=between, output_layouts=last, use_local_output=not layout.loss_parallel),
        **({"model.norm": SequenceParallel()} if layout.sequence_parallel else {}),
    }
    parallelize_module(parts.whole, mesh, {name: how for name, how in outside.items() if has_weights(parts.whole.get_submodule(name))})
    if table is not None and table is head:  # parallelize_module has given each its own
        parts.trunk.embed_tokens.weight = parts.whole.lm_head.weight
    if parts.positions is not None and layout.sequence_parallel:
        parts.positions.register_forward_hook(partial(_own_part, mesh))


def _of_layer(layer: Any, between: Any, layout: Layout) -> dict[str, Any]:  # noqa: ANN401 - one of two classes; a placement
    """Return how the modules of a layer are divided."""
    found: dict[str, Any] = {}
    for name, _ in layer.named_modules():
        last = name.rpartition(".")[2]
        found |= {name: ColwiseParallel()} if last in COLUMNS else {}
        found |= {name: RowwiseParallel(output_layouts=between)} if last in ROWS else {}
        found |= {name: SequenceParallel()} if last in NORMS and layout.sequence_parallel else {}
        found |= {name: SequenceParallel(sequence_dim=2, use_local_output=True)} if last in NORMS_OF_HEADS else {}
    if not layout.sequence_parallel:
        return found
    given: dict[str, Any] = {"input_layouts": (between, None), "desired_input_layouts": (Replicate(), None)}
    if not hasattr(layer.self_attn, "record"):  # of transformers
        given = {"input_kwarg_layouts": {"hidden_states": between}, "desired_input_kwarg_layouts": {"hidden_states": Replicate()}}
    mlp = PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),))
    return found | {"self_attn": PrepareModuleInput(**given), "mlp": mlp}


def _own_part(mesh: DeviceMesh, _: nn.Module, __: object, result: Tensor) -> Tensor:
    """Return the device's part of the sequence of learned positions [n, d]."""
    return result.chunk(mesh.size(), dim=0)[mesh.get_local_rank()]


def share_weights(parts: Parts, training: Training, layout: Layout, mesh: DeviceMesh, of_experts: Meshes | None) -> None:
    """Share weights, gradients and optimizer state by FSDP2."""
    recipe, titan = RECIPES[training.precision], layout.shard_group == "titan"
    dtypes = (getattr(torch, recipe.weights), getattr(torch, GRADIENTS[training.gradient_dtype])) if recipe.master else (None, None)
    options: dict[str, Any] = {"mesh": mesh, "mp_policy": MixedPrecisionPolicy(*dtypes)}
    if layout.offload == "weights":
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    if layout.reshard_after_forward != "auto":
        options["reshard_after_forward"] = layout.reshard_after_forward == "always"
    if titan and has_weights(parts.trunk.embed_tokens):
        fully_shard(parts.trunk.embed_tokens, **options)
    for layer in parts.layers if layout.shard_group != "none" else ():
        fully_shard(layer, **options, **placement(layer, of_experts))
    if titan and has_weights(parts.whole.lm_head):
        fully_shard([parts.trunk.norm, parts.whole.lm_head], **(options | {"reshard_after_forward": False}))
    fully_shard(parts.whole, **options)


def has_weights(module: nn.Module) -> bool:
    """Return whether the stage of a pipeline has this module."""
    return next(module.parameters(), None) is not None


@contextmanager
def divided_sequences(layout: Layout, mesh: DeviceMesh | None, tensors: list[Tensor]) -> Iterator[None]:
    """Divide tensors [B, n] along the sequence, and attend to the keys of all devices of the mesh."""
    if mesh is None:
        yield
        return
    set_rotate_method("allgather" if layout.context_kind == "all_gather" else "alltoall")
    with context_parallel(mesh, buffers=tensors, buffer_seq_dims=[1] * len(tensors)):
        yield


def whole_positions(n: int, _: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Give a model of transformers, which sees a part of each sequence, the positions of all of its n tokens."""
    return given, named | {"position_ids": torch.arange(n, device="cuda").unsqueeze(0)}


def logits(forward: Callable[..., Any], x: Tensor) -> Tensor:
    """Return the logits of a forward pass of transformers."""
    made: Tensor = forward(input_ids=x).logits
    return made


def hidden_states(trunk: nn.Module, x: Tensor) -> Tensor:
    """Return the output of a stage of transformers."""
    made: Tensor = trunk(input_ids=x).last_hidden_state
    return made


class Held(torch.autograd.Function):
    """Returns its argument as a tensor that is no view, which may be detached."""

    @staticmethod
    def forward(_: object, x: Tensor) -> Tensor:
        """Return a detached tensor, which autograd then connects."""
        return x.detach()

    @staticmethod
    def backward(_: object, gradient: Tensor) -> Tensor:
        """Return the gradient."""
        return gradient


def held(forward: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return the output of a stage, which the pipeline holds."""
    made: Tensor = Held.apply(forward(x))  # type: ignore[no-untyped-call] # untyped in torch
    return made
