"""Small models drawn at random, planned and measured in PyTorch: bytes and FLOPs equal, peaks close.

Other seeds: ``SEEDS=200:300 pytest tests/verify/test_random_shapes.py``. One that differs stays in the list once it agrees.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar

import pytest

from planner.capacity import plan
from planner.spec.records import (
    Activation,
    Attention,
    Device,
    FeedForward,
    Implementation,
    Layer,
    Model,
    Norm,
    NormPlacement,
    Positions,
    PositionType,
    Precision,
    QkNorm,
    QkvProjection,
    Recompute,
    Run,
    Scenario,
    Spec,
    Training,
)
from planner.verify import measure

pytest.importorskip("torch", reason="the extra torch is not installed")

FIRST, LAST = map(int, os.environ.get("SEEDS", "0:60").split(":"))
PEAK_ALLOWED, PEAK_ALLOWED_RECOMPUTED = 0.005, 0.01

T = TypeVar("T")

# Listed again and again is drawn more often.
ACTIVATIONS: Sequence[Activation] = ("gelu", "gelu_tanh", "relu", "relu_squared", "silu")
DEVICES: Sequence[Device] = ("a100", "a100", "cpu")
IMPLEMENTATIONS: Sequence[Implementation] = ("pytorch", "pytorch-eager")
PLACEMENTS: Sequence[NormPlacement] = ("before", "after", "before_and_after")
POSITIONS: Sequence[PositionType] = ("learned", "rope", "rope", "alibi", "sinusoidal", "none")
PRECISIONS: Sequence[Precision] = ("fp32", "bf16-autocast", "bf16-autocast", "fp16-autocast", "bf16")
PROJECTIONS: Sequence[QkvProjection] = ("fused", "separate", "fused_per_head")
QK_NORMS: Sequence[QkNorm] = ("none", "none", "head_dim", "full_width")
RECOMPUTE: Sequence[Recompute] = ("none", "none", "selective", "full")


class Draw:
    """Draws of one seed."""

    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)  # noqa: S311 - no secret, the same on every machine

    def one(self, choices: Sequence[T]) -> T:
        return self.source.choice(choices)

    def true(self, in_all: int) -> bool:
        """Return true once in so many times."""
        return self.source.randrange(in_all) == 0


def drawn(seed: int) -> Spec:
    """Return the seed's spec, with one scenario."""
    draw = Draw(seed)
    position = draw.one(POSITIONS)
    layer = _layer(draw, position)
    runs = [Run(draw.one([1, 2, 3]), (layer,))]
    if draw.true(4):
        runs.append(Run(draw.one([1, 2]), (_layer(draw, position),)))
    elif draw.true(4):
        runs = [Run(draw.one([1, 2]), (layer, _layer(draw, position)))]
    model = _model(draw, position, layer, runs)
    return Spec(f"seed {seed}", f"{seed}.yaml", model, (Scenario("base", _training(draw)),))


def _model(draw: Draw, position: PositionType, layer: Layer, runs: list[Run]) -> Model:
    assert layer.attention is not None
    vocab_size = draw.one([64, 101, 509])
    return Model(
        vocab_size=vocab_size,
        padded_vocab_size=vocab_size + draw.one([0, 0, 3]),
        context_length=draw.one([64, 70]),
        d_model=draw.one([layer.attention.n_heads * layer.attention.head_dim, 24, 40, 48]),
        n_layers=sum(run.count * len(run.layers) for run in runs),
        runs=tuple(runs),
        positions=Positions(position, offset=draw.one([0, 2]) if position == "learned" else 0),
        norm=layer.norm,
        embedding_norm=draw.true(3),
        final_norm=not draw.true(3),
        tied_head=draw.true(2),
        head_bias=draw.true(3),
    )


def _training(draw: Draw) -> Training:
    precision = draw.one(PRECISIONS)
    return Training(
        batch_size=draw.one([1, 2, 3]),
        sequence_length=draw.one([1, 7, 32, 33, 40, 64]),
        precision=precision,
        gradient_dtype="bf16" if precision == "bf16" else "fp32",
        dropout=draw.one([Fraction(0), Fraction(0), Fraction(1, 10)]),
        recompute=draw.one(RECOMPUTE),
        implementation=draw.one(IMPLEMENTATIONS),
        device=draw.one(DEVICES),
    )


def _layer(draw: Draw, position: PositionType) -> Layer:
    head_dim = draw.one([4, 6, 8, 16, 20, 24, 32, 264])
    bias = draw.true(2)
    weight, layernorm, sequential = not draw.true(3), not draw.true(3), draw.true(2)
    return Layer(
        attention=_attention(draw, head_dim, bias=bias),
        feed_forward=FeedForward(
            draw.one([50, 64, 96]),
            gated=draw.true(2),
            activation=draw.one(ACTIVATIONS),
            gate_bias=bias,
            up_bias=draw.true(2),
            down_bias=draw.true(2),
        ),
        positions=Positions(position, rotary_dim=draw.one([head_dim, head_dim // 4 * 2]) if position == "rope" else 0),
        norm=Norm("layernorm" if layernorm else "rmsnorm", weight=weight, bias=layernorm and weight and draw.true(2)),
        norm_placement=draw.one(PLACEMENTS) if sequential else "before",
        block="sequential" if sequential else draw.one(["parallel_one_norm", "parallel_two_norms"]),
    )


def _attention(draw: Draw, head_dim: int, *, bias: bool) -> Attention:
    n_kv_heads = draw.one([1, 2, 3])
    return Attention(
        n_kv_heads * draw.one([1, 1, 2, 3]),
        n_kv_heads,
        head_dim,
        qkv=draw.one(PROJECTIONS),
        q_bias=bias,
        k_bias=bias,
        v_bias=bias,
        o_bias=draw.true(2),
        qk_norm=draw.one(QK_NORMS),
    )


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")  # PyTorch's, where RMSNorm has no kernel
@pytest.mark.parametrize("seed", range(FIRST, LAST))
def test_a_random_shape(seed: int) -> None:
    spec = drawn(seed)
    training = spec.scenarios[0].training
    ours = plan(spec, spec.scenarios[0])
    theirs = measure(spec.model, training, "cpu" if training.device == "cpu" else "cuda")
    left_out = Counter[str]()  # of PyTorch's counter
    for phase, _, flops in theirs.flops_left_out:
        left_out[phase] += flops
    hardware = next(count for count in ours.flops.by_convention if count.convention == "hardware")
    assert {
        "bytes kept": ours.memory.activations_bytes,
        "bytes at the start": ours.memory.live.start,
        "bytes after the forward pass": ours.memory.live.after_forward,
        "bytes after the backward pass": ours.memory.live.after_backward,
        "forward FLOPs": hardware.forward_per_step,
        "backward FLOPs": hardware.train_per_step - hardware.forward_per_step,
    } == {
        "bytes kept": theirs.saved_bytes,
        "bytes at the start": theirs.start_bytes,
        "bytes after the forward pass": theirs.after_forward_bytes,
        "bytes after the backward pass": theirs.after_backward_bytes,
        "forward FLOPs": theirs.flops_forward + left_out["forward"],
        "backward FLOPs": theirs.flops_backward + left_out["backward"],
    }
    peaks = {phase.phase: phase.peak_bytes for phase in ours.memory.phases}
    allowed = PEAK_ALLOWED if training.recompute == "none" else PEAK_ALLOWED_RECOMPUTED
    measured = {phase.phase: phase.bytes for phase in theirs.phases}
    assert max(peaks["forward"], peaks["loss"]) == pytest.approx(measured["forward"], rel=allowed)
    assert peaks["backward"] == pytest.approx(measured["backward"], rel=allowed)
