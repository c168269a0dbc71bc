"""The kernel that PyTorch 2.13 selects for fused attention: sdp_utils.cpp for CUDA, sdp_utils_cpp.cpp for the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest

from planner.spec.records import Attention, FeedForward, Layer, Model, Norm, Positions, Run, Training
from planner.trace.decoder import trace
from planner.trace.nodes import Node, operations
from planner.trace.unsupported import UnsupportedError

PLAIN = Training(batch_size=2, sequence_length=16, precision="bf16", gradient_dtype="bf16")
FP32 = {"precision": "fp32", "gradient_dtype": "fp32"}


def model(n_heads: int = 4, n_kv_heads: int = 4, head_dim: int = 16, positions: str = "none") -> Model:
    place = Positions(positions)  # type: ignore[arg-type] # the cases below hold only names of positions
    layer = Layer(Attention(n_heads, n_kv_heads, head_dim), FeedForward(64), positions=place, norm=Norm())
    return Model(64, 64, 16, 32, 2, (Run(2, (layer,)),), positions=place)


def kernels(nodes: tuple[Node, ...]) -> Iterator[str]:
    for operation, _ in operations(nodes):
        if "attention" in operation.name or (operation.name == "matmul" and operation.path.endswith("self_attn")):
            yield operation.name


@pytest.mark.parametrize(
    ("sizes", "training", "picked"),
    [
        ({}, {}, ["flash_attention"]),
        ({}, FP32, ["efficient_attention"]),
        ({"positions": "alibi"}, {}, ["efficient_attention"]),  # flash supports no mask
        ({"n_kv_heads": 2}, {}, ["flash_attention"]),
        ({"n_kv_heads": 2}, FP32, ["matmul", "matmul"]),  # the memory-efficient kernel supports no grouped queries
        ({"n_kv_heads": 2, "positions": "alibi"}, {}, ["matmul", "matmul"]),
        ({"head_dim": 20}, {}, ["flash_attention"]),  # padded to 24
        ({"head_dim": 20}, FP32, ["efficient_attention"]),  # 80 bytes, a multiple of 16
        ({"head_dim": 20, "positions": "alibi"}, {}, ["matmul", "matmul"]),  # 40 bytes, not a multiple
        ({"head_dim": 264}, {}, ["efficient_attention"]),  # flash supports up to 256
        ({}, {"device": "h100"}, ["cudnn_attention"]),
        ({"positions": "alibi"}, {"device": "h100"}, ["cudnn_attention"]),
        ({"head_dim": 136}, {"device": "h100"}, ["flash_attention"]),  # cuDNN supports up to 128
        ({}, {"device": "h100", "dropout": Fraction(1, 10)}, ["flash_attention"]),  # cuDNN has dropout in sixteenths
        ({}, {"device": "h100", "dropout": Fraction(1, 8)}, ["cudnn_attention"]),
        ({}, FP32 | {"device": "h100"}, ["efficient_attention"]),
        ({}, {"device": "cpu"}, ["flash_attention_for_cpu"]),
        ({"n_kv_heads": 2, "positions": "alibi"}, {"device": "cpu"}, ["flash_attention_for_cpu"]),
        ({}, {"device": "cpu", "dropout": Fraction(1, 10)}, ["matmul", "matmul"]),  # the CPU's has no dropout
        ({}, {"attention_kernel": "math"}, ["matmul", "matmul"]),
        ({}, {"attention_kernel": "efficient"}, ["efficient_attention"]),
    ],
)
def test_the_selected_kernel(sizes: dict[str, int], training: dict[str, str], picked: list[str]) -> None:
    assert list(kernels(trace(model(**sizes), replace(PLAIN, **training)).nodes)) == picked  # type: ignore[arg-type] # names match their values


def test_a_kernel_that_does_not_support_its_inputs_is_rejected() -> None:
    with pytest.raises(UnsupportedError, match="the flash attention kernel does not support these inputs; choose one of: math, efficient"):
        trace(model(), replace(PLAIN, precision="fp32", gradient_dtype="fp32", attention_kernel="flash"))
