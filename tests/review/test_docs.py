"""The tables and files in docs/review.md match the code."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from jsonschema import Draft7Validator

from planner.spec.language import inlined

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "review.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def test_the_table_of_budgets_lists_all_keys() -> None:
    table = PAGE[PAGE.index("| key of a budget") : PAGE.index("When a budget is exceeded")]
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?`) \|", table, flags=re.MULTILINE))))
    assert named == set(inlined("policy")["properties"]["budgets"]["items"]["properties"])


def test_the_tables_of_the_action_list_its_inputs_and_outputs() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    table = PAGE[PAGE.index("| input |") : PAGE.index("Outputs:")]
    assert set(re.findall(r"`([\w-]+)`", "".join(re.findall(r"^\| (`.*?`) \|", table, flags=re.MULTILINE)))) == set(action["inputs"])
    assert re.findall(r"`([\w-]+)`", PAGE[PAGE.index("Outputs:") :].split("\n")[0]) == list(action["outputs"])


def test_the_workflow_equals_that_of_init() -> None:
    shown = yaml.safe_load(next(block for block in blocks("yaml") if "pull_request" in block))
    written = yaml.safe_load((ROOT / "planner/review/templates/workflow.yaml").read_text(encoding="utf-8").replace("ACTION", "a"))
    for one in (shown, written):
        one["jobs"]["review"]["steps"][1] = "the action"
    assert shown == written


def test_the_waiver_is_valid() -> None:
    (block,) = (block for block in blocks("yaml") if block.startswith("waivers:"))
    waivers = yaml.safe_load(block.replace("2027-01-31", "'2027-01-31'"))["waivers"]  # PyYAML would read a date
    assert Draft7Validator(inlined()["properties"]["waivers"]).is_valid(waivers)
