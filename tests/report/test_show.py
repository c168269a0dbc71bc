from __future__ import annotations

from dataclasses import replace

from planner.capacity.explain import Explanation
from planner.capacity.figures import Plan
from planner.report import breakdown
from planner.report.show import explanations, tree
from planner.report.terminal import Style
from planner.spec.records import Spec


def test_the_tree_shows_every_section_of_a_plan(spec: Spec, plan: Plan) -> None:
    text = tree(spec, plan)
    lines = text.splitlines()
    assert lines[0] == "tiny, scenario base (specs/tiny.yaml)"
    for line in (
        "├─ Parameters",
        "│     component     parameters    share",
        "│  ├─ embedding            416   40.5 %",
        "│  ├─ total              1,028  1.028 k",
        "│  └─ 16 are padding: the vocabulary of 100 is padded to 104.",
        "│  ├─ n_kv_heads               2                   default",
        "└─ Sources",
        "   ├─ https://example.org/tiny",
        "   └─ a note on paper",
    ):
        assert line in lines
    assert text.endswith("\n")


def test_the_tree_of_a_hand_made_model_fits_80_columns(spec: Spec, plan: Plan) -> None:
    assert max(map(len, tree(spec, plan, width=80).splitlines())) <= 80


def test_shapes_and_tensors_are_shown_on_request(spec: Spec, plan: Plan) -> None:
    text = tree(spec, plan, [breakdown.shapes(plan), breakdown.tensors(plan)])
    assert "(2, 8, 104)" in text
    assert "model.layers.N.self_attn.qkv_proj.weight   (12, 4)  × 3         144" in text
    assert "(4,)" in text
    assert "(2, 8, 104)" not in tree(spec, plan)


def test_color_changes_nothing_but_color(spec: Spec, plan: Plan) -> None:
    assert tree(spec, plan, style=Style(True)).replace("\x1b[1m", "").replace("\x1b[0m", "") == tree(spec, plan)


def test_a_spec_cannot_send_control_characters_to_the_terminal(spec: Spec, plan: Plan) -> None:
    evil = "\x1b[2Jx\ny"
    text = tree(replace(spec, name=evil, description=evil, sources=(evil,)), replace(plan, scenario=evil, not_counted=(evil,)))
    assert "\x1b" not in text
    assert "\ny" not in text


def test_an_explanation_has_formula_numbers_and_source() -> None:
    one = Explanation("parameters", "params_total", 1028, "params", "V·d_model + …", "104·4 + …", "the sum of all weights", is_total=True)
    assert explanations([one]).splitlines() == [
        "Formulas: parameters",
        "",
        "params_total = 1,028 params",
        "│  formula  V·d_model + …",
        "│  numbers  104·4 + …",
        "│  source   the sum of all weights",
    ]
