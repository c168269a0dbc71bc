"""Trends: what the committed reports of the base say, exactly, in few calls of git."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from planner.review import git

from .conftest import LAYER_PARAMS, TINY_PARAMS, Repo, Review, spec


def report(repo: Repo, layers: int) -> None:
    """Change the number of layers of the tiny spec on main, write the report and commit both."""
    repo.write(spec(n_layers=str(layers)))
    assert repo.run("run", "specs")[0] == 0
    repo.commit()


def trend(review: Review, figure: str = "params_total") -> list[int]:
    return next((one["values"] for one in review["trends"] if one["figure"] == figure), [])


def params(*layers: int) -> list[int]:
    return [TINY_PARAMS + (number - 2) * LAYER_PARAMS for number in layers]


def test_a_trend_has_the_saved_values_then_the_base_and_the_change(repo: Repo) -> None:
    for layers in (2, 3, 5):
        report(repo, layers)
    base = repo.git("rev-parse", "HEAD")
    repo.write(spec(n_layers="7"))
    assert trend(repo.review("--base", base)) == params(2, 3, 5, 7)
    _, out, _ = repo.run("diff", "--base", base)
    assert "Trend of reports/capacity.csv, up to this change\n  tiny: parameters 114.9 k → 164.9 k → 264.9 k → 364.9 k; peak " in out
    assert "- tiny: parameters 114.9 k → 164.9 k → 264.9 k → 364.9 k; peak " in repo.run("diff", "--base", base, "--format", "md")[
        1
    ].replace("\N{NO-BREAK SPACE}", " ")


def test_only_the_last_versions_count_and_equal_ones_are_one(repo: Repo) -> None:
    for layers in (1, 2, 3, 4, 5, 6, 7):
        report(repo, layers)
    for number in range(3):
        repo.write(f"{number}", "notes.txt")
        repo.commit()
    base = repo.git("rev-parse", "HEAD")
    repo.write(spec(n_layers="8"))
    assert trend(repo.review("--base", base)) == params(3, 4, 5, 6, 7, 8)


def test_a_report_that_is_behind_its_spec_is_followed_by_the_base(repo: Repo) -> None:
    report(repo, 3)
    repo.write(spec(n_layers="4"))
    base = repo.commit()
    repo.write(spec(n_layers="5"))
    assert trend(repo.review("--base", base)) == params(3, 4, 5)


def test_without_a_history_there_is_no_trend(repo: Repo) -> None:
    repo.write(spec(n_layers="3"))
    assert repo.review()["trends"] == []
    report(repo, 2)
    base = repo.git("rev-parse", "HEAD")
    repo.write(spec(n_layers="3"))
    assert repo.review("--base", base)["trends"] == []  # before and after are in the table
    assert "Trend" not in repo.run("diff", "--base", base)[1]


def test_a_model_is_followed_under_its_old_name_and_its_scenarios_share_parameters(repo: Repo) -> None:
    more = "scenarios: [{name: big, batch_size: 6}]\n"
    for layers in (2, 3):
        repo.write(spec(n_layers=str(layers)) + more)
        assert repo.run("run", "specs")[0] == 0
        repo.commit()
    base = repo.git("rev-parse", "HEAD")
    repo.write(spec("renamed", n_layers="4") + more)
    found = [(one["model"], one["scenario"], one["figure"]) for one in repo.review("--base", base)["trends"]]
    assert found == [("renamed", "base", "params_total"), ("renamed", "base", "peak_bytes"), ("renamed", "big", "peak_bytes")]


OTHER = [b"\xff\xfe\x00", b"", b"model\ntiny\n", b"a,b\n1,2\n", b"model,scenario\n" + b"x" * 200_000]
CELLS = [b"x", b"-1", b"1e9", b"", b"9" * 5000, "٣".encode()]


@pytest.mark.parametrize(("content", "cell"), [*zip([*OTHER, b""], CELLS, strict=True)], ids=range(6))
def test_a_file_that_is_no_report_has_no_trend(repo: Repo, content: bytes, cell: bytes) -> None:
    folder = repo.root / "reports"
    folder.mkdir()
    (folder / "capacity.csv").write_bytes(content)
    repo.commit()
    (folder / "capacity.csv").write_bytes(b"model,scenario,params_total\ntiny,base," + cell + b"\n")
    base = repo.commit()
    repo.write(spec(n_layers="3"))
    assert repo.review("--base", base)["trends"] == []


def test_git_runs_three_times_for_a_trend_and_not_without_changes(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    for layers in (2, 3, 4):
        report(repo, layers)
    base = repo.git("rev-parse", "HEAD")
    calls: list[str] = []
    run = git._git  # noqa: SLF001 - counted

    def counted(folder: Path, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        calls.append(arguments[0])
        return run(folder, *arguments, given=given)

    monkeypatch.setattr(git, "_git", counted)
    repo.review("--base", base)
    assert "rev-list" not in calls
    repo.write(spec(n_layers="5"))
    assert trend(repo.review("--base", base)) == params(2, 3, 4, 5)
    assert calls[calls.index("rev-list") :] == ["rev-list", "cat-file", "cat-file"]
