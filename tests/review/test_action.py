"""The action's own steps, run as GitHub runs them: inputs through the environment, an event file, files for the summary and outputs.

A local server stands in for the API of GitHub.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import Repo, spec
from .stand_in import StandIn

ROOT = Path(__file__).parent.parent.parent
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))


@dataclass
class Runner:
    """Runs the steps of action.yml."""

    repo: Repo
    folder: Path
    python: str
    github: StandIn
    environment: dict[str, str] = field(default_factory=dict)

    def comments(self) -> list[dict[str, Any]]:
        return [one | {"body": one["body"].replace("\N{NO-BREAK SPACE}", " ")} for one in self.github.entries]

    def run(self, number: int = 1, attempt: int = 1, event: dict[str, Any] | None = None, **inputs: str) -> Outcome:
        """Run every step that has a script and whose condition is true."""
        given = {name: str(each.get("default", "")) for name, each in ACTION["inputs"].items()}
        given |= {"token": "secret", "python": self.python} | {name.replace("_", "-"): value for name, value in inputs.items()}
        outcome = Outcome()
        (self.folder / "event.json").write_text(json.dumps(self.pull_request() if event is None else event), encoding="utf-8")
        for index, step in enumerate(ACTION["runs"]["steps"]):
            if "run" not in step or ("if" in step and not outcome.steps.get("review", {}).get("folder")):
                continue
            if outcome.code and "if" not in step:
                continue
            files = {name: self.folder / f"{name}-{number}-{attempt}-{index}" for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
            for path in files.values():
                path.write_text("", encoding="utf-8")
            environment = {
                "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
                "HOME": str(self.folder),
                "GIT_CONFIG_GLOBAL": os.environ["GIT_CONFIG_GLOBAL"],
                "RUNNER_TEMP": str(self.folder),
                "GITHUB_EVENT_PATH": str(self.folder / "event.json"),
                "GITHUB_REPOSITORY": "owner/name",
                "GITHUB_SERVER_URL": "https://github.example",
                "GITHUB_SHA": "f" * 40,
                "GITHUB_RUN_NUMBER": str(number),
                "GITHUB_RUN_ATTEMPT": str(attempt),
                "GITHUB_ACTIONS": "true",
                "GITHUB_API_URL": self.github.url,
                **{name: str(path) for name, path in files.items()},
                **{name: evaluate(value, given, outcome.steps) for name, value in step.get("env", {}).items()},
                **self.environment,
            }
            command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
            done = subprocess.run(
                command, cwd=self.repo.root, env=environment, capture_output=True, text=True, encoding="utf-8", check=False
            )
            outcome.log += done.stdout
            outcome.errors += done.stderr
            outcome.code = outcome.code or done.returncode
            outcome.summary += files["GITHUB_STEP_SUMMARY"].read_text(encoding="utf-8").replace("\N{NO-BREAK SPACE}", " ")
            outputs = files["GITHUB_OUTPUT"].read_text(encoding="utf-8").splitlines()
            outcome.steps[step.get("id", "")] = dict(line.split("=", 1) for line in outputs)
        return outcome

    def pull_request(self) -> dict[str, Any]:
        return {"pull_request": {"number": 7, "base": {"sha": self.repo.git("rev-parse", "main")}}}


@dataclass
class Outcome:
    """Outputs of a run."""

    code: int = 0
    log: str = ""
    errors: str = ""
    summary: str = ""
    steps: dict[str, dict[str, str]] = field(default_factory=dict)


def evaluate(value: str, inputs: dict[str, str], steps: dict[str, dict[str, str]]) -> str:
    """Replace GitHub's expressions with their values."""

    def one(match: re.Match[str]) -> str:
        path = match[1].split(".")
        if path[0] == "inputs":
            return inputs[path[1]]
        if path[0] == "steps":
            return steps.get(path[1], {}).get(path[3], "")
        return {"github.action_path": str(ROOT)}[match[1]]

    return re.sub(r"\$\{\{ ([\w.-]+) \}\}", one, value)


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Create an interpreter that has the package installed, even in isolated mode."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    here = next(folder.rglob("site-packages"))
    (here / "ours.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    return str(folder / "bin/python")


@pytest.fixture
def runner(repo: Repo, tmp_path: Path, python: str, stand_in: StandIn) -> Runner:
    folder = tmp_path / "runner"
    (folder / "bin").mkdir(parents=True)
    repo.write(spec(n_layers="3"))
    repo.commit()
    return Runner(repo, folder, python, stand_in)


def test_inputs_are_never_part_of_a_script() -> None:
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
    for script in (ROOT / "action").glob("*.sh"):
        text = script.read_text(encoding="utf-8")
        assert "${{" not in text
        assert "eval" not in text
        assert text.startswith("#!/usr/bin/env bash\n")


def test_a_change_is_in_the_summary_the_log_the_outputs_and_one_comment(runner: Runner) -> None:
    done = runner.run()
    assert done.code == 0, done.errors
    assert "## Model capacity" in done.summary
    assert "| parameters | 114.9 k | **164.9 k** |" in done.summary
    assert "::notice title=Model capacity::Adds 49.98 k parameters and 781.0 KiB of peak to 1 model." in done.log
    outputs = done.steps["review"]
    assert (outputs["changed"], outputs["findings"], outputs["failed"]) == ("1", "0", "false")
    assert sorted(path.name for path in Path(outputs["folder"]).glob("review.*")) == [
        "review.json",
        "review.md",
        "review.sarif",
        "review.xml",
    ]
    (comment,) = runner.comments()
    first, rest = comment["body"].split("\n", 1)
    assert first == "<!-- modelplan-review id=default run=1.1 -->"
    assert rest == done.summary
    assert f"https://github.example/owner/name/blob/{'f' * 40}/specs/tiny.yaml#L6" in rest


def test_a_finding_is_an_annotation_at_its_line_and_fails_the_job(runner: Runner) -> None:
    runner.repo.write("budgets: [{name: cap, figure: params_total, max: 1k}]\n", "planner.yaml")
    runner.repo.commit()
    done = runner.run()
    assert done.code == 1
    assert "::error file=specs/tiny.yaml,line=6,col=13,title=budget%3Acap%3A tiny::tiny: params_total 164.9 k" in done.log
    assert "❌ cap" in runner.comments()[0]["body"]
    assert runner.run(number=2, fail_on="never").code == 0


@pytest.mark.parametrize(("fail_on", "code"), [("finding", 0), ("change", 1), ("never", 0), ("sometimes", 2)])
def test_what_fails_the_job(runner: Runner, fail_on: str, code: int) -> None:
    assert runner.run(fail_on=fail_on).code == code


@pytest.mark.parametrize(("fail_on", "code"), [("finding", 0), ("change", 1), ("never", 0)])
def test_a_change_of_the_policy_alone_is_a_change(runner: Runner, fail_on: str, code: int) -> None:
    runner.repo.write(spec())
    runner.repo.write("budgets: [{name: cap, figure: params_total, max: 1M}]\n", "planner.yaml")
    done = runner.run(fail_on=fail_on)
    outputs = done.steps["review"]
    assert (outputs["changed"], outputs["policy-changes"], outputs["findings"], done.code) == ("0", "1", "0", code)


def test_the_comment_is_updated_in_place_and_never_by_an_older_run(runner: Runner) -> None:
    others = [
        {"id": 1, "body": "looks good", "user": {"type": "User"}},
        {"id": 2, "body": "<!-- modelplan-review id=default run=999.1 -->\nnot ours", "user": {"type": "User"}},
        {"id": 3, "body": "<!-- modelplan-review id=other run=999.1 -->\nanother workflow's", "user": {"type": "Bot"}},
        {"id": 4, "body": "text\n<!-- modelplan-review id=default run=999.1 -->", "user": {"type": "Bot"}},
    ]
    runner.github.entries += others
    runner.run(number=5)
    assert [one["body"] for one in runner.comments()[:4]] == [one["body"] for one in others]
    first = runner.comments()[4]["body"]

    runner.repo.write(spec(n_layers="4"))
    for number, attempt in ((4, 1), (4, 9)):
        done = runner.run(number, attempt)
        assert "no comment: a later run has commented" in done.log
        assert runner.comments()[4]["body"] == first
    for number, attempt in ((5, 2), (6, 1), (10, 1)):
        runner.run(number, attempt)
        assert len(runner.comments()) == 5
        assert runner.comments()[4]["body"].startswith(f"<!-- modelplan-review id=default run={number}.{attempt} -->")
    assert "| parameters | 114.9 k | **214.9 k** |" in runner.comments()[4]["body"]


@pytest.mark.parametrize(
    ("mode", "state", "posted"),
    [
        ("always", "same", True), ("always", "changed", True),
        ("on-change", "same", False), ("on-change", "changed", True),
        ("on-finding", "changed", False), ("on-finding", "broken", True),
        ("never", "broken", False),
    ],
)  # fmt: skip
def test_when_it_comments(runner: Runner, mode: str, state: str, posted: bool) -> None:
    if state == "same":
        runner.repo.write(spec())
    if state == "broken":
        runner.repo.write("budgets: [{name: cap, figure: params_total, max: 1k}]\n", "planner.yaml")
    runner.run(comment=mode)
    assert bool(runner.comments()) is posted
    if mode == "never":
        assert runner.github.calls == []


def test_an_existing_comment_is_updated_when_the_change_is_reverted(runner: Runner) -> None:
    runner.run(number=1)
    runner.repo.write(spec())
    runner.run(number=2)
    (comment,) = runner.comments()
    assert "No changes" in comment["body"]


@pytest.mark.parametrize("denied", ["GET", "POST"])
def test_a_fork_without_permission_keeps_the_summary_and_does_not_fail(runner: Runner, denied: str) -> None:
    runner.github.denied = {denied: 403}
    done = runner.run()
    assert done.code == 0
    assert "::notice title=Model capacity::no comment was posted: GitHub refused" in done.log
    assert "## Model capacity" in done.summary
    assert runner.comments() == []
    upload = next(step for step in ACTION["runs"]["steps"] if "uses" in step)
    assert upload["with"]["path"] == "${{ steps.review.outputs.folder }}/review.*"
    assert upload["if"].startswith("always()")


@pytest.mark.parametrize("event", [{}, {"ref": "refs/heads/main", "before": "0" * 40}])
def test_a_run_without_pull_request_only_writes_the_summary(runner: Runner, event: dict[str, Any]) -> None:
    done = runner.run(event=event)
    assert (done.code, runner.github.calls) == (0, [])
    assert "## Model capacity" in done.summary


def test_a_push_is_compared_with_the_commit_before(runner: Runner) -> None:
    before = runner.repo.git("rev-parse", "HEAD")
    runner.repo.write(spec(n_layers="4"))
    done = runner.run(event={"before": before})
    assert "| parameters | 164.9 k | **214.9 k** |" in done.summary


def test_a_checkout_without_history_gets_a_suggested_fix(runner: Runner, tmp_path: Path) -> None:
    base = runner.repo.git("rev-parse", "main")
    subprocess.run(
        ["git", "clone", "--quiet", "--depth", "1", "--branch", "change", f"file://{runner.repo.root}", "shallow"], cwd=tmp_path, check=True
    )
    runner.repo.root = tmp_path / "shallow"
    done = runner.run(event={"pull_request": {"number": 7, "base": {"sha": base}}})
    assert done.code == 2
    assert "::error title=Model capacity::planner: diff: unknown revision" in done.log
    assert "fetch-depth: 0" in done.summary
    assert runner.github.calls == []


EVIL = '"; touch caught; "$(touch caught)`touch caught`\n--output=md=caught\n-h\n'


@pytest.mark.parametrize("name", ["specs", "base", "comment", "comment-id", "fail-on"])
def test_an_input_is_never_executed(runner: Runner, name: str) -> None:
    inputs: dict[str, Any] = {name: EVIL}
    runner.run(**inputs)
    assert not list(runner.repo.root.rglob("caught*"))
    assert not list(runner.folder.rglob("caught*"))


def test_files_of_the_pull_request_are_never_run(runner: Runner) -> None:
    trap = "import pathlib\npathlib.Path('caught').write_text('')\n"
    for name in ("planner/__init__.py", "planner/__main__.py", "yaml.py", "json.py", "sitecustomize.py", "usercustomize.py"):
        runner.repo.write(trap, name)
    runner.environment["PYTHONPATH"] = str(runner.repo.root)
    done = runner.run(comment="never")
    assert done.code == 0, done.errors
    assert "| parameters | 114.9 k | **164.9 k** |" in done.summary
    assert not (runner.repo.root / "caught").exists()


def test_specs_are_listed_one_per_line(runner: Runner) -> None:
    runner.repo.write(spec("with space", n_layers="5"), "more specs/a b.yaml")
    done = runner.run(specs="\nmore specs/a b.yaml\r\nspecs/*.yaml\n")
    assert "**with space**" in done.summary
    assert "**tiny**" in done.summary


def test_an_interpreter_is_created_if_none_is_given(runner: Runner, tmp_path: Path) -> None:
    log = tmp_path / "installed"
    (runner.folder / "bin/python3").write_text(
        f'#!/usr/bin/env bash\necho "$@" >> {log}\nmkdir -p "$RUNNER_TEMP/modelplan/bin"\n'
        f'printf "#!/usr/bin/env bash\\necho \\"\\$@\\" >> {log}\\n" > "$RUNNER_TEMP/modelplan/bin/python"\n'
        'chmod +x "$RUNNER_TEMP/modelplan/bin/python"\n',
        encoding="utf-8",
    )
    (runner.folder / "bin/python3").chmod(0o755)
    done = runner.run(python="")
    assert done.steps["install"]["python"] == str(runner.folder / "modelplan/bin/python")
    made, installed, used, *_ = log.read_text(encoding="utf-8").splitlines()
    assert made == f"-I -m venv {runner.folder}/modelplan"
    requirements = f"{ROOT}/action/requirements.txt"
    assert installed == (
        f"-I -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: --requirement {requirements}"
    )
    assert used.startswith("-I -c ")
    assert used.endswith(f'"/modelplan.pth", "w").write(sys.argv[1]) {ROOT}')


def test_the_requirements_of_the_action_are_pinned_by_hash() -> None:
    versions = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), flags=re.MULTILINE))
    pinned = {name.lower().replace("_", "-"): version for name, version in versions.items()}
    entries = re.split(r"^(?=[a-z])", (ROOT / "action/requirements.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    named = set()
    for entry in entries:
        name, version = re.match(r"([\w.-]+)==(\S+)", entry).groups()  # type: ignore[union-attr]  # it does match
        assert re.findall(r"--hash=sha256:[0-9a-f]{64}", entry)
        assert pinned[name] == version
        named.add(name)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {re.findall(r"^[\w-]+", line)[0] for line in project["dependencies"]} <= named


def test_actions_are_pinned_by_commit() -> None:
    for step in ACTION["runs"]["steps"]:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step.get("uses", f"a@{'0' * 40}"))
    for used in re.findall(r"^ *(?:- )?uses: (.*)$", (ROOT / "action.yml").read_text(encoding="utf-8"), flags=re.MULTILINE):
        assert re.fullmatch(r"\S+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", used)
