"""The tables and files in docs/review.md match the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from planner.spec.language import inlined

from .conftest import Repo, spec
from .stand_in import StandIn
from .test_comment import variables

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


def script_of(name: str) -> str:
    """Return the commands of a pipeline, with those that install modelplan left out."""
    files = {"gitlab": "# .gitlab-ci.yml", "bitbucket": "# bitbucket-pipelines.yml", "azure": "# azure-pipelines.yml"}
    read: dict[str, Any] = yaml.safe_load(next(block for block in blocks("yaml") if block.startswith(files[name])))
    lines = {
        "gitlab": lambda: read["model-capacity"]["script"],
        "bitbucket": lambda: read["pipelines"]["pull-requests"]["**"][0]["step"]["script"],
        "azure": lambda: read["steps"][2]["bash"].split("\n"),
    }[name]()
    assert lines[0] == 'pip install "git+https://HOST/OWNER/modelplan@COMMIT"'
    return "\n".join(lines[1:])


@pytest.mark.parametrize("name", ["gitlab", "bitbucket", "azure"])
@pytest.mark.parametrize(("layers", "code"), [("3", 0), ("9", 1)])
def test_the_pipelines_compare_comment_and_fail(name: str, layers: str, code: int, repo: Repo, stand_in: StandIn, tmp_path: Path) -> None:
    base = repo.git("rev-parse", "main")
    repo.git("update-ref", "refs/remotes/origin/main", base)
    repo.write(spec(n_layers=layers))
    repo.write("budgets: [{name: cap, figure: params_total, max: 200k}]\n", "planner.yaml")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "planner").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m planner "$@"\n', encoding="utf-8")
    (tmp_path / "bin" / "planner").chmod(0o755)
    environment = {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        "NO_PROXY": "127.0.0.1",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "GIT_CONFIG_GLOBAL": os.environ["GIT_CONFIG_GLOBAL"],  # Bitbucket is not reached
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": base,
        "CI_PROJECT_URL": "https://gitlab.example/a/b",
        "CI_COMMIT_SHA": "f" * 40,
        "BITBUCKET_PR_DESTINATION_COMMIT": base[:12],
        "SYSTEM_PULLREQUEST_TARGETBRANCH": "refs/heads/main",
        **variables(name, stand_in.url, 5, tmp_path),
    }
    done = subprocess.run(
        ["bash", "-e", "-c", script_of(name)], cwd=repo.root, env=environment, capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert done.returncode == code, done.stderr
    assert "## Model capacity" in (repo.root / "review.md").read_text(encoding="utf-8")
    posted = "no comment was posted: Bitbucket was not reached" if name == "bitbucket" else "created a comment on "
    assert done.stdout.splitlines()[-1].startswith(posted)
    assert len(stand_in.entries) == (name != "bitbucket")
