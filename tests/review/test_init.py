"""The files written by ``planner init`` work unchanged, and existing files are never replaced."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft7Validator

import planner
from planner import spec as spec_room
from planner.review import policy
from planner.spec.language import schema

from .conftest import MakeRepo, Repo, git

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def empty(make_repo: MakeRepo) -> Repo:
    return make_repo()


# GPT-2 as published; Llama-3.2-1B as published, with the sizes of the template
@pytest.mark.parametrize(("origin", "params"), [("gpt2", 124_439_808), ("llama", 1_235_814_400)])
def test_the_first_spec_and_its_comments_are_correct(empty: Repo, origin: str, params: int) -> None:
    code, out, err = empty.run("init", "mine", "--from", origin)
    assert (code, out) == (0, "")
    assert err.startswith("planner: wrote specs/mine.yaml, planner.yaml, .pre-commit-config.yaml, .planner/spec.schema.json")
    path = empty.root / "specs/mine.yaml"
    assert planner.plan(planner.load(path)).parameters.total == params
    text = path.read_text(encoding="utf-8")
    assert f"#   params_total: {params}" in text
    # keys in comments are valid, too
    optional = text[text.index("# scenarios:") :].replace("# ", "", 1).replace("\n# ", "\n").replace("\n#  ", "\n ")
    path.write_text(text[: text.index("# scenarios:")] + optional, encoding="utf-8")
    code, _, err = empty.run("validate", "specs")
    assert code == 0, err
    assert empty.run("run", "specs")[0] == 0


# Llama 3 8B: 32 layers of r · (in + out) of q, k, v, o, gate, up, down at r = 16, as peft prints it; Llama 3.2 1B trains as a whole
@pytest.mark.parametrize(("origin", "trained"), [("lora", 41_943_040), ("qlora", 41_943_040), ("full", 1_235_814_400)])
def test_first_specs_of_fine_tunings(empty: Repo, origin: str, trained: int) -> None:
    code, out, _ = empty.run("init", "mine", "--from", origin)
    assert (code, out) == (0, "")
    path = empty.root / "specs/mine.yaml"
    assert planner.plan(planner.load(path)).parameters.trained == trained
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub("^(  )?# (?=also|scen|  -)", r"\1", text, flags=re.MULTILINE), encoding="utf-8")
    assert [scenario.name for scenario in planner.load(path).scenarios] == ["base", "long"]
    assert empty.run("run", "specs")[0] == 0


def test_the_schemas_are_at_the_paths_in_the_first_lines(empty: Repo) -> None:
    empty.run("init", "mine")
    for file, language in (("specs/mine.yaml", "spec"), ("planner.yaml", "policy")):
        path = empty.root / file
        first = path.read_text(encoding="utf-8").splitlines()[0]
        named = path.parent / first.removeprefix("# yaml-language-server: $schema=")
        shipped = json.loads(named.read_text(encoding="utf-8"))
        assert shipped == schema(language)
        read = yaml.safe_load(path.read_text(encoding="utf-8").replace("10e9", "10000000000"))
        assert Draft7Validator(shipped).is_valid(read)


def test_the_policy_is_valid(empty: Repo) -> None:
    empty.run("init", "mine")
    read, problems = policy.read(empty.root / "planner.yaml", "planner.yaml")
    assert problems == ()
    assert [budget.name for budget in read.budgets] == ["one-gpu"]


def test_a_name_with_the_size_of_the_starting_point_is_no_warning(empty: Repo) -> None:
    # Llama-3.2-1B has 1,235,814,400 parameters.
    code, _, err = empty.run("init", "my-1b", "--from", "llama")
    assert (code, "suggests" in err) == (0, False)
    assert "suggests" not in empty.run("run", "specs")[2]


def test_a_name_with_another_size_is_noted(empty: Repo) -> None:
    code, _, err = empty.run("init", "my-7b", "--from", "llama")
    assert code == 0
    assert err.splitlines()[1] == (
        "planner: name suggests 7b, but params_total is 1.236 B (82.3 % less); "
        "the sizes are those of llama: change them in specs/my-7b.yaml"
    )


def test_existing_files_are_not_changed(empty: Repo) -> None:
    empty.write("budgets: []\n", "planner.yaml")
    code, _, err = empty.run("init", "mine")
    assert (code, (empty.root / "planner.yaml").read_bytes()) == (0, b"budgets: []\n")
    assert "planner: kept existing files: planner.yaml; use --force to overwrite\n" in err
    spec_before = empty.write("name: mine\n", "specs/mine.yaml").read_bytes()
    code, _, err = empty.run("init", "mine", "--from", "llama")
    assert (code, err) == (2, "planner: init: specs/mine.yaml already exists; use --force to overwrite\n")
    assert (empty.root / "specs/mine.yaml").read_bytes() == spec_before
    assert empty.run("init", "mine", "--from", "llama", "--force")[0] == 0
    assert (empty.root / "specs/mine.yaml").read_bytes() != spec_before
    assert empty.run("init", "other")[0] == 0  # a second spec beside existing files


def test_the_workflow_is_valid_on_github(empty: Repo) -> None:
    code, _, err = empty.run("init", "mine", "--ci", "github")
    assert code == 0
    assert "in the workflow, replace OWNER/modelplan@COMMIT with the repository that hosts the action and the full hash of a commit" in err
    path = empty.root / ".github/workflows/model-capacity.yml"
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow[True] == "pull_request"  # `on`, as YAML 1.1 reads it; never pull_request_target, which runs with secrets
    checkout, action = workflow["jobs"]["review"]["steps"]
    assert checkout["with"]["fetch-depth"] == 0
    assert action["uses"] == "OWNER/modelplan@COMMIT"
    assert checkout["with"]["persist-credentials"] is False
    assert re.fullmatch(r"actions/checkout@[0-9a-f]{40}", checkout["uses"])
    assert (workflow["permissions"], workflow["jobs"]["review"]["permissions"]) == ({}, {"contents": "read", "pull-requests": "write"})
    inputs = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["inputs"]
    assert set(action["with"]) <= set(inputs)
    assert "replace me/modelplan@main with" in empty.run("init", "two", "--ci", "github", "--action", "me/modelplan@main", "--force")[2]
    assert "uses: me/modelplan@main" in path.read_text(encoding="utf-8")
    assert "replace" not in empty.run("init", "three", "--ci", "github", "--action", f"me/modelplan@{'a' * 40}", "--force")[2]


CONFIG = {
    "model_type": "llama", "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072, "hidden_act": "silu", "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True, "head_dim": 64, "attention_bias": False, "mlp_bias": False,
}  # fmt: skip


def test_the_first_spec_can_come_from_a_config_json(empty: Repo) -> None:
    empty.write(json.dumps(CONFIG), "config.json")
    code, _, err = empty.run("init", "mine", "--from", "config.json")
    assert code == 0, err
    assert planner.plan(planner.load(empty.root / "specs/mine.yaml")).parameters.total == 1_235_814_400  # Llama-3.2-1B as published


@pytest.mark.parametrize("text", ["", "[]", "{", '{"model_type": "nobody"}', "[" * 5000])
def test_an_invalid_config_json_writes_nothing(empty: Repo, text: str) -> None:
    empty.write(text, "config.json")
    code, out, err = empty.run("init", "mine", "--from", "config.json")
    assert (code, out) == (2, "")
    assert err.startswith("planner: init: config.json: ")
    assert sorted(path.name for path in empty.root.iterdir()) == [".git", "config.json"]


def test_a_config_json_that_does_not_exist(empty: Repo) -> None:
    assert empty.run("init", "mine", "--from", "lama")[2] == (
        "planner: init: lama: no such file or catalog model; --from accepts gpt2, llama, lora, qlora, full, a catalog model or "
        "a config.json; did you mean llama?\n"
    )


@pytest.mark.parametrize("name", ["../x", "a/b", "", "a b", "-x", ".hidden", "a\nb", "x" * 200])
def test_a_name_must_be_a_file_name(empty: Repo, name: str) -> None:
    code, _, _ = empty.run("init", "--from=gpt2", "--", name)
    assert code == 2
    assert sorted(path.name for path in empty.root.iterdir()) == [".git"]


@pytest.mark.parametrize("name", ["true", "null", "1e5", "0123", "7B", "2027-01-31"])
def test_a_name_that_yaml_would_not_read_as_text_is_quoted(empty: Repo, name: str) -> None:
    assert empty.run("init", name)[0] == 0
    assert spec_room.load(empty.root / f"specs/{name}.yaml").name == name


def entries() -> dict[str, dict[str, object]]:
    return {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))}


def test_the_commands_of_the_hooks_work(empty: Repo) -> None:
    empty.run("init", "mine")
    hooks = entries()
    assert set(hooks) == {"planner-validate", "planner-reports"}
    shell = f'planner() {{ "{sys.executable}" -m planner "$@"; }}\n'
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}

    def hook(name: str, *files: str) -> subprocess.CompletedProcess[str]:
        script = f'{shell}{hooks[name]["entry"]} "$@"'
        return subprocess.run(
            ["bash", "-c", script, "hook", *files], cwd=empty.root, env=environment, capture_output=True, text=True, check=False
        )

    assert hook("planner-validate", "specs/mine.yaml").returncode == 0
    assert hooks["planner-reports"]["pass_filenames"] is False
    assert hook("planner-reports").returncode == 0
    git(empty.root, "add", "--all")
    assert hook("planner-reports").returncode == 0
    assert git(empty.root, "diff", "--name-only") == ""  # the second time nothing changes, so the commit succeeds
    (empty.root / "specs/mine.yaml").write_text("name: mine\n", encoding="utf-8")
    assert hook("planner-validate", "specs/mine.yaml").returncode == 1


def test_init_writes_the_hooks_of_the_repository(empty: Repo) -> None:
    empty.run("init", "mine")
    (repo,) = yaml.safe_load((empty.root / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    assert repo["repo"] == "local"
    shipped = entries()
    for hook in repo["hooks"]:
        ours = shipped[hook["id"]]
        assert {key: hook.get(key) for key in ("name", "entry", "files", "pass_filenames")} == {
            key: ours.get(key) for key in ("name", "entry", "files", "pass_filenames")
        }
