from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import planner as package
from planner.cli import commands
from planner.cli.command import Command

Planner = Callable[..., tuple[int, str, str]]


def test_validate_reports_valid_specs_on_standard_error(planner: Planner) -> None:
    assert planner("validate", "specs") == (0, "", "planner: 1 spec is valid\n")


def test_validate_reports_errors(home: Path, planner: Planner) -> None:
    (home / "specs" / "bad.yaml").write_text("name: bad\nmodel: {vocab_size: no}\n", encoding="utf-8")
    code, out, err = planner("validate", "specs")
    assert (code, out) == (1, "")
    assert "specs/bad.yaml:2:21: error[type]" in err


def test_validate_reports_a_missing_file_as_a_failure(planner: Planner) -> None:
    assert planner("validate", "nowhere.yaml")[0] == 2


def test_schema_prints_the_json_schema(planner: Planner) -> None:
    code, out, err = planner("schema")
    assert (code, err) == (0, "")
    assert json.loads(out)["$schema"] == "http://json-schema.org/draft-07/schema#"


def test_show_prints_a_tree(planner: Planner) -> None:
    code, out, err = planner("show", "specs/tiny.yaml")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "tiny, scenario base (specs/tiny.yaml)"
    assert "│  ├─ embedding         12,800   11.1 %" in lines  # 12,800 / 114,944
    assert "│  ├─ n_kv_heads               4           default" in lines


def test_show_accepts_a_scenario(planner: Planner) -> None:
    code, out, _ = planner("show", "specs/tiny.yaml", "--scenario", "short")
    assert code == 0
    assert out.splitlines()[0] == "tiny, scenario short (specs/tiny.yaml)"
    assert "(B = 3, n = 5)" in out
    assert planner("show", "specs/tiny.yaml", "--scenario", "shrt")[::2] == (
        2,
        "planner: unknown scenario 'shrt' in tiny; available: base, short\n",
    )


def test_show_accepts_shapes_tensors_and_settings(planner: Planner) -> None:
    code, out, _ = planner("show", "specs/tiny.yaml", "--shapes", "--tensors", "--set", "training.batch_size=5")
    assert code == 0
    assert "(5, 10, 200)" in out
    assert "model.layers.N.mlp.up_proj.weight" in out


def test_show_explains_each_metric(planner: Planner) -> None:
    code, out, _ = planner("show", "specs/tiny.yaml", "--explain")
    assert code == 0
    lines = out.splitlines()
    where = lines.index("model.embed_tokens.weight = 12,800 params")
    assert lines[where + 1 : where + 3] == ["│  formula  V·d_model", "│  numbers  200·64"]
    assert "params_total = 114,944 params" in lines


def test_show_needs_exactly_one_spec(home: Path, planner: Planner) -> None:
    text = (home / "specs" / "tiny.yaml").read_text(encoding="utf-8")
    (home / "specs" / "two.yaml").write_text(text.replace("name: tiny", "name: two"), encoding="utf-8")
    assert planner("show", "specs") == (2, "", "planner: show accepts one spec; specs contains 2\n")


def test_version_and_help(planner: Planner) -> None:
    assert planner("--version") == (0, f"planner {package.__version__}\n", "")
    code, out, err = planner("--help")
    assert (code, err) == (0, "")
    assert "planner run specs/*.yaml" in out
    assert "exit codes:" in out


def test_every_command_file_is_in_the_table() -> None:
    modules = [importlib.import_module(f"planner.cli.{path.stem}") for path in Path(commands.__file__).parent.glob("*.py")]
    runs = [module for module in modules if hasattr(module, "add_arguments")]
    assert sorted(map(str, runs)) == sorted(map(str, commands.COMMANDS.values()))


@pytest.mark.parametrize(("name", "command"), commands.COMMANDS.items())
def test_every_command_has_help_and_examples(planner: Planner, name: str, command: Command) -> None:
    code, out, err = planner(name, "--help")
    assert (code, err) == (0, "")
    assert command.__doc__
    assert command.__doc__.split()[-1] in out
    assert all(line.startswith(f"planner {name} ") for line, _ in command.EXAMPLES)


def test_without_arguments_the_program_prints_its_help(planner: Planner) -> None:
    assert planner() == planner("--help")


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (("sho", "a"), "show"),
        (("run", "a", "--formt", "csv"), "--format"),
        (("fit", "a", "--memory", "1GB", "--for", "n_layer"), "n_layers"),
        (("--versio",), "--version"),
    ],
)
def test_a_mistyped_word_is_answered_with_the_near_one(planner: Planner, arguments: tuple[str, ...], near: str) -> None:
    code, out, err = planner(*arguments)
    assert (code, out) == (2, "")
    assert err.endswith(f"; did you mean {near}?\n")


def test_show_begins_with_the_figures_and_lists_settings_on_request(planner: Planner) -> None:
    _, out, _ = planner("show", "specs/tiny.yaml")
    titles = [line[3:] for line in out.splitlines() if line.startswith(("├─", "└─"))]
    assert titles[0] == "Parameters"
    assert titles[-2:] == ["Model", "Training"]  # the spec has no sources
    code, out, _ = planner("show", "specs/tiny.yaml", "--settings")
    assert code == 0
    assert [line[3:] for line in out.splitlines() if line.startswith(("├─", "└─"))] == ["Model", "Training"]


@pytest.mark.parametrize("arguments", [("rnu",), ("--nope",), ("show",), ("show", "a", "b")])
def test_usage_errors_exit_with_2(planner: Planner, arguments: tuple[str, ...]) -> None:
    code, out, err = planner(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("usage: planner")
