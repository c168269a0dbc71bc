"""What runs on real numbers: an optimizer's state after one step, and the first loss."""

from __future__ import annotations

import torch
from torch.nn import functional as F  # noqa: N812 - the name that every PyTorch program gives it

from planner.spec.records import Model, Training
from planner.verify.modules import CausalLM
from planner.verify.optimizers import bytes_of
from planner.verify.records import LossMeasured, OptimizerMeasured
from planner.verify.step import Step, autocast, dtype_of_weights, quiet

SEED = 0


def measure_optimizer(model: Model, training: Training) -> OptimizerMeasured:
    """Train the model for one step on the CPU and say what its optimizer holds."""
    with quiet():
        step = Step(model, training, "cpu")
        step.forward_and_backward()
        gradient_bytes = sum(map(bytes_of, step.trainer.gradients()))
        step.trainer.step()
    state = step.trainer.state()
    return OptimizerMeasured(
        state=state,
        state_bytes=sum(row.bytes for row in state),
        shared_bytes=sum(row.bytes for row in state if not row.path),
        step_counter_bytes=step.trainer.counters(),
        master_bytes=sum(map(bytes_of, step.trainer.masters.values())),
        gradient_bytes=gradient_bytes,
    )


def measure_loss(model: Model, training: Training) -> LossMeasured:
    """Run the freshly initialised model on random tokens on the CPU, without dropout."""
    with quiet(), torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(SEED)
        module = CausalLM(model, training, torch.device("cpu"), dtype_of_weights(training)).eval()
        module.initialise()
        ids, targets = (torch.randint(model.vocab_size, (training.batch_size, training.sequence_length)) for _ in range(2))
        with autocast(training, "cpu"):
            logits = module(ids)
            loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))
    return LossMeasured(tuple(logits.shape), str(logits.dtype).removeprefix("torch."), float(loss))
