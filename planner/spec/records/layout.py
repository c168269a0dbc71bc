"""The devices that train a model together, and how the model is divided among them."""

from __future__ import annotations

from fractions import Fraction
from math import lcm
from typing import ClassVar, Literal

from planner.spec.key import group, key, record

Schedule = Literal["gpipe", "1f1b", "interleaved", "zero_bubble", "zbv", "dualpipev"]
V_SHAPED = ("zbv", "dualpipev")
"""Schedules with two stages per device, of which the second ones run in reverse order."""
DIVIDED = ("zero_bubble", *V_SHAPED)
"""Schedules with a backward pass of the input and a later one of the weights."""
ContextKind = Literal["ring", "all_gather", "ulysses"]
DataParallel = Literal["ddp", "zero1", "zero2", "fsdp", "hsdp"]
ShardGroup = Literal["block", "titan", "none"]
Reshard = Literal["auto", "always", "never"]
Engine = Literal["pytorch", "deepspeed"]
_DEEPSPEED = "engine: deepspeed"
_STAGE_3 = f"{_DEEPSPEED}; data_parallel: fsdp"
Offload = Literal["none", "optimizer", "weights"]
RESERVE_BYTES = 2 << 30  # of cluster.reserve, and of a device that a command names


# A table, in which a key takes a line or two.
# fmt: off

@record
class Cluster:
    """The devices of a training run."""

    device: str = key("Device: a name of the device catalog, or a mapping with the memory of another one.", longest=100,
        example="H100-80GB-SXM", aliases="gpu_type")
    memory_bytes: int  # of one device
    devices: int = key("Number of devices.", "devices", example=512, aliases="gpus n_gpus num_gpus num_devices world_size n_devices")
    per_node: int = key("Devices per node.", "devices", default=8, derived="that of the device catalog, else 8; all devices if fewer",
        example=8, aliases="gpus_per_node nproc_per_node devices_per_node num_gpus_per_node")
    inter_node: str | None = key("Bandwidth between nodes, per device and direction, with a unit, for the time of a step.",
        default=None, derived="400Gb/s", longest=100, example="400Gb/s")
    reserve: ClassVar[str] = key("Memory of each device that the plan does not cover, with a unit: CUDA context, NCCL buffers, "
        "workspaces and fragmentation. The verdict keeps it free.", default="2GiB", longest=100)
    reserve_bytes: int = RESERVE_BYTES
    price: ClassVar[object] = group("Price of device hours. None is shipped, since prices differ by provider and month.",
        form="none")
    price_per_device_hour: Fraction | None = key("Price of a device for an hour, in the currency that price.currency names.",
        path="price.per_device_hour", default=None, needed=True, above=0, example=2.49)
    currency: str | None = key("Currency of the price.", path="price.currency", default=None, needed=True, longest=10, example="USD")
    price_source: str | None = key("Where the price is from.", path="price.source", default=None, needed=True, longest=1000,
        example="https://example.com/prices")
    price_date: str | None = key("Day of the price.", path="price.date", default=None, needed=True, longest=10, example="2026-05-01")
    energy: ClassVar[object] = group("What turns device hours into energy and CO2.", form="none")
    pue: Fraction | None = key("Power usage effectiveness: energy of the data center, as a multiple of that of the devices.",
        path="energy.pue", default=None, derived="not given: energy is not counted", least=1, example=1.1)
    kg_co2_per_kwh: Fraction | None = key("CO2 of a kilowatt-hour, in kg.", path="energy.kg_co2_per_kwh", default=None,
        derived="not given: CO2 is not counted", above=0, example=0.385)
    availability: Fraction = key("Share of device hours that train; the others are restarts, evaluation and failures.", default=Fraction(1),
        above=0, example=0.92, quiet=True)
    calibration: str | None = key("File of planner calibrate, from the current directory, with coefficients of step time.", default=None,
        derived="fitted to published runs", longest=1000, example="calibration.yaml", quiet=True)


@record
class Layout:
    """How a model is divided among the devices of a cluster."""

    cluster: Cluster
    tensor_parallel: int = key("Devices that share every matrix of a layer.", "devices", default=1,
        aliases="tensor_model_parallel_size tensor_parallel_size tensor_parallel_degree tp tp_size autotp_size model_parallel_size")
    sequence_parallel: bool = key("Between tensor-parallel matrices, divide activations along the sequence.", default=False,
        aliases="enable_sequence_parallel sp")
    loss_parallel: bool = key("Compute the loss on each device's part of the vocabulary. Otherwise the logits are gathered.", default=False,
        aliases="disable_loss_parallel")
    pipeline_parallel: int = key("Devices that have the layers in turn, as stages of a pipeline.", "devices", default=1,
        aliases="pipeline_model_parallel_size pipeline_parallel_size pipeline_parallel_degree pp pp_size")
    virtual_stages: int = key("Stages per device of a pipeline.", "stages", default=1,
        only="schedule: interleaved or zero_bubble or zbv or dualpipev",
        aliases="virtual_pipeline_model_parallel_size num_virtual_stages vpp vpp_size")
    first_stage_layers: int | None = key("Layers of the first stage, which has the token embedding, too.", "layers", default=None,
        derived="those of the other stages", least=0, example=7, quiet=True,
        aliases="decoder_first_pipeline_num_layers num_layers_in_first_pipeline_stage")
    last_stage_layers: int | None = key("Layers of the last stage, which has the LM head, too.", "layers", default=None,
        derived="those of the other stages", least=0, example=7, quiet=True,
        aliases="decoder_last_pipeline_num_layers num_layers_in_last_pipeline_stage")
    schedule: Schedule = key("Order in which a pipeline runs microbatches.", default="1f1b",
        aliases="pipeline_parallel_schedule pipeline_schedule",
        values={"1f1b": "one_forward_one_backward", "interleaved": "interleaved1f1b interleaved_1f1b", "zero_bubble": "zb zb1p zbh1 "
        "interleavedzerobubble", "zbv": "zbvzerobubble", "dualpipev": "dual_pipe_v"})
    context_parallel: int = key("Devices that share every sequence.", "devices", default=1,
        aliases="context_parallel_size context_parallel_degree cp cp_size")
    context_kind: ContextKind = key("How attention reads keys of other devices: passed around (ring), gathered (all_gather), or by "
        "dividing the heads instead (ulysses).", default="ring", aliases="cp_comm_type context_parallel_rotate_method cp_kind",
        values={"ring": "p2p alltoall", "all_gather": "allgather", "ulysses": "a2a"})
    expert_parallel: int = key("Devices that share the experts of a layer.", "devices", default=1,
        aliases="expert_model_parallel_size expert_parallel_size expert_parallel_degree ep ep_size")
    expert_tensor_parallel: int | None = key("Devices that share the matrices of each expert, under Megatron-Core.", "devices",
        default=None, derived="tensor_parallel", quiet=True, aliases="expert_tensor_parallel_size etp")
    imbalance: Fraction = key("Tokens of the experts on the fullest device, as a multiple of the average over devices. 1: routing is "
        "balanced.", default=Fraction(1), least=1, example=1.5, quiet=True)
    data_parallel: DataParallel = key("What the devices that read different data share: copies of everything (ddp); also the optimizer "
        "state (zero1), gradients (zero2) and weights (fsdp), or all of it within groups of shard_degree devices (hsdp). Their number "
        "follows: devices / (tensor_parallel * pipeline_parallel * context_parallel). Those that share a sequence also share with fsdp.",
        default="ddp",
        aliases="zero_stage dp_strategy sharding_strategy",
        values={"ddp": "no_shard NO_SHARD dp", "zero1": "os zero-1 optimizer", "zero2": "os_g zero-2 SHARD_GRAD_OP",
        "fsdp": "zero3 zero-3 fsdp2 FULL_SHARD full_shard", "hsdp": "HYBRID_SHARD hybrid_shard"})
    engine: Engine = key("Program that divides the model among data-parallel devices: PyTorch, or DeepSpeed 0.19, with its ZeRO stages 1 "
        "(zero1), 2 (zero2) and 3 (fsdp). implementation megatron-core always runs Megatron-Core's own.", default="pytorch",
        values={"pytorch": "torch", "deepspeed": "ds"})
    reduce_bucket_size: int = key("Elements of DeepSpeed's bucket of gradients to reduce.", "elements", default=500000000,
        only=_DEEPSPEED)
    overlap_comm: bool | None = key("DeepSpeed reduces gradients during the backward pass, with a second bucket in stages 1 and 2.",
        default=None, derived="true in stage 3, else false", only=_DEEPSPEED, quiet=True)
    persistence_threshold: int = key("Elements of the largest weights that stage 3 keeps whole.", "elements", default=100000,
        only=_STAGE_3, quiet=True, aliases="stage3_param_persistence_threshold param_persistence_threshold")
    max_reuse_distance: int = key("Elements within which a weight that stage 3 uses again is not freed.", "elements", default=1000000000,
        only=_STAGE_3, quiet=True, aliases="stage3_max_reuse_distance")
    max_live_parameters: int = key("Elements of whole weights from which on stage 3 gathers none ahead.", "elements", default=1000000000,
        only=_STAGE_3, quiet=True, aliases="stage3_max_live_parameters")
    prefetch_bucket_size: int = key("Elements that each module gathers ahead in stage 3.", "elements", default=50000000,
        only=_STAGE_3, quiet=True, aliases="stage3_prefetch_bucket_size")
    shard_degree: int = key("Devices that share one copy of the weights under hsdp, which requires it.", "devices",
        default=1, only="data_parallel: hsdp", aliases="data_parallel_shard_degree dp_shard")
    shard_group: ShardGroup = key("Weights that are gathered together: each layer's, and all others (block); each layer's, the "
        "embedding's, and those of final norm and head, as in torchtitan (titan); or all (none).", default="block",
        only="data_parallel: fsdp or hsdp", aliases="auto_wrap_policy fsdp_auto_wrap_policy")
    reshard_after_forward: Reshard = key("Whether gathered weights are freed after a group's forward pass, and gathered again for its "
        "backward pass: those of all groups but the root's (auto), of all (always), or of none (never).", default="auto",
        only="data_parallel: fsdp or hsdp", quiet=True, aliases="fsdp_reshard_after_forward")
    gradient_as_bucket_view: bool = key("Gradients are views of DDP's buckets, not tensors beside them.", default=False,
        only="data_parallel: ddp or zero1")
    offload: Offload = key("What is in host memory: nothing, the optimizer state, or weights, gradients and optimizer state (weights).",
        default="none", aliases="cpu_offload offload_policy offload_optimizer",
        values={"weights": "true params parameters param", "none": "false"})

    @property
    def expert_tensor_degree(self) -> int:
        """The devices that share the matrices of each expert."""
        return self.tensor_parallel if self.expert_tensor_parallel is None else self.expert_tensor_parallel

    @property
    def overlaps(self) -> bool:
        """Whether DeepSpeed reduces gradients during the backward pass."""
        return self.data_parallel == "fsdp" if self.overlap_comm is None else self.overlap_comm

    @property
    def stages(self) -> int:
        """The stages of a pipeline, those of all of its devices."""
        return self.pipeline_parallel * self.virtual_stages

    @property
    def has_equal_stages(self) -> bool:
        """Whether all stages have as many layers."""
        return self.first_stage_layers is None and self.last_stage_layers is None

    @property
    def data_degree(self) -> int:
        """The devices that read different data."""
        return self.cluster.devices // (self.tensor_parallel * self.pipeline_parallel * self.context_parallel)

    @property
    def sharing_degree(self) -> int:
        """The devices that average gradients, and share weights under fsdp: those that read different data or parts of a sequence."""
        return self.data_degree * self.context_parallel

    @property
    def sequence_multiple(self) -> int:
        """The tokens of which a sequence must be a multiple, so that devices have equal parts of it."""
        parts = 2 if self.context_parallel > 1 and self.context_kind != "ulysses" else 1
        return self.context_parallel * lcm(parts, self.tensor_parallel if self.sequence_parallel else 1)
