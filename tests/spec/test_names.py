"""Names of the catalog work where a spec is accepted, and names of the Hub are explained."""

from __future__ import annotations

from pathlib import Path

import pytest

import planner
from planner import spec
from planner.cli.program import main
from planner.spec import catalogue
from planner.spec.find import find

LLAMA = "meta-llama/Meta-Llama-3-8B"  # its catalog name is llama-3-8b


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ["llama-3-8b", "catalog/llama-3-8b"])
def test_a_name_of_the_catalog_is_its_spec(name: str) -> None:
    assert planner.load(name).name == LLAMA
    files, problems = find([name, "catalog/llama-3-8b"])
    assert [Path(file).name for file in files] == ["llama-3-8b.yaml"]
    assert problems == ()


def test_an_existing_file_of_that_name_wins() -> None:
    Path("llama-3-8b").write_text("name: mine\nmodel: {vocab_size: 8, context_length: 8, d_model: 8, n_layers: 1, n_heads: 1}\n")
    assert planner.load("llama-3-8b").name == "mine"
    Path("gpt2").mkdir()
    assert find(["gpt2"])[1][0].code == "no-specs"  # the folder, which has none


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("llama-3-8", "llama-3-8: error[not-found]: no such file or catalog model; did you mean llama-3-8b?"),
        ("catalog/llama-3-8", "catalog/llama-3-8: error[not-found]: no such file or catalog model; did you mean llama-3-8b?"),
        ("qqqqqqqq", "qqqqqqqq: error[not-found]: no such file or catalog model; run planner list to see the names of the catalog"),
        (LLAMA, f"{LLAMA}: error[not-found]: no such file, and nothing is downloaded; the catalog has llama-3-8b"),
        (LLAMA.lower(), f"{LLAMA.lower()}: error[not-found]: no such file, and nothing is downloaded; the catalog has llama-3-8b"),
        (f"{LLAMA}-Instruct", f"{LLAMA}-Instruct: error[not-found]: no such file, and nothing is downloaded; the catalog has llama-3-8b"),
        (
            "a/gemma-2b-z",
            "a/gemma-2b-z: error[not-found]: no such file, and nothing is downloaded; similar models in the catalog: gemma-2b",
        ),
        ("a/qqqqqqqq", "a/qqqqqqqq: error[not-found]: no such file, and nothing is downloaded; import its config.json"),
        ("here/gpt2", "here/gpt2: error[not-found]: no such file or directory"),
        ("gpt2.yaml", "gpt2.yaml: error[not-found]: no such file or directory"),
        ("./gpt2", "./gpt2: error[not-found]: no such file or directory"),
    ],
)
def test_unknown_names(path: str, message: str) -> None:
    Path("here").mkdir()
    with pytest.raises(spec.SpecError) as raised:
        planner.load(path)
    assert str(raised.value) == message


@pytest.mark.parametrize("written", ["llama-3-8b", LLAMA])
def test_extends_names_the_model_with_its_prefix(written: str) -> None:
    Path("mine.yaml").write_text(f"name: mine\nextends: {written}\n")
    with pytest.raises(spec.SpecError, match=r"is not a spec file; did you mean catalog/llama-3-8b\?"):
        planner.load("mine.yaml")


def test_a_project_starts_from_a_model_of_the_catalog(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "mine", "--from", "llama-3-8b"]) == 0
    assert "extends: catalog/llama-3-8b\n" in Path("specs/mine.yaml").read_text(encoding="utf-8")
    assert planner.load("specs/mine.yaml").name == "mine"
    assert main(["init", "other", "--from", "llama-3-8"]) == 2
    assert "did you mean llama-3-8b?" in capsys.readouterr().err


def test_every_name_of_the_hub_belongs_to_one_model() -> None:
    names = [name for path in catalogue.paths().values() for name in _hub_names(path)]
    assert len(names) == len(set(names)) == len(catalogue.hub_names())
    assert catalogue.hub_names()["deepseek-ai/deepseek-r1"] == "deepseek-v3"  # post-trained from DeepSeek-V3-Base, whose shapes it has


def _hub_names(path: Path) -> list[str]:
    prefix = "https://huggingface.co/"
    sources = planner.load(path).sources
    return [
        address.removeprefix(prefix).removesuffix("/blob/main/config.json").lower() for address in sources if address.startswith(prefix)
    ]
