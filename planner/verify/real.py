"""Measurements on real tensors: the optimizer state after one step, the initial loss, and the peak of a step on a GPU."""

from __future__ import annotations

import torch
from torch.nn import functional as F  # noqa: N812 - the name that every PyTorch program gives it

from planner.spec.records import Model, Training
from planner.verify import CannotMeasureError
from planner.verify.measured import LossMeasured, OptimizerMeasured
from planner.verify.modules import CausalLM
from planner.verify.optimizers import bytes_of
from planner.verify.step import Step, autocast, dtype_of_weights, quiet

SEED = 0


def measure_optimizer(model: Model, training: Training) -> OptimizerMeasured:
    """Train the model for one step on the CPU and return the bytes that its optimizer uses."""
    with quiet():
        step = Step(model, training, "cpu")
        step.forward_and_backward()
        gradient_bytes = sum(map(bytes_of, step.trainer.gradients()))
        step.trainer.step()
    return OptimizerMeasured(step.trainer.state_bytes(), sum(map(bytes_of, step.trainer.masters.values())), gradient_bytes)


def measure_loss(model: Model, training: Training) -> LossMeasured:
    """Run the freshly initialized model on random tokens on the CPU, without dropout."""
    with quiet(), torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(SEED)
        module = CausalLM(model, training, torch.device("cpu"), dtype_of_weights(training)).eval()
        module.initialize()
        ids, targets = (torch.randint(model.vocab_size, (training.batch_size, training.sequence_length)) for _ in range(2))
        with autocast(training, "cpu"):
            logits = module(ids)
            loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))
    return LossMeasured(tuple(logits.shape), float(loss))


def measure_gpu(model: Model, training: Training) -> int:
    """Return the peak of the second training step on the GPU in this machine, in bytes allocated (``torch.cuda.max_memory_allocated``).

    Raises ``CannotMeasureError`` if there is no GPU, or if it runs out of memory.
    """
    if not torch.cuda.is_available():
        raise CannotMeasureError("PyTorch finds no GPU on this machine")
    try:
        with quiet():
            return _peak_on_gpu(model, training)
    except torch.cuda.OutOfMemoryError as error:
        raise CannotMeasureError(f"out of GPU memory: {error}") from error


def _peak_on_gpu(model: Model, training: Training) -> int:
    step = Step(model, training, "cuda")
    for weight in step.trainer.names:
        weight.register_post_accumulate_grad_hook(step.trainer.arrived)  # type: ignore[no-untyped-call] # untyped in torch
    for _ in range(2):
        torch.cuda.reset_peak_memory_stats()
        for _ in range(training.gradient_accumulation):
            loss, output = step.forward()
            torch.autograd.backward(loss)
        step.trainer.step()
        step.trainer.free_gradients()
        del loss, output
    return torch.cuda.max_memory_allocated()
