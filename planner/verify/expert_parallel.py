"""Experts that devices divide among themselves: all-to-alls of torch.distributed around batched products of each device's own.

``fully_shard`` shares the experts of a layer among the devices that have the same ones, and all else among all, by shard_placement_fn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo, HSDPMeshInfo, ShardPlacementResult
from torch.distributed.tensor import Shard

from planner.capacity.differing import differing
from planner.spec.records import Experts, FeedForward, Layer, Layout, Model
from planner.verify.parts import ACTIVATIONS, Module

BUILT = ("count", "top_k", "d_ff", "gated", "activation", "normalize", "scores_dtype")


class Meshes(NamedTuple):
    """The devices with different experts, a group of torch.distributed, those that share all else, and those with the same experts."""

    group: Any
    every: FSDPMeshInfo
    alike: FSDPMeshInfo


def meshes(layout: Layout, mesh: DeviceMesh) -> Meshes | None:
    """Return the meshes of a layout's experts, None if no devices divide them. Those with different experts are neighbors."""
    degree, shards = layout.expert_parallel, mesh["dp"].size()
    if degree == 1:
        return None
    parts = mesh._unflatten("dp", (shards // degree, degree), ("alike", "ep"))  # noqa: SLF001 - as DeviceMesh has no public one
    if layout.data_parallel == "hsdp":
        both = (mesh["replicas", "dp"], parts["replicas", "alike"])
        return Meshes(parts["ep"].get_group(), *(HSDPMeshInfo(mesh=one, shard_mesh_dim=1, replicate_mesh_dim=0) for one in both))
    return Meshes(parts["ep"].get_group(), *(FSDPMeshInfo(mesh=one, shard_mesh_dim=0) for one in (mesh["dp"], parts["alike"])))


def unbuilt(model: Model) -> Iterator[str]:
    """Yield the settings of experts that these modules do not have."""
    kinds = {layer.experts for run in model.runs for layer in run.layers if layer.experts}
    yield from (f"experts.{name}" for kind in kinds for name in differing(kind, BUILT))


def without_experts(model: Model) -> Model:
    """Return the model with the smallest feed-forward in place of experts."""

    def plain(layer: Layer) -> Layer:
        return replace(layer, experts=None, feed_forward=FeedForward(1)) if layer.experts else layer

    return replace(model, runs=tuple(replace(run, layers=tuple(map(plain, run.layers))) for run in model.runs))


def add_experts(layers: list[Any], model: Model, group: Any, device: torch.device, dtype: torch.dtype) -> None:  # noqa: ANN401
    """Put the experts of a model into the layers of one without them."""
    kinds = [layer.experts for run in model.runs for _ in range(run.count) for layer in run.layers]
    for layer, kind in zip(layers, kinds, strict=True):
        if kind:
            layer.mlp = DividedExperts(model.d_model, kind, group, device, dtype)


def placement(layer: Any, its: Meshes | None) -> dict[str, Any]:  # noqa: ANN401 - a layer
    """Return the argument of fully_shard by which devices share the weights of a layer."""
    if its is None or not isinstance(layer.mlp, DividedExperts):
        return {}
    own = set(layer.mlp.experts.parameters())
    return {"shard_placement_fn": lambda weight: ShardPlacementResult(Shard(0), its.alike if weight in own else its.every)}


class Exchange(torch.autograd.Function):
    """Sends equal parts of a tensor to the devices of a group, and their gradients back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:  # noqa: ANN401 - PyTorch's
        """Return the parts that the device receives."""
        ctx.group = group
        made = torch.empty_like(x)
        dist.all_to_all_single(made, x, group=group)
        return made

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401 - PyTorch's
        """Return the gradients of the parts that the device has sent."""
        made = torch.empty_like(gradient)
        dist.all_to_all_single(made, gradient.contiguous(), group=ctx.group)
        return made, None


class Batched(Module):
    """The matrices of a device's experts, which multiply rows [experts, rows, d]."""

    gate_proj: nn.Parameter
    up_proj: nn.Parameter
    down_proj: nn.Parameter

    def __init__(self, d_model: int, record: Experts, count: int, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        shapes = {"gate_proj": (d_model, record.d_ff), "up_proj": (d_model, record.d_ff), "down_proj": (record.d_ff, d_model)}
        self.activation, self.gated = ACTIVATIONS[record.activation], record.gated
        for name, shape in shapes.items():
            if record.gated or name != "gate_proj":
                self.register_parameter(name, nn.Parameter(torch.empty(count, *shape, device=device, dtype=dtype)))

    def forward(self, x: Tensor) -> Tensor:
        """Return the experts' results."""
        if not self.gated:
            return torch.bmm(self.activation(torch.bmm(x, self.up_proj)), self.down_proj)
        return torch.bmm(self.activation(torch.bmm(x, self.gate_proj)) * torch.bmm(x, self.up_proj), self.down_proj)


class DividedExperts(Module):
    """Routed experts, (B, n, d) to (B, n, d), of which each device of the group has an equal number. Routing is balanced."""

    def __init__(self, d_model: int, record: Experts, group: Any, device: torch.device, dtype: torch.dtype) -> None:  # noqa: ANN401
        super().__init__()
        self.record, self.group, self.devices = record, group, dist.get_world_size(group)
        self.own = record.count // self.devices
        self.gate = nn.Linear(d_model, record.count, bias=False, device=device, dtype=dtype)
        self.experts = Batched(d_model, record, self.own, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the layer adds to x."""
        B, n, d = x.shape
        flat = x.view(B * n, d)
        weights, indices = self.choose(flat)
        return self.route(flat, weights, indices).view(B, n, d)

    def choose(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights and the indices of each token's experts, [tokens, k]."""
        logits = self.gate(x)
        weights, indices = torch.softmax(logits.float(), dim=-1).topk(self.record.top_k)
        if self.record.normalize:
            weights /= weights.sum(dim=-1, keepdim=True)
        return weights.to(logits.dtype) if self.record.scores_dtype == "compute" else weights, indices

    def route(self, x: Tensor, weights: Tensor, indices: Tensor) -> Tensor:
        """Return the weighted sums of the results for rows x [tokens, d]."""
        tokens, k = indices.shape
        slots, owners = indices.view(-1).argsort(), torch.arange(tokens * k, device=x.device) // k
        each = -(-tokens * k // self.record.count)
        sent = x.new_zeros(self.record.count * each, x.shape[1]).index_copy_(0, slots, x[owners])
        rows = self.by_expert(self.exchanged(sent))
        made = self.experts(rows)
        del rows
        made = self.by_device(made)
        made = self.exchanged(made)
        made = made[slots]
        weighted = made * weights.view(-1, 1)
        summed = weighted.new_zeros(tokens, x.shape[1]).index_put_((owners,), weighted, accumulate=True)
        return summed.to(x.dtype)

    def exchanged(self, x: Tensor) -> Tensor:
        """Send rows to the devices of their experts, or back."""
        made: Tensor = Exchange.apply(x, self.group)  # type: ignore[no-untyped-call] # untyped in torch
        return made

    def by_expert(self, x: Tensor) -> Tensor:
        """Order received rows by expert, [experts, rows, d]."""
        return x.view(self.devices, self.own, -1, x.shape[-1]).transpose(0, 1).reshape(self.own, -1, x.shape[-1])

    def by_device(self, x: Tensor) -> Tensor:
        """Order rows of the experts by device, [rows, d]."""
        return x.view(self.own, self.devices, -1, x.shape[-1]).transpose(0, 1).reshape(-1, x.shape[-1])
