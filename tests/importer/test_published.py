"""Published models: the parameters from config.json equal those of the weights, per component."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from planner.capacity.figures import Plan
from planner.importer.formats.huggingface import read_huggingface
from planner.importer.reader import UnsupportedConfigError
from planner.importer.types import REFUSED, SUPPORTED
from planner.importer.write import spec_text

PlanModel = Callable[..., Plan]

# 315 published models: config.json, total and active parameters, and parameters by module, from the transformers 5.24 class built on the
# meta device, corrected where the class differs from the published weights.
PUBLISHED = [
    json.loads(line) for line in (Path(__file__).parent.parent / "data" / "published.jsonl").read_text(encoding="utf-8").splitlines()
]
MODULES = {"embeddings": "embedding", "positions": "position", "mlp": "feed_forward", "norms": "norm"}
SAYABLE = [row for row in PUBLISHED if row["hf_config"]["model_type"] not in REFUSED]

# The table sorts modules by name, and Kimi Linear calls both of its mixers self_attn: its latent attention (6 layers of 29,114,368) is
# under ssm there.
NAMED_ALIKE = {"moonshotai/Kimi-Linear-48B-A3B-Instruct": 6 * (2304 * 6144 + 2304 * 576 + 512 * 8192 + 4096 * 2304)}


@pytest.mark.parametrize("row", SAYABLE, ids=lambda row: row["name"])
def test_a_published_model_has_its_published_parameters(row: Mapping[str, Any], plan_model: PlanModel) -> None:
    imported = read_huggingface(row["hf_config"])
    parameters = plan_model(imported.model, **imported.training).parameters
    assert parameters.total == row["params_total"]
    assert parameters.active == row["params_active"]
    right = {MODULES.get(module, module): n for module, n in row["params_by_module"].items()}
    if row["name"] in NAMED_ALIKE:
        right |= {"attention": NAMED_ALIKE[row["name"]], "ssm": right["ssm"] - NAMED_ALIKE[row["name"]]}
    ours = {component: n for component, n in parameters.by_component.items() if n}
    if not imported.model.get("causal", True):  # the table counts the matrix and the norm before the head differently by class
        ours, right = ({key: n for key, n in one.items() if key not in ("head", "norm", "other")} for one in (ours, right))
    assert ours == right
    assert parameters.correction_biases == row["router_bias_buffers"]


def test_nearly_all_published_models_are_supported() -> None:
    assert len(PUBLISHED) == 315
    assert len(SAYABLE) == 310
    assert {row["hf_config"]["model_type"] for row in SAYABLE} <= set(SUPPORTED)


@pytest.mark.parametrize("row", [row for row in PUBLISHED if row not in SAYABLE], ids=lambda row: row["name"])
def test_an_unsupported_model_is_rejected_with_the_reason(row: Mapping[str, Any]) -> None:
    with pytest.raises(UnsupportedConfigError, match=re.escape(REFUSED[row["hf_config"]["model_type"]])):
        read_huggingface(row["hf_config"])


# Parameters of the multi-token prediction block as released, with its copies of the token embedding and the LM head.
@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("deepseek-ai/DeepSeek-V3", 13_463_426_304),
        ("zai-org/GLM-4.5", 5_539_962_272),
        ("zai-org/GLM-4.5-Air", 3_616_573_568),
    ],
)
def test_multi_token_prediction_is_reported_separately(name: str, right: int, plan_model: PlanModel) -> None:
    row = next(row for row in PUBLISHED if row["name"] == name)
    more = plan_model(read_huggingface(row["hf_config"]).model).prediction
    assert more is not None
    assert more.stored_params == right


@pytest.mark.parametrize("row", SAYABLE, ids=lambda row: row["name"])
def test_a_written_spec_reads_back_the_same(row: Mapping[str, Any], tmp_path: Path) -> None:
    import planner

    imported = read_huggingface(row["hf_config"])
    spelled, written = tmp_path / "spelled.yaml", tmp_path / "written.yaml"
    spelled.write_text(json.dumps({"name": "model", "model": imported.model, "training": imported.training}), encoding="utf-8")
    written.write_text(spec_text(imported, "model"), encoding="utf-8")
    assert planner.load(written).model == planner.load(spelled).model
    assert max(map(len, written.read_text(encoding="utf-8").splitlines())) <= 200
