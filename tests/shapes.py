"""Small models drawn at random over every switch: the same for a seed on every machine."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar

from planner.spec.records import (
    Activation,
    Attention,
    Device,
    FeedForward,
    Implementation,
    Layer,
    Loss,
    Model,
    Norm,
    NormPlacement,
    OptimizerKernel,
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

T = TypeVar("T")

# Listed again and again is drawn more often.
ACTIVATIONS: Sequence[Activation] = ("gelu", "gelu_tanh", "relu", "relu_squared", "silu")
DEVICES: Sequence[Device] = ("a100", "a100", "h100", "cpu")
IMPLEMENTATIONS: Sequence[Implementation] = ("pytorch", "pytorch-eager")
KERNELS: Sequence[OptimizerKernel] = ("fused", "foreach")
LOSSES: Sequence[Loss] = ("default", "default", "cross_entropy", "cross_entropy_shifted")
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
    precision, sequence_length = draw.one(PRECISIONS), draw.one([1, 7, 32, 33, 40, 64])
    device: Device = draw.one(DEVICES)
    return Training(
        batch_size=draw.one([1, 2, 3]),
        sequence_length=sequence_length,
        precision=precision,
        gradient_dtype="bf16" if precision == "bf16" else "fp32",
        dropout=draw.one([Fraction(0), Fraction(0), Fraction(1, 10)]),
        recompute=draw.one(RECOMPUTE),
        implementation=draw.one(IMPLEMENTATIONS),
        device="a100" if sequence_length == 1 and device == "h100" else device,  # cuDNN's attention takes no single token
        loss=draw.one(LOSSES) if sequence_length > 1 else "default",
        keep_logits=draw.true(3),
        optimizer_kernel=draw.one(KERNELS),
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
