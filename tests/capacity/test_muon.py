"""Muon: which weights it updates, checked against transformers, torch.optim.Muon and published sizes."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

import planner
from planner import spec as specs_room
from planner.capacity.figures import Plan
from planner.capacity.optimizers import muon_updates
from planner.importer.formats.huggingface import read_huggingface
from planner.verify import from_config

ROOT = Path(__file__).parent.parent.parent
PlanModel = Callable[..., Plan]
Config = dict[str, Any]

CONFIGS: list[Config] = [json.loads(line) for line in (ROOT / "tests/data/twins.jsonl").read_text(encoding="utf-8").splitlines()]
TWINS = {model_type: list(configs)[-1] for model_type, configs in groupby(CONFIGS, key=lambda config: config["model_type"])}
ROUTERS = ("router", "gate", "topk")  # in the names of classes that hold their matrix themselves


def taken(plan: Plan) -> int:
    return sum(weight.params for weight in plan.parameters.weights if muon_updates(weight, plan.training))


@pytest.mark.parametrize("model_type", TWINS)
@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_muon_updates_the_linear_modules_and_routers_of_the_layers(model_type: str, plan_model: PlanModel) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    config, build = from_config.read(TWINS[model_type])
    with torch.device("meta"):
        model = build(config)
    stacks = [name for name, module in model.named_modules() if isinstance(module, torch.nn.ModuleList) and "projections" not in name]
    matrices = {}
    for name, module in model.named_modules():
        is_router = any(word in type(module).__name__.lower() for word in ROUTERS)
        if any(name.startswith(f"{stack}.") for stack in stacks) and (
            isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D" or is_router
        ):
            matrices.update(
                {id(own): own.numel() for key, own in module.named_parameters(recurse=False) if (key, own.dim()) == ("weight", 2)}
            )
    imported = read_huggingface(TWINS[model_type])
    assert taken(plan_model(imported.model, **imported.training | {"optimizer": "muon"})) == sum(matrices.values())


def test_state_equals_that_of_torch_for_a_model_with_experts_and_mixers(plan_model: PlanModel) -> None:
    torch = pytest.importorskip("torch")
    sizes = {"vocab_size": 97, "context_length": 16, "d_model": 24, "n_layers": 2, "n_heads": 3, "positions": "rope"}
    parts = {
        "norm": {"type": "rmsnorm"},
        "mamba": {"d_inner": 48, "d_state": 5, "d_conv": 4, "dt_rank": 2},
        "experts": {"count": 4, "top_k": 2, "d_ff": 7, "shared": {"d_ff": 9}},
        "layers": [{"mixer": "mamba", "experts": "none"}, {"feed_forward": "none"}],
    }
    plan = plan_model(sizes | parts, batch_size=1, precision="fp32", optimizer="muon")
    matrices: list[Any] = []
    others: list[Any] = []
    for weight in plan.parameters.weights:
        made = [torch.nn.Parameter(torch.randn(weight.shape)) for _ in range(weight.copies)]
        (matrices if muon_updates(weight, plan.training) else others).extend(made)
    optimizers = [torch.optim.Muon(matrices), torch.optim.AdamW(others)]  # Muon only accepts matrices
    for optimizer in optimizers:
        for weight in (*matrices, *others):
            weight.grad = torch.ones_like(weight)
        optimizer.step()
    states = [value for one in optimizers for state in one.state.values() for name, value in state.items() if name != "step"]
    assert plan.memory.optimizer_bytes == sum(value.untyped_storage().nbytes() for value in states)


def deepseek_v3(experts: str) -> Plan:
    path = ROOT / "specs/catalog/deepseek_v3/deepseek-v3.yaml"
    settings = ("precision=bf16-master", "optimizer=muon", f"muon_experts={experts}")
    (spec,), problems = specs_room.read([str(path)], [f"training.{setting}" for setting in settings])
    assert not problems
    return planner.plan(spec)


# https://huggingface.co/deepseek-ai/DeepSeek-V3/blob/main/config.json
D, LAYERS, DENSE, HEADS = 7168, 61, 3, 128
LATENT = D * 1536 + 1536 * HEADS * (128 + 64) + D * (512 + 64) + 512 * HEADS * (128 + 128) + HEADS * 128 * D
IN_LAYERS = LAYERS * LATENT + DENSE * 3 * D * 18432 + (LAYERS - DENSE) * (256 * D + 3 * D * 2048)  # router and shared expert among them
ROUTED = (LAYERS - DENSE) * 256 * 3 * D * 2048
TOTAL = 671_026_404_352  # the safetensors without the prediction layer; the 58 · 256 corrections of scores are buffers


@pytest.mark.parametrize(
    ("experts", "matrices", "words"),
    [("adamw", IN_LAYERS, "but not of routed experts"), ("each", IN_LAYERS + ROUTED, "and of each expert")],
)
def test_deepseek_v3_by_hand(experts: str, matrices: int, words: str) -> None:
    plan = deepseek_v3(experts)
    assert plan.parameters.total == TOTAL
    assert taken(plan) == matrices
    assert plan.memory.optimizer_bytes == 4 * (matrices + 2 * (TOTAL - matrices))
    (line,) = (line for line in plan.memory.states if line.part == "optimizer")
    assert line.what == f"1 moment for matrices of layers {words}, 2 (adamw) for the rest, fp32"


def test_adamw_updates_the_projections_of_opt_outside_its_layers(plan_model: PlanModel) -> None:
    # OPT-350m (https://huggingface.co/facebook/opt-350m): 512 <-> 1,024 in project_in and project_out, 24 layers of 12·d² in matrices
    sizes = {"vocab_size": 50272, "context_length": 2048, "d_model": 1024, "n_layers": 24, "n_heads": 16, "embedding_dim": 512}
    assert taken(plan_model(sizes, optimizer="muon")) == 24 * 12 * 1024**2
