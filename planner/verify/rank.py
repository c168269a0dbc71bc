"""Training steps of one of several devices, measured operator by operator: PyTorch's own parallel code in a fake process group."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn import functional as F  # noqa: N812 - the name that every PyTorch program gives it

from planner.spec.precision import RECIPES
from planner.spec.records import Layout, Model, Training
from planner.trace.sizes import structure
from planner.trace.stages import Stage
from planner.verify import expert_parallel, fake_cuda, fake_group, huggingface, modules, parallel, step, torchtitan, tuned
from planner.verify.losses import loss_of
from planner.verify.optimizers import STEP_COUNTER, make
from planner.verify.step import autocast, dtype_of_weights, quiet

DEVICE = torch.device("cuda")
SCHEDULES: dict[str, Any] = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B}


@dataclass(slots=True)
class RankMeasured:
    """Bytes of a device: its parts of weights and states, and what is allocated in a step.

    ``points`` are the bytes before the step and after each phase, ``peaks`` those of the phases: forward, backward and optimizer, or of
    a pipeline all microbatches and optimizer. ``sent`` has the whole tensors of its collectives. ``saved``: None for a pipeline.
    """

    params: int = 0
    weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    saved: int | None = None
    points: list[int] = field(default_factory=list)
    peaks: list[int] = field(default_factory=list)
    sent: dict[str, int] = field(default_factory=dict)


def measure(model: Model, training: Training, layout: Layout, rank: int, stages: tuple[Stage, ...]) -> RankMeasured:
    """Measure the second step of a device of the layout, which has these stages of a pipeline, if any."""
    transformers = training.implementation.startswith("transformers")
    assert training.device != "cpu"  # noqa: S101 - refused
    tracker, checkpoints = fake_group.RankTracker(DEVICE), training.recompute != "none"
    with ExitStack() as stack:
        stack.enter_context(quiet())
        if transformers:
            stack.enter_context(huggingface.simulated_runtime(padded=training.padding))
            reads_data = "transformers.masking_utils.find_packed_sequence_indices"
            stack.enter_context(mock.patch(reads_data, lambda _: None))  # noqa: PT008 - a Mock would hold the tensor
        mesh = stack.enter_context(fake_group.mesh(rank, parallel.dimensions(layout)))
        of_sequences, of_experts = parallel.of_sequences(layout, mesh), expert_parallel.meshes(layout, mesh)
        order = torchtitan.KERNELS if training.implementation == "torchtitan" else None
        stack.enter_context(fake_cuda.cuda(training.device, training.attention_kernel, order))
        stack.enter_context(tuned.kernels(training))
        stack.enter_context(fake_group.simulated(tracker, DEVICE, checkpoints=checkpoints))
        return Rank(model, training, layout, mesh, tracker, stages, of_sequences, of_experts).measure()


def local(tensor: Tensor) -> Tensor:
    """Return the device's part of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def storages(tensors: Iterable[Tensor]) -> dict[int, int]:
    """Return the bytes of the storages of the device's parts of tensors, each once."""
    found = [local(tensor).untyped_storage() for tensor in tensors]
    return {id(storage): storage.nbytes() for storage in found}


class Rank:
    """A device's part of a model with its inputs and its optimizer."""

    def __init__(
        self,
        model: Model,
        training: Training,
        layout: Layout,
        mesh: DeviceMesh,
        tracker: fake_group.RankTracker,
        stages: tuple[Stage, ...],
        of_sequences: DeviceMesh | None,
        of_experts: expert_parallel.Meshes | None,
    ) -> None:
        self.training, self.layout, self.mesh, self.tracker, self.stages = training, layout, mesh, tracker, stages
        self.of_sequences, self.shifts = of_sequences, shifts(model, training)
        with tracker:  # above the other modes, as DTensor requires
            self.modules = [build(model, training, layout, mesh, stage, of_experts) for stage in stages or (None,)]
        if tuned.tunes(training):
            gc.collect()  # whole weights, to which parts of peft's model refer in cycles
        shape = (training.batch_size * (training.gradient_accumulation if stages else 1), training.sequence_length)
        self.ids, self.targets = (torch.zeros(shape, dtype=torch.long, device=DEVICE) for _ in range(2))
        mask = torch.ones_like(self.ids) if training.padding else None
        self.loss = loss_of(training)
        self.given = {} if mask is None else {"attention_mask": mask}
        if training.loss == "default" and training.implementation.startswith("pytorch"):
            self.loss = nn.Module.__call__  # whose hooks gather weights
        self.weights = [weight for module in self.modules for weight in module.parameters()]
        self.scales = [scale for module in self.modules for scale in tuned.states(module)]
        trained = [weight for weight in self.weights if weight.requires_grad]
        kinds = [[weight for weight in trained if isinstance(weight, DTensor) is kind] for kind in (True, False)]
        self.optimizers = [one for some in kinds if some for one in make(training, [("", weight) for weight in some], frozenset())]
        self.schedule: Any = self.scheduled(model.d_model) if stages else None
        buffers = [buffer for module in self.modules for buffer in module.buffers()]
        tracker.track(
            [*map(local, self.weights), *self.scales, *buffers, self.ids, self.targets, *([] if mask is None else [mask])], "start"
        )

    def measure(self) -> RankMeasured:
        """Run two steps."""
        self.step(RankMeasured())
        self.tracker.sent.clear()
        params = sum(local(weight).numel() * tuned.elements(weight) for weight in self.weights)
        found = RankMeasured(params, sum(storages([*self.weights, *self.scales]).values()))
        self.step(found)
        states = [entry for one in self.optimizers for state in one.state.values() for entry in state.items()]
        found.optimizer = sum(storages(value for key, value in states if isinstance(value, Tensor) and key != STEP_COUNTER).values())
        found.sent = dict(self.tracker.sent)
        return found

    def step(self, found: RankMeasured) -> None:
        """Run a step."""
        with loss_parallel() if self.layout.loss_parallel else nullcontext():
            loss = self.microbatches(found) if self.stages else self.accumulated(found)
        found.gradients = sum(storages(weight.grad for weight in self.weights if weight.grad is not None).values())
        with self.phase(found):
            for one in self.optimizers:
                one.step()
        del loss
        for weight in self.weights:
            weight.grad = None
        for module in self.modules:
            tuned.kept_inputs(module).clear()

    def accumulated(self, found: RankMeasured) -> Tensor:
        """Run the passes of a step, the last of which is measured, and return its loss."""
        (module,) = self.modules
        synchronize = module.set_requires_gradient_sync if isinstance(module, FSDPModule) else lambda _: None
        for _ in range(self.training.gradient_accumulation - 1):
            synchronize(False)
            self.forward_and_backward(module, RankMeasured())
            tuned.kept_inputs(module).clear()
        synchronize(True)
        return self.forward_and_backward(module, found)

    def forward_and_backward(self, module: nn.Module, found: RankMeasured) -> Tensor:
        """Run a pass."""
        found.points.append(self.tracker.bytes)
        with ExitStack() as stack:
            with self.tracker:
                stack.enter_context(parallel.divided_sequences(self.layout, self.of_sequences, [self.ids, self.targets]))
            before = set(self.tracker.storages)
            with self.phase(found), autocast(self.training, DEVICE.type):
                loss, output = self.loss(partial(module, **self.given) if self.given else module, self.ids, self.targets)
                del output
                if self.training.gradient_accumulation > 1:
                    loss = loss / self.training.gradient_accumulation
            unread = tuned.kept_inputs(module) if hasattr(module, "prompt_encoder") else []  # which precede no layer
            others = before | storages([*module.parameters(), loss, *unread]).keys()
            kept = (one.bytes for key, (_, one) in self.tracker.storages.items() if key not in others)
            inputs = [*([self.ids] if looks_up(module) else []), *([] if self.shifts else [self.targets])]
            found.saved = sum(kept) + sum(storages(inputs).values())
            with self.phase(found):
                torch.autograd.backward(loss)
                stack.close()
        return loss

    def scheduled(self, width: int) -> Any:  # noqa: ANN401 - one of several classes
        """Return the schedule of the stages. ``width``: of the activations between them."""
        training, layout = self.training, self.layout
        B, n = training.batch_size, training.sequence_length // layout.context_parallel
        rows = n // layout.tensor_parallel if layout.sequence_parallel else n
        between = torch.empty((B, rows, width), dtype=dtype_of_weights(training), device="meta", requires_grad=True)
        ids = torch.empty((B, n), dtype=torch.long, device="meta")
        made = [
            PipelineStage(
                module,
                structure(stage.number),
                structure(stage.of),
                DEVICE,
                input_args=ids if stage.first else between,
                output_args=between,  # of the last stage, it is not sent
                group=self.mesh["pp"].get_group(),
            )
            for module, stage in zip(self.modules, self.stages, strict=True)
        ]
        kind = SCHEDULES[layout.schedule]
        loss = summed_loss_of_logits if training.implementation == "torchtitan" and training.loss == "default" else loss_of_logits
        return kind(made if layout.virtual_stages > 1 else made[0], training.gradient_accumulation, loss_fn=loss)

    def microbatches(self, found: RankMeasured) -> Tensor | None:
        """Run the microbatches of a step, whose loss no variable keeps."""
        given = [self.ids] if self.stages[0].first else []
        last = {"target": self.targets} if self.stages[-1].last else {}
        found.points.append(self.tracker.bytes)
        with ExitStack() as stack, self.phase(found):
            stack.enter_context(parallel.divided_sequences(self.layout, self.of_sequences, [self.ids, self.targets]))
            self.schedule.step(*given, **last, return_outputs=False)
            stack.close()
        return None

    @contextmanager
    def phase(self, found: RankMeasured) -> Iterator[None]:
        """Measure a phase."""
        self.tracker.start_phase()
        with self.tracker:
            yield
        found.peaks.append(self.tracker.peak_bytes)
        found.points.append(self.tracker.bytes)


def looks_up(module: nn.Module) -> bool:
    """Return whether the lookup of tokens saves them, since an embedding trains."""
    return any(weight.requires_grad for name, weight in module.named_parameters() if "embed" in name and "prompt_encoder" not in name)


def shifts(model: Model, training: Training) -> bool:
    """Return whether the loss saves shifted copies of the targets, not the targets."""
    of_class = training.loss == "default" and training.implementation.startswith("transformers") and model.causal
    return of_class or training.loss == "cross_entropy_shifted"


def loss_of_logits(logits: Tensor, targets: Tensor) -> Tensor:
    """Compute the loss of a microbatch. The pipeline holds the logits, but PyTorch's engine would free what their graph saves."""
    loss = F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.view(-1))
    logits.detach_()
    return loss


def summed_loss_of_logits(logits: Tensor, targets: Tensor) -> Tensor:
    """Compute that of torchtitan."""
    tokens = torch.ones((), device=logits.device)
    total = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(0, 1), reduction="sum")
    logits.detach_()
    return total / tokens


def build(
    model: Model, training: Training, layout: Layout, mesh: DeviceMesh, stage: Stage | None, of_experts: expert_parallel.Meshes | None
) -> nn.Module:
    """Return the modules of a stage, or of the whole model, divided by the layout."""
    recipe, transformers = RECIPES[training.precision], training.implementation.startswith("transformers")
    dtype = getattr(torch, recipe.master or recipe.weights)
    plain = expert_parallel.without_experts(model) if of_experts else model
    if tuned.tunes(training):
        whole, _ = step.build(model, training, DEVICE)
        module: Any = tuned.base_of(whole)
    else:
        other = torchtitan.CausalLM if training.implementation == "torchtitan" else modules.CausalLM
        whole = module = (huggingface.build if transformers else other)(plain, training, DEVICE, dtype)
    parts = parallel.Parts(module, whole)
    if of_experts:
        expert_parallel.add_experts(parts.layers, model, of_experts.group, DEVICE, dtype)
    n = training.sequence_length // layout.context_parallel
    if transformers and (layout.tensor_parallel > 1 or stage):
        parts.trunk.register_forward_pre_hook(partial(parallel.whole_positions, n), with_kwargs=True)
        last = stage is None or stage.last
        module.forward = partial(parallel.logits, module.forward) if last else partial(parallel.hidden_states, parts.trunk)
    if training.implementation.startswith("pytorch"):
        parts.trunk.dtype, make_tables = dtype_of_weights(training), parts.trunk.make_tables
        parts.trunk.make_tables = lambda _, device: make_tables(n, device)
        module.forward = module.loss if training.loss == "default" else module.forward
    if stage:
        parallel.cut(parts, stage)
        module.forward = partial(parallel.held, module.forward)
    if layout.tensor_parallel > 1:
        parallel.share_matrices(parts, layout, mesh["tp"])
    if layout.data_parallel in ("fsdp", "hsdp"):
        shared = mesh["replicas", "dp"] if layout.data_parallel == "hsdp" else mesh["dp"]
        parallel.share_weights(parts, training, layout, shared, of_experts)
    return whole
