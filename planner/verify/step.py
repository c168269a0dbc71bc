"""Two training steps of a spec's model, measured operator by operator."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, UntypedStorage, nn
from torch._subclasses.fake_tensor import DynamicOutputShapeException
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from planner.spec.precision import RECIPES
from planner.spec.records import Model, Training
from planner.verify import fake_cuda, huggingface, modules, torchtitan, tuned
from planner.verify.allocations import AllocationTracker, dtype_name
from planner.verify.engine import backward
from planner.verify.losses import loss_of
from planner.verify.measured import CHECKPOINT, Measured, Phase, SavedStorage
from planner.verify.offload import offloading
from planner.verify.optimizers import Trainer, muon_names
from planner.verify.parts import UnbuildableError

LOSS = "loss"  # the path of operators outside of all modules, or in the model itself
MICRO_BATCHES = 2  # measured per step: those after the second are like it, since all gradients exist from the start
# From a model, training settings and a device: modules, and our names for theirs.
Builder = Callable[[Model, Training, torch.device], tuple[nn.Module, Callable[[str], str]]]
# Computes the gradients of its inputs in the forward pass, together with the loss.
MAKES_GRADIENTS = "torch_nn._linear_cross_entropy_batch_chunked.default"


class RunningFunction(TorchFunctionMode):
    """Records which of torch's public functions is running."""

    def __init__(self) -> None:
        super().__init__()
        self.running = ""

    def __torch_function__(
        self, func: Callable[..., object], _types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        before, self.running = self.running, getattr(func, "__name__", str(func))
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.running = before


class SavedTensorRecorder:
    """Records the storages that autograd saves, each with the module and the function that saved it first."""

    def __init__(self, model: nn.Module, names: Callable[[str], str]) -> None:
        self.paths = {module: names(name) or LOSS for name, module in model.named_modules()}
        self.stack = [LOSS]
        self.saved: dict[int, tuple[weakref.ref[UntypedStorage], SavedStorage]] = {}
        of_model = (tensor.untyped_storage() for tensor in (*model.parameters(), *model.buffers()))
        self.ignored = {id(storage): weakref.ref(storage) for storage in of_model}  # of those freed in a pass, others take the ids
        self.functions = RunningFunction()

    def pack(self, tensor: Tensor) -> Tensor:
        """Record a saved tensor."""
        storage = tensor.untyped_storage()
        known, ignored = self.saved.get(id(storage)), self.ignored.get(id(storage))
        if (ignored is None or ignored() is not storage) and (known is None or known[0]() is not storage):
            function = self.functions.running or CHECKPOINT
            saved = SavedStorage(self.stack[-1], function, tuple(tensor.shape), dtype_name(tensor), storage.nbytes())
            self.saved[id(storage)] = weakref.ref(storage), saved
        return tensor.detach()  # a result saved as itself would keep itself alive

    @contextmanager
    def record(self) -> Iterator[None]:
        """Record the tensors saved inside the context."""

        def enter(module: nn.Module, _args: object) -> None:
            self.stack.append(self.paths.get(module, self.stack[-1]))

        def leave(_module: nn.Module, _args: object, _result: object) -> None:
            self.stack.pop()

        hooks = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave)]
        try:
            with torch.autograd.graph.saved_tensors_hooks(self.pack, lambda tensor: tensor), self.functions:
                yield
        finally:
            for hook in hooks:
                hook.remove()


def dtype_of_weights(training: Training) -> torch.dtype:
    """Return the dtype of the weights that the forward pass reads."""
    dtype: torch.dtype = getattr(torch, RECIPES[training.precision].weights)
    return dtype


def autocast(training: Training, device: str) -> torch.autocast:
    """Return the precision's autocast, or a disabled one."""
    lowered = RECIPES[training.precision].autocast
    return torch.autocast(device, dtype=getattr(torch, lowered) if lowered else None, enabled=lowered is not None)


@contextmanager
def quiet() -> Iterator[None]:
    """Ignore warnings about speed (autocast on the CPU leaves a norm's input in 16 bits), deprecated names and views of logits."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor", category=UserWarning)
        warnings.filterwarnings("ignore", message="Mismatch dtype between input and weight")
        warnings.filterwarnings("ignore", message=".*(gradient_checkpointing|past_key_values).* is deprecated", category=FutureWarning)
        yield


def measure(model: Model, training: Training, builder: Builder | None = None) -> Measured:
    """Train the model for two steps and return the bytes and FLOPs measured in PyTorch.

    The training's device selects the CPU's kernels on real tensors, or a fake GPU, at any size, on tensors without data. ``builder``
    returns the modules to measure, by default those of the implementation.
    Raises ``UnbuildableError``, also for inputs that PyTorch's kernels reject, and ``FakeCudaUnavailableError``.
    """
    if training.device == "cpu":
        with quiet():
            return Step(model, training, "cpu", builder).measure()
    order = torchtitan.KERNELS if training.implementation == "torchtitan" else None
    running = (
        huggingface.simulated_runtime(padded=training.padding) if training.implementation.startswith("transformers") else nullcontext()
    )
    with quiet(), running, tuned.kernels(training), fake_cuda.cuda(training.device, training.attention_kernel, order):
        try:
            return Step(model, training, "cuda", builder).measure()
        except DynamicOutputShapeException as error:
            raise UnbuildableError(f"tensors without data do not run it: the size of an output depends on data ({error.func})") from error
        except RuntimeError as error:  # e.g. a grouped product whose rows are not a multiple of 16 bytes
            raise UnbuildableError(f"PyTorch does not run it: {error}") from error


def build(model: Model, training: Training, device: torch.device) -> tuple[nn.Module, Callable[[str], str]]:
    """Return the modules of the implementation, and our names for theirs."""
    if training.float8:
        raise UnbuildableError("linears in float8 cannot be built in PyTorch here; remove training.float8 to compare the rest")
    if training.liger:
        raise UnbuildableError("the kernels of liger-kernel run on GPUs alone; remove training.liger to compare the rest")
    if tuned.tunes(training):
        plain = replace(training, adapters=None, base=None, recompute="none") if of_transformers(training) else training
        return tuned.build(*of_implementation(model, plain, device, tuned.dtype_of_base(training)), model, training)
    return of_implementation(model, training, device, dtype_of_weights(training))


def of_transformers(training: Training) -> bool:
    """Whether transformers' classes are built."""
    return training.implementation.startswith("transformers")


def of_implementation(model: Model, training: Training, device: torch.device, dtype: torch.dtype) -> tuple[nn.Module, Callable[[str], str]]:
    """Return the modules of the implementation without adapters, and our names for theirs."""
    if of_transformers(training):
        return huggingface.build(model, training, device, dtype), lambda name: huggingface.our_name(name, model)
    return (torchtitan if training.implementation == "torchtitan" else modules).CausalLM(model, training, device, dtype), str


def parameters_of_tuned(model: Model, training: Training) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter of a model with adapters by our name."""
    with quiet(), fake_cuda.cuda(), tuned.kernels(training):
        return tuned.shapes(*build(model, replace(training, device="a100"), torch.device("cuda")))


class Step:
    """A model with its inputs and its optimizer."""

    def __init__(self, model: Model, training: Training, device: Literal["cuda", "cpu"], builder: Builder | None = None) -> None:
        self.device, self.training = torch.device(device), training
        self.module, self.names = (builder or build)(model, training, self.device)
        self.loss = loss_of(training)
        shape = (training.batch_size, training.sequence_length)
        self.ids, self.targets = (torch.zeros(shape, dtype=torch.long, device=self.device) for _ in range(2))
        if config := getattr(self.module, "config", None) if getattr(self.module, "main_input_name", "") == "input_features" else None:
            frames = (training.batch_size, config.num_mel_bins, 2 * config.max_source_positions)
            self.ids = torch.zeros(frames, dtype=dtype_of_weights(training), device=self.device)
        mask = (torch.ones_like(self.ids),) if training.padding else ()
        self.called = partial(self.module, attention_mask=mask[0]) if mask else self.module
        hidden = muon_names(model, training) if training.optimizer == "muon" else frozenset[str]()
        self.trainer = Trainer(self.module, training, self.names, hidden)
        self.allocations = AllocationTracker(self.device)
        initial = (
            *self.module.parameters(),
            *tuned.states(self.module),
            *self.module.buffers(),
            *self.trainer.initial_tensors(),
            self.ids,
            self.targets,
            *mask,
        )
        self.allocations.track(initial, "start")

    def forward(self) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the loss, and the tensors that the program keeps until the step ends."""
        with autocast(self.training, self.device.type):
            with offloading(self.module) if self.training.offload_activations else nullcontext():
                loss, output = self.loss(self.called, self.ids, self.targets)
            if self.training.gradient_accumulation > 1:
                loss = loss / self.training.gradient_accumulation
        for module, name, tensor in self.states():
            setattr(module, name, tensor.detach())
        if not self.training.keep_logits:
            return loss, ()
        # Detached from the graph, which would keep alive tensors that PyTorch's engine frees.
        return loss, tuple(tensor.detach() for tensor in tree_leaves(output) if isinstance(tensor, Tensor))

    def states(self) -> Iterator[tuple[nn.Module, str, Tensor]]:
        """Yield the tensors that modules keep until the next forward pass, such as the last state of a recurrence, with their attributes.

        Their graph must not be kept: its saved tensors, which PyTorch's engine frees, would stay alive.
        """
        for module in self.module.modules():
            yield from ((module, name, value) for name, value in list(vars(module).items()) if isinstance(value, Tensor))

    def measure(self) -> Measured:
        """Run both steps."""
        first, _, kept = self.step(SavedTensorRecorder(self.module, self.names))
        phases, (start, after_forward, after_backward, _), _ = self.step(None)
        return Measured(
            params=sum(parameter.numel() for parameter in self.module.parameters()),
            kept=kept,
            saved_bytes=sum(saved.bytes for saved in kept),
            flops_forward=first[0].flops,
            flops_backward=first[1].flops,
            start_bytes=start,
            after_forward_bytes=after_forward,
            after_backward_bytes=after_backward,
            first_phases=first,
            phases=phases,
        )

    def step(self, recorder: SavedTensorRecorder | None) -> tuple[tuple[Phase, ...], tuple[int, ...], tuple[SavedStorage, ...]]:
        """Run a training step; return its phases, the bytes allocated before and after each, and the recorded storages."""
        phases: list[Phase] = []
        for _ in range(min(self.training.gradient_accumulation, MICRO_BATCHES) - 1):
            with self.allocations:
                self.forward_and_backward()
        points = [self.allocations.bytes]
        known = {key: storage for key, (storage, _) in self.allocations.storages.items()}
        with self.phase("forward", phases, points), recorder.record() if recorder else nullcontext():
            loss, output = self.forward()
        kept = self.saved_for_backward(recorder, known, loss, output) if recorder else ()
        roots, loss = [loss.grad_fn], loss.detach()
        with self.phase("backward", phases, points):
            backward(roots, self.device, self.trainer.arrived, checkpoints=self.training.recompute != "none")
        with self.phase("optimizer", phases, points):
            self.trainer.step()
        self.trainer.free_gradients()
        tuned.kept_inputs(self.module).clear()
        del output
        return tuple(phases), tuple(points), kept

    def forward_and_backward(self) -> None:
        """Run one micro-batch and keep its gradients."""
        loss, _ = self.forward()
        roots, loss = [loss.grad_fn], loss.detach()
        backward(roots, self.device, self.trainer.arrived, checkpoints=self.training.recompute != "none")

    @contextmanager
    def phase(self, name: Literal["forward", "backward", "optimizer"], phases: list[Phase], points: list[int]) -> Iterator[None]:
        """Measure one phase: add its peak and FLOPs to ``phases`` and the bytes allocated after it to ``points``."""
        self.allocations.start_phase()
        with self.allocations:
            yield
        phases.append(Phase(name, self.allocations.peak_bytes, self.allocations.flops))
        points.append(self.allocations.bytes)

    def saved_for_backward(
        self, recorder: SavedTensorRecorder, known: dict[int, weakref.ref[UntypedStorage]], loss: Tensor, output: tuple[Tensor, ...]
    ) -> tuple[SavedStorage, ...]:
        """Return the storages saved for backward: the recorded ones, and others still allocated, such as the inputs of checkpoints.

        Gradients that a chunked loss computes in the forward pass are results, so they are not included. Neither are states, and buffers
        that the forward pass replaces, as CTRL does with one in another dtype.
        """
        saved = {key: row for key, (storage, row) in recorder.saved.items() if storage() is not None}
        results = (
            loss,
            *output,
            *self.module.parameters(),
            *self.module.buffers(),
            *tuned.kept_inputs(self.module),
            *(tensor for _, _, tensor in self.states()),
        )
        counted = saved.keys() | {id(tensor.untyped_storage()) for tensor in results}
        made = {key: one for key, (storage, one) in self.allocations.storages.items() if known.get(key) is not storage}
        others = [one for key, one in made.items() if key not in counted and one.operator != MAKES_GRADIENTS]
        return (*saved.values(), *(SavedStorage("model", CHECKPOINT, one.shape, one.dtype, one.bytes) for one in others))
