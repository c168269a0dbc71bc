from __future__ import annotations

import pytest

from .conftest import Repo, spec

PART = "vision tower and projector"


@pytest.mark.parametrize("form", ["text", "md", "json"])
def test_a_review_names_what_a_changed_model_leaves_out(repo: Repo, form: str) -> None:
    repo.write(f"{spec(n_layers='3')}omits: [{PART}]\n")
    out = repo.run("diff", "--format", form)[1]
    assert f"Not counted in tiny: {PART}." in out
    assert "no padding" in out


def test_a_changed_omission_is_an_edit(repo: Repo) -> None:
    repo.write(f"{spec()}omits: [{PART}]\n")
    (model,) = repo.review()["models"]
    assert (model["status"], [edit["setting"] for edit in model["edits"]]) == ("changed", ["omits"])


def test_a_review_without_changes_names_nothing(repo: Repo) -> None:
    assert repo.review()["notes"] == []
