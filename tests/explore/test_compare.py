from __future__ import annotations

import json
from pathlib import Path

import pytest

import planner
from planner.capacity.figures import Plan
from planner.explore import compare, optimal

ROOT = Path(__file__).parent.parent.parent


def plans(*names: str) -> list[Plan]:
    return [planner.plan(planner.load(ROOT / "specs" / f"{name}.yaml")) for name in names]


def test_specs_are_side_by_side_with_their_differences() -> None:
    # 124,439,808 and 354,823,168 parameters (Hugging Face's counts of GPT-2): 2.8514 times as many, +185.1 %
    text = compare.text(plans("gpt2-small", "gpt2-medium"))
    line = next(line.split() for line in text.splitlines() if line.startswith("params_total"))
    assert line == ["params_total", "124.4", "M", "354.8", "M", "(+185.1", "%)"]
    assert [line.split() for line in text.splitlines() if line.startswith("model.d_model")] == [["model.d_model", "768", "1,024"]]
    assert "model.vocab_size" not in text  # the same for both


def test_many_specs_are_compared_in_tables_one_below_the_other_without_repeating_a_spec() -> None:
    text = compare.text(plans("gpt2-small", "gpt2-medium", "gpt2-large", "gpt2-xl"))
    assert all(len(line) <= 80 for line in text.splitlines())
    heads = [line.split() for line in text.splitlines() if line.split() and line.split()[0].startswith("gpt2-")]
    assert [name for head in heads for name in head] == ["gpt2-small", "gpt2-medium", "gpt2-large", "gpt2-xl"]
    # 1,557,611,200 parameters of GPT-2 XL (Hugging Face's count): 12.517 times those of GPT-2 small
    (line,) = (line for line in text.splitlines() if "1.558 B" in line and line.startswith("params_total"))
    assert line.endswith("1.558 B (+1,151.7 %)")


def test_long_settings_are_shortened_and_absent_ones_are_dashes() -> None:
    listed, dense = "catalog/llama4_text/llama-4-scout-17b-16e-instruct", "llama-3-8b"  # Scout lists its layers: windows, and none
    text = compare.text(plans(listed, dense), width=120)
    assert all(len(line) <= 120 for line in text.splitlines())
    assert [line.split()[1:] for line in text.splitlines() if line.startswith("model.experts.top_k")] == [["1", "–"]]
    (layers,) = (line for line in text.splitlines() if line.startswith("model.layers"))
    assert "…" in layers


def test_json_is_exact() -> None:
    made = json.loads(compare.as_json(plans("gpt2-small", "gpt2-medium")))
    lines = {line["name"]: line["values"] for line in made["lines"]}
    assert lines["params_total"] == [124_439_808, 354_823_168]
    assert lines["optimal, 20·N"] == [2_488_796_160, 7_096_463_360]
    assert set(made["sources"]) == {fit.name for fit in optimal.FITS}


def loss(fit: optimal.LossFit, N: float, D: float) -> float:
    """Return the loss fitted by Hoffmann et al. 2022, without its constant."""
    value: float = fit.A / N**fit.alpha + fit.B / D**fit.beta
    return value


@pytest.mark.parametrize("fit", optimal.FITS, ids=lambda fit: fit.name)
@pytest.mark.parametrize("params", [10**8, 7 * 10**9, 7 * 10**10])
def test_optimal_tokens_minimize_the_loss_of_a_compute_budget(fit: optimal.LossFit, params: int) -> None:
    tokens = optimal.tokens(fit, params)
    here = loss(fit, params, tokens)
    for factor in (0.9, 0.99, 1.01, 1.1):  # more parameters for fewer tokens, at the same 6·N·D
        assert loss(fit, params * factor, tokens / factor) > here


def test_the_new_fit_gives_chinchilla_about_twenty_tokens_per_parameter() -> None:
    """Besiroglu et al. 2024 find their fit in line with 20 tokens per parameter at 70 B; Hoffmann et al.'s constants give far more."""
    hoffmann, besiroglu = optimal.FITS
    assert 17 < optimal.tokens(besiroglu, 70 * 10**9) / (70 * 10**9) < 23
    assert optimal.tokens(hoffmann, 70 * 10**9) > 2 * optimal.tokens(besiroglu, 70 * 10**9)


def test_markdown_is_one_table() -> None:
    made = compare.as_markdown(plans("gpt2-small", "gpt2-medium")).splitlines()
    assert made[0] == "|  | gpt2-small | gpt2-medium |"
    assert {line.count(" | ") for line in made if line.startswith("|")} <= {2}
