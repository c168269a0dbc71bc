"""Two training steps of a spec's model, watched operator by operator."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, UntypedStorage, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from planner.spec.precision import RECIPES
from planner.spec.records import Model, Training
from planner.verify import huggingface, pretend
from planner.verify.engine import backward
from planner.verify.live import Live, Made
from planner.verify.losses import loss_of
from planner.verify.measured import CHECKPOINT, Measured, Phase, SavedStorage
from planner.verify.modules import CausalLM
from planner.verify.optimizers import Trainer, muon_names
from planner.verify.parts import UnbuildableError

LOSS = "loss"  # the path of what runs in no module, or in the whole model itself
MICRO_STEPS = 2  # of one step: those after the second are like it, with all gradients there from the start
# Makes the gradients of its inputs beside the loss.
MAKES_GRADIENTS = "torch_nn._linear_cross_entropy_batch_chunked.default"


class Functions(TorchFunctionMode):
    """Remembers which of torch's public functions is running."""

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


class Keeper:
    """Follows what autograd saves: each storage once, with the module and the function that saved it first."""

    def __init__(self, model: nn.Module, names: Callable[[str], str]) -> None:
        self.paths = {module: names(name) or LOSS for name, module in model.named_modules()}
        self.stack = [LOSS]
        self.saved: dict[int, tuple[weakref.ref[UntypedStorage], SavedStorage]] = {}
        self.ignored = {id(tensor.untyped_storage()) for tensor in (*model.parameters(), *model.buffers())}
        self.functions = Functions()

    def pack(self, tensor: Tensor) -> Tensor:
        """Note what autograd saves, and hand it back as it is."""
        storage = tensor.untyped_storage()
        known = self.saved.get(id(storage))
        if id(storage) not in self.ignored and (known is None or known[0]() is not storage):
            dtype = str(tensor.dtype).removeprefix("torch.")
            function = self.functions.running or CHECKPOINT
            saved = SavedStorage(self.stack[-1], function, tuple(tensor.shape), dtype, storage.nbytes())
            self.saved[id(storage)] = weakref.ref(storage), saved
        return tensor.detach()  # a result saved as itself would keep itself alive

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Follow all that is saved inside."""

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
    """Autocast as the precision wants it, or switched off."""
    lowered = RECIPES[training.precision].autocast
    return torch.autocast(device, dtype=getattr(torch, lowered) if lowered else None, enabled=lowered is not None)


@contextmanager
def quiet() -> Iterator[None]:
    """Leave out what is said about speed, as that autocast on the CPU leaves a norm's input in 16 bits, and about names to come."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Mismatch dtype between input and weight")
        warnings.filterwarnings("ignore", message=".*gradient_checkpointing_enable.* is deprecated", category=FutureWarning)
        yield


def measure(model: Model, training: Training) -> Measured:
    """Train the model for two steps and say what PyTorch kept, computed and held.

    The training's device decides what runs: the CPU's kernels on real tensors, or a made-up GPU at any size on fake ones.
    Raises ``UnbuildableError``, also for what PyTorch's kernels do not take, and ``CannotPretendError``.
    """
    if training.device == "cpu":
        with quiet():
            return Step(model, training, "cpu").measure()
    if training.optimizer == "adamw-8bit":
        raise UnbuildableError("optimizer adamw-8bit: its kernels need data, so that no step of it runs on a fake GPU")
    running = huggingface.as_if_running() if training.implementation.startswith("transformers") else nullcontext()
    with quiet(), running, pretend.cuda(training.device, training.attention_kernel):
        try:
            return Step(model, training, "cuda").measure()
        except RuntimeError as error:  # as where a grouped product's rows are no multiple of 16 bytes
            raise UnbuildableError(f"PyTorch does not run it: {error}") from error


def build(model: Model, training: Training, device: torch.device) -> tuple[nn.Module, Callable[[str], str]]:
    """Return the modules of the implementation, and our names for theirs."""
    dtype = dtype_of_weights(training)
    if training.implementation.startswith("transformers"):
        return huggingface.build(model, training, device, dtype), lambda name: huggingface.our_name(name, model)
    return CausalLM(model, training, device, dtype), str


class Step:
    """A model, its inputs and its optimizer, and the steps that they take together."""

    def __init__(self, model: Model, training: Training, device: Literal["cuda", "cpu"]) -> None:
        self.device, self.training = torch.device(device), training
        self.module, self.names = build(model, training, self.device)
        self.loss = loss_of(training)
        shape = (training.batch_size, training.sequence_length)
        self.ids, self.targets = (torch.zeros(shape, dtype=torch.long, device=self.device) for _ in range(2))
        hidden = muon_names(model, training) if training.optimizer == "muon" else frozenset[str]()
        self.trainer = Trainer(self.module, training, self.names, hidden)
        self.live = Live(self.device)
        held = (*self.module.parameters(), *self.module.buffers(), *self.trainer.held(), self.ids, self.targets)
        self.live.follow(held, "start")

    def forward(self) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the loss, and what the program holds until the step ends."""
        with autocast(self.training, self.device.type):
            loss, output = self.loss(self.module, self.ids, self.targets)
        if not self.training.keep_logits:
            return loss, ()
        # Without their part in the graph, which would hold what PyTorch's engine lets go of.
        return loss, tuple(tensor.detach() for tensor in tree_leaves(output) if isinstance(tensor, Tensor))

    def measure(self) -> Measured:
        """Run both steps."""
        first, _, kept = self.step(Keeper(self.module, self.names))
        peaks, (start, after_forward, after_backward, after_optimizer), _ = self.step(None)
        return Measured(
            params=sum(parameter.numel() for parameter in self.module.parameters()),
            kept=kept,
            saved_bytes=sum(saved.bytes for saved in kept),
            flops_forward=first[0].flops,
            flops_backward=first[1].flops,
            flops_left_out=tuple((peak.phase, *item) for peak in first for item in peak.flops_left_out),
            start_bytes=start,
            after_forward_bytes=after_forward,
            after_backward_bytes=after_backward,
            after_optimizer_bytes=after_optimizer,
            first_phases=first,
            phases=peaks,
        )

    def step(self, keeper: Keeper | None) -> tuple[tuple[Phase, ...], tuple[int, ...], tuple[SavedStorage, ...]]:
        """One training step: its phases, live bytes before and after each, and, if a keeper watches, what is kept for backward."""
        phases: list[Phase] = []
        for _ in range(min(self.training.gradient_accumulation, MICRO_STEPS) - 1):
            with self.live:
                self.forward_and_backward()
        points = [self.live.bytes]
        known = set(self.live.storages)
        with self.phase("forward", phases, points), keeper.watch() if keeper else nullcontext():
            loss, output = self.forward()
        kept = self.kept(keeper, known, loss, output) if keeper else ()
        roots, loss = [loss.grad_fn], loss.detach()
        with self.phase("backward", phases, points):
            backward(roots, self.device, self.trainer.arrived)
        with self.phase("optimizer", phases, points):
            self.trainer.step()
        self.trainer.forget()
        del output
        return tuple(phases), tuple(points), kept

    def forward_and_backward(self) -> None:
        """Run one micro-batch whose gradients stay."""
        loss, _ = self.forward()
        roots, loss = [loss.grad_fn], loss.detach()
        backward(roots, self.device, self.trainer.arrived)

    @contextmanager
    def phase(self, name: Literal["forward", "backward", "optimizer"], phases: list[Phase], points: list[int]) -> Iterator[None]:
        """Watch one phase, and note its peak and FLOPs and the live bytes after it."""
        live = self.live
        live.start_phase()
        with live:
            yield
        phases.append(Phase(name, live.peak_operator, live.peak_bytes, live.flops, tuple(sorted(live.flops_left_out.items()))))
        points.append(live.bytes)

    def kept(self, keeper: Keeper, known: set[int], loss: Tensor, output: tuple[Tensor, ...]) -> tuple[SavedStorage, ...]:
        """All storages that stay for backward: what was saved, and what else is still alive, such as checkpoints' inputs.

        Gradients that a chunked loss makes in the forward pass are results and no inputs of the backward pass: they do not count.
        """
        saved = {key: row for key, (storage, row) in keeper.saved.items() if storage() is not None}
        ours = known | saved.keys() | {id(tensor.untyped_storage()) for tensor in (loss, *output)}
        ours |= {key for key, (_, made) in self.live.storages.items() if made.operator == MAKES_GRADIENTS}
        others: list[Made] = [made for key, (_, made) in self.live.storages.items() if key not in ours]
        return (*saved.values(), *(SavedStorage("model", CHECKPOINT, made.shape, made.dtype, made.bytes) for made in others))
