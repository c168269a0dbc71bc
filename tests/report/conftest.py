"""A plan made by hand: its values are the arithmetic in these comments, and no other package is needed."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from planner.capacity.figures import (
    ByteSum,
    Flops,
    FlopsCount,
    LiveBytes,
    Memory,
    Parameters,
    PhasePeak,
    Plan,
    SavedStorage,
    ShapeLine,
    Weight,
)
from planner.report.planned import Planned
from planner.spec.records import Attention, FeedForward, Layer, Model, Run, Scenario, Spec, Training

# V 100 padded to 104, context 8, d_model 4, 3 equal layers of one bias-free feed-forward of 16 and an attention of 4; tied.
# embedding 104·4 = 416; positions 8·4 = 32; attention 3·(3·4·4 + 4·4) = 192; feed-forward 3·(4·16 + 16·4) = 384; norm 4
# total 416 + 32 + 192 + 384 + 4 = 1028; padding 4·4 = 16
WEIGHTS = (
    Weight("model.embed_tokens.weight", (104, 4), 1, "embedding", "V × d_model", False, 416, False),
    Weight("model.embed_positions.weight", (8, 4), 1, "position", "context_length × d_model", False, 32, False),
    Weight("model.layers.N.self_attn.qkv_proj.weight", (12, 4), 3, "attention", "linear d_model -> 3·d_model", False, 48, True),
    Weight("model.layers.N.self_attn.o_proj.weight", (4, 4), 3, "attention", "linear d_model -> d_model", False, 16, True),
    Weight("model.layers.N.mlp.up_proj.weight", (16, 4), 3, "feed_forward", "linear d_model -> d_ff", False, 64, True),
    Weight("model.layers.N.mlp.down_proj.weight", (4, 16), 3, "feed_forward", "linear d_ff -> d_model", False, 64, True),
    Weight("model.norm.weight", (4,), 1, "norm", "d_model", False, 4, False),
)
BY_COMPONENT = {
    "embedding": 416, "position": 32, "attention": 192, "feed_forward": 384, "ssm": 0, "experts": 0, "shared_experts": 0,
    "router": 0, "norm": 4, "head": 0, "other": 0,
}  # fmt: skip

# AdamW in fp32: 4 + 4 + 8 = 16 bytes for each of 1028: 4112, 4112, 8224, together 16448
STATES = (
    ByteSum("weights", "fp32", 4, 4112),
    ByteSum("master weights", "none", 0, 0),
    ByteSum("gradients", "fp32", 4, 4112),
    ByteSum("optimizer", "2 moments, fp32", 8, 8224),
)
# 600 + 400 + 832 + 4 + 128 = 1964
ACTIVATIONS = {
    "embedding": 0, "position": 0, "attention": 600, "feed_forward": 400, "ssm": 0, "experts": 0, "shared_experts": 0,
    "router": 0, "norm": 0, "head": 0, "other": 0,
    "logits": 832, "loss": 4, "inputs": 128,
}  # fmt: skip
PHASES = (
    PhasePeak("forward", "model.layers.N.mlp.up_proj", 18_000),
    PhasePeak("loss", "loss", 19_244),
    PhasePeak("backward", "loss.backward", 20_076),
    PhasePeak("optimizer", "adamw", 24_672),
)

# 2·1028 = 2056 per token forward, 3 times that in training; 2·8 tokens a step; 10²⁰ tokens: 6168·10²⁰ FLOPs, past int64
TRAIN_TOKENS = 10**20
MATMUL = FlopsCount("matmul", "matrix products, full attention square", 2056, 6168, 32_896, 98_688, 6168 * TRAIN_TOKENS)
SIX_ND = FlopsCount("6nd", "6·N·D", 2056, 6168, 32_896, 98_688, 6168 * TRAIN_TOKENS)

LAYER = Layer(Attention(2, 2, 2), FeedForward(16))


@pytest.fixture
def plan() -> Plan:
    return Plan(
        name="tiny",
        scenario="base",
        spec_path="specs/tiny.yaml",
        model=Model(100, 104, 8, 4, 3, (Run(3, (LAYER,)),)),
        training=Training(2, 8, tokens=TRAIN_TOKENS, precision="fp32", dropout=Fraction(1, 10)),
        parameters=Parameters(WEIGHTS, 16, 1028, 1028, {**BY_COMPONENT}, 0),  # type: ignore[dict-item]  # keys are components
        memory=Memory(
            states=STATES,
            weights_bytes=4112,
            master_weights_bytes=0,
            gradients_bytes=4112,
            optimizer_bytes=8224,
            model_states_bytes=16_448,
            kept=(SavedStorage("model.layers.N.mlp.up_proj", "input of up_proj", (2, 8, 4), "float32", 256, 3, "feed_forward"),),
            activations_bytes=1964,
            activations_by_component=ACTIVATIONS,
            logits_bytes=832,
            phases=PHASES,
            peak_bytes=24_672,
            first_step_phases=PHASES,
            first_step_peak_bytes=24_672,
            live=LiveBytes(12_336, 14_300, 16_448),
            step_counters_bytes=0,
            average_bytes=0,
            buffers_bytes=0,
            host_bytes=0,
        ),
        flops=Flops(MATMUL, (MATMUL, SIX_ND), {"attention": 20_000, "feed_forward": 10_000, "head": 2896}),
        shapes=(ShapeLine("ids", "token ids", (2, 8), "int64", 1), ShapeLine("logits", "logits", (2, 8, 104), "float32", 1)),
        initial_loss=math.log(100),
        train_tokens=TRAIN_TOKENS,
        not_counted=("the CUDA context",),
    )


@pytest.fixture
def spec(plan: Plan) -> Spec:
    return Spec(
        name=plan.name,
        path=plan.spec_path,
        model=plan.model,
        scenarios=(Scenario("base", plan.training),),
        sources=("https://example.org/tiny", "a note on paper"),
        description="A model made by hand.",
        defaulted=("model.n_kv_heads", "training.recompute"),
    )


@pytest.fixture
def planned(spec: Spec, plan: Plan) -> Planned:
    return Planned(spec, (plan,))


@pytest.fixture
def without_tokens(plan: Plan) -> Plan:
    """Plan the same model from a spec without training tokens."""
    count = replace(MATMUL, train_total=None)
    flops = replace(plan.flops, chosen=count, by_convention=(count,))
    return replace(plan, name="untold", train_tokens=None, training=replace(plan.training, tokens=None), flops=flops)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Chromium without a window; its logs have all messages and requests."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="the page in a browser: selenium is not installed")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if not (program and driver):
        pytest.skip("the page in a browser: needs chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,1000"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield made
    made.quit()
