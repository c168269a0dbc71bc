"""``extends`` overrides the keys of another file in the repository; every value keeps its location."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from planner import spec
from planner.spec.extend import MAX_CHAIN
from planner.spec.nodes import Source
from planner.spec.records import Attention, FeedForward, Layer, Place, Positions
from planner.spec.source import read_source

Write = Callable[..., Path]


def dense(layer: Layer) -> FeedForward:
    assert layer.feed_forward is not None
    return layer.feed_forward


def heads(*paths: str) -> list[str]:
    _, problems = spec.read(paths or ("x.yaml",))
    return [problem.render().splitlines()[0] for problem in problems]


@pytest.fixture
def base(write: Write, minimal: str) -> str:
    write(
        minimal
        + """\
  n_kv_heads: 2
  attention: {bias: false, qk_norm: head_dim}
  positions: {type: learned, offset: 2}
  layers: [{count: 2, d_ff: 9}]
description: the base
source: [a, b]
training: {tokens: 1000, batch_size: 2, precision: bf16-master, gradient_dtype: bf16}
scenarios: [{name: long, batch_size: 1}]
expect: {params_total: 1}
""",
        "base.yaml",
    )
    return "extends: base.yaml\n"


def test_a_spec_without_overrides_equals_its_base(write: Write, base: str) -> None:
    one, other = spec.load("base.yaml"), spec.load(write(base + "name: other\n"))
    assert (other.name, other.path, other.claims) == ("other", "x.yaml", ())
    assert (other.model, other.scenarios, other.sources, other.description) == (one.model, one.scenarios, one.sources, one.description)
    assert other.defaulted == one.defaulted


def test_mappings_are_merged_and_lists_and_scalars_replaced(write: Write, base: str) -> None:
    text = """\
name: top
source: c
model:
  n_kv_heads: 1
  n_layers: 3
  attention: {bias: {o: true}, qk_norm: none}
  layers: [{count: 3}]
training: {batch_size: 4}
scenarios: [{name: short, sequence_length: 2}]
expect: {params_total: 2}
"""
    loaded = spec.load(write(base + text))
    (run,) = loaded.model.runs
    assert (run.count, dense(run.layers[0]).d_ff) == (3, 4 * 48)  # the base's list of runs is gone, d_ff with it
    assert run.layers[0].attention == Attention(4, 1, 12, q_bias=False, k_bias=False, v_bias=False, o_bias=True)  # the rest of bias: false
    assert run.layers[0].positions == Positions("learned", offset=2)
    assert loaded.sources == ("c",)
    assert [scenario.name for scenario in loaded.scenarios] == ["base", "short"]
    assert (loaded.scenarios[0].training.batch_size, loaded.scenarios[0].training.tokens) == (4, 1000)
    assert [claim.value for claim in loaded.claims] == [2]


@pytest.mark.parametrize(
    ("top", "positions"),
    [
        ("rope", Positions("rope", rotary_dim=12)),
        ("{type: rope}", Positions("rope", rotary_dim=12)),  # the base's offset belonged to learned
        ("{offset: 3}", Positions("learned", offset=3)),
        ("learned", Positions("learned")),
    ],
)
def test_another_type_of_positions_replaces_all_their_settings(write: Write, base: str, top: str, positions: Positions) -> None:
    assert spec.load(write(f"{base}name: top\nmodel: {{positions: {top}}}\n")).model.positions == positions


def test_a_mapping_overrides_a_shorthand(write: Write, minimal: str) -> None:
    write(minimal + "  positions: rope\n", "base.yaml")
    top = "name: top\nextends: base.yaml\nmodel: {positions: {rotary_dim: 4}}\n"
    assert spec.load(write(top)).model.positions == Positions("rope", rotary_dim=4)


def test_steps_replace_tokens_and_a_precision_replaces_its_gradient_dtype(write: Write, base: str) -> None:
    training = spec.load(write(base + "name: top\ntraining: {steps: 3, precision: bf16-master}\n")).scenarios[0].training
    assert training.tokens == 3 * 2 * 64
    assert training.gradient_dtype == "fp32"


def test_the_location_of_an_inherited_value_is_in_its_own_file(write: Write, base: str) -> None:
    places = spec.load(write(base + "name: top\nmodel: {d_ff: 5}\n")).places
    assert places["model", "d_model"] == Place("base.yaml", 5, 12)
    assert places["model", "d_ff"] == Place("x.yaml", 3, 15)


def test_errors_in_a_base_are_reported_there_and_once(write: Write, minimal: str) -> None:
    write(minimal + "  n_heads_: 4\n  block: none\n", "base.yaml")
    write("extends: base.yaml\nname: y\nmodel: {n_heads: 5}\n", "y.yaml")
    write("extends: base.yaml\nname: x\nmodel: {n_kv_heads: 3}\n")
    assert heads("y.yaml", "x.yaml") == [
        "y.yaml:3:18: error[head-dim]: n_heads 5 does not divide d_model 48; write head_dim, or make d_model a multiple of n_heads",
        "x.yaml:3:21: error[kv-heads]: n_kv_heads 3 does not divide n_heads 4; n_heads must be a multiple of n_kv_heads",
        "base.yaml:8:3: error[unknown-key]: unknown key 'n_heads_' in model; did you mean 'n_heads'?",
        "base.yaml:9:10: error[value]: invalid value 'none' for model.block; one of: sequential, parallel_one_norm, parallel_two_norms",
    ]


def test_a_base_may_be_incomplete(write: Write, minimal: str) -> None:
    write("model: {d_ff: 5}\n", "parts/base.yaml")
    assert dense(spec.load(write(minimal + "extends: parts/base.yaml\n")).model.runs[0].layers[0]).d_ff == 5


def test_paths_are_relative_to_the_extending_file(write: Write, minimal: str) -> None:
    write(minimal, "a/base.yaml")
    write("extends: ../a/base.yaml\nname: middle\n", "b/middle.yml")
    write("extends: b/middle.yml\nname: top\n")
    assert spec.load("x.yaml").model.d_model == 48
    assert spec.load("x.yaml").places["model", "d_model"].file == "a/base.yaml"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/etc/passwd", "the path '/etc/passwd' is absolute; write it relative to this file"),
        ("/etc/x.yaml", "the path '/etc/x.yaml' is absolute; write it relative to this file"),
        ("../../../etc/passwd", "'../../../etc/passwd' is not a spec file; name a file ending in .yaml or .yml"),
        (
            "../../../../../../etc/x.yaml",
            "the path '../../../../../../etc/x.yaml' leaves the repository and the working directory; extend a file below one of them",
        ),
        ("../secret.yaml", "the path '../secret.yaml' leaves the repository and the working directory; extend a file below one of them"),
        ("link.yaml", "the path 'link.yaml' leaves the repository and the working directory; extend a file below one of them"),
        ("nope.yaml", "no such file 'nope.yaml'; paths are relative to the file that contains extends"),
        (".yaml", "no such file '.yaml'; paths are relative to the file that contains extends"),
        ("folder.yaml", "no such file 'folder.yaml'; paths are relative to the file that contains extends"),
        ('"a\\0.yaml"', None),
    ],
)
def test_invalid_paths_of_extends(write: Write, minimal: str, folder: Path, path: str, said: str | None) -> None:
    secret = folder.parent / "secret.yaml"
    secret.write_text("name: secret\n", encoding="utf-8")
    (folder / "link.yaml").symlink_to(secret)
    (folder / "folder.yaml").mkdir()
    write(f"{minimal}extends: {path}\n")
    rendered = heads()
    assert all(line.startswith("x.yaml:8:10: error[") for line in rendered)
    if said:
        assert rendered == [f"x.yaml:8:10: error[extends]: {said}"]


def test_a_spec_cannot_extend_a_file_outside_its_repository(
    write: Write, minimal: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(minimal, "base.yaml")
    write("extends: ../base.yaml\nname: top\n", "specs/x.yaml")
    monkeypatch.chdir(folder / "specs")
    assert "leaves the repository" in heads("x.yaml")[0]
    (folder / ".git").mkdir()
    assert spec.load("x.yaml").model.d_model == 48


def test_a_spec_can_extend_a_file_beside_it_anywhere(write: Write, minimal: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(minimal, "base.yaml")
    write("extends: base.yaml\nname: top\n")
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    assert spec.load(folder / "x.yaml").model.d_model == 48


def test_a_cycle_is_reported_with_its_files(write: Write) -> None:
    write("extends: b.yaml\nname: a\n", "a.yaml")
    write("extends: c.yaml\nname: b\n", "b.yaml")
    write("extends: ./a.yaml\nname: c\n", "c.yaml")
    assert heads("a.yaml") == [
        "c.yaml:1:10: error[extends]: circular extends: a.yaml -> b.yaml -> c.yaml -> a.yaml; remove one of the extends keys"
    ]
    assert len(heads("a.yaml", "b.yaml", "c.yaml")) == 3


def test_a_file_cannot_extend_itself(write: Write) -> None:
    write("extends: x.yaml\nname: x\n")
    assert heads() == ["x.yaml:1:10: error[extends]: circular extends: x.yaml -> x.yaml; remove one of the extends keys"]


def test_a_chain_of_extends_has_a_maximum_length(write: Write, minimal: str) -> None:
    write(minimal, "0.yaml")
    for number in range(1, MAX_CHAIN + 1):
        write(f"extends: {number - 1}.yaml\nname: n{number}\n", f"{number}.yaml")
    assert spec.load(f"{MAX_CHAIN - 1}.yaml").model.d_model == 48
    assert heads(f"{MAX_CHAIN}.yaml") == [
        f"1.yaml:1:10: error[extends]: more than {MAX_CHAIN} files extend one another; extend a file nearer the first"
    ]


def test_a_broken_base_is_reported_once_for_all_its_specs(write: Write) -> None:
    write("name: [\n", "base.yaml")
    write("extends: base.yaml\nname: x\nmodel: {d_modle: 3}\n")
    write("extends: base.yaml\nname: y\n", "y.yaml")
    specs, problems = spec.read(["x.yaml", "y.yaml"])
    assert specs == ()
    assert [(problem.place.file, problem.code) for problem in problems] == [("x.yaml", "unknown-key"), ("base.yaml", "yaml")]


@pytest.mark.parametrize("text", ["- 1\n", "hello\n", "a: 1\na: 2\n"])
def test_a_base_with_invalid_values(write: Write, minimal: str, text: str) -> None:
    write(text, "base.yaml")
    write(minimal + "extends: base.yaml\n")
    specs, problems = spec.read(["x.yaml"])
    assert specs == ()
    assert {problem.place.file for problem in problems} == {"base.yaml"}


def test_a_base_of_many_specs_is_read_once(write: Write, minimal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counted(file: str) -> Source:
        read.append(file)
        return read_source(file)

    monkeypatch.setattr("planner.spec.loading.read_source", counted)
    write(minimal, "base.yaml")
    for number in range(5):
        write(f"extends: ./base.yaml\nname: n{number}\n", f"{number}.yaml")
    specs, problems = spec.read(["."])
    assert (len(specs), problems, len(read)) == (6, (), 6)
