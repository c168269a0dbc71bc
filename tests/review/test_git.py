"""The compared specs and revisions, on real repositories."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

import planner
from planner.review.snapshot import is_spec, selected
from planner.spec.find import find

from .conftest import LAYER_PARAMS, TINY_PARAMS, UNLIKE_PARAMS, MakeRepo, Repo, figures, git, spec, unlike


def test_a_changed_spec_is_shown_before_and_after(repo: Repo) -> None:
    repo.write(spec(n_layers="3"))
    repo.commit()
    review = repo.review()
    change = figures(review)["params_total"]
    assert (change["before"], change["after"]) == (TINY_PARAMS, TINY_PARAMS + LAYER_PARAMS)
    (model,) = review["models"]
    assert model["status"] == "changed"
    place = {"file": "specs/tiny.yaml", "line": 6, "column": 13}
    assert model["edits"] == [{"setting": "model.n_layers", "before": "2", "after": "3", "place": place}]


def test_uncommitted_changes_are_reviewed(repo: Repo) -> None:
    repo.write(spec(n_layers="3"))
    repo.write(spec("other"), "specs/other.yaml")
    assert repo.states() == {"tiny": "changed", "other": "new"}


def test_added_and_removed_models(repo: Repo) -> None:
    repo.write(spec("other"), "specs/other.yaml")
    (repo.root / "specs/tiny.yaml").unlink()
    review = repo.review()
    assert {model["name"]: (model["status"], model["path"]) for model in review["models"]} == {"other": ("renamed", "specs/other.yaml")}
    repo.write(unlike("other"), "specs/other.yaml")
    review = repo.review()
    rows = {model["name"]: (model["status"], model["rows"][0]) for model in review["models"]}
    assert rows["tiny"][0] == "removed"
    assert (rows["tiny"][1]["before"]["params_total"], rows["tiny"][1]["after"]) == (TINY_PARAMS, None)
    assert rows["other"][0] == "new"
    assert rows["other"][1]["after"]["params_total"] == UNLIKE_PARAMS
    code, out, _ = repo.run("diff", "--format", "md")
    out = out.replace("\N{NO-BREAK SPACE}", " ")
    other, gone = (
        "| **other**<br>new |  |  |  |\n| parameters |  | **443.4 k** |  |",
        "| **tiny**<br>removed |  |  |  |\n| parameters | 114.9 k |  |  |",
    )
    assert (code, other in out.replace("\N{NO-BREAK SPACE}", " "), gone in out.replace("\N{NO-BREAK SPACE}", " ")) == (0, True, True)
    assert "100" not in out.split("### Changes")[1].split("<details>")[0]  # a new model is not +100 %


def test_a_moved_file_is_reported_as_moved(repo: Repo) -> None:
    (repo.root / "specs/deep").mkdir()
    (repo.root / "specs/tiny.yaml").rename(repo.root / "specs/deep/other.yaml")
    (model,) = repo.review()["models"]
    assert (model["status"], model["path"], model["moved_from"]) == ("unchanged", "specs/deep/other.yaml", "specs/tiny.yaml")
    code, out, _ = repo.run("diff", "--exit-code")
    assert code == 0
    assert "No changes: the only model matches the base (1 moved to another file)." in out


def test_a_moved_and_changed_file_is_compared_with_the_old_one(repo: Repo) -> None:
    (repo.root / "specs/tiny.yaml").unlink()
    repo.write(spec(n_layers="3"), "proposals/tiny.yaml")
    review = repo.review("proposals")
    assert figures(review)["params_total"]["before"] == TINY_PARAMS
    assert review["models"][0]["moved_from"] == "specs/tiny.yaml"


REWRITES = {
    "reordered": """\
model: {n_heads: 4, n_layers: 2, d_model: 64, context_length: 32, vocab_size: 200}
name: tiny
training: {precision: fp32, sequence_length: 10, batch_size: 3}
""",
    "training's defaults written": spec() + "  optimizer: adamw\n  recompute: none\n",
    "the model's defaults written": spec().replace(
        "  n_heads: 4\n", "  n_heads: 4\n  n_kv_heads: 4\n  head_dim: 16\n  d_ff: 256\n  positions: {type: learned, offset: 0}\n"
    ),
    "the layers as a run": spec().replace("n_layers: 2", "layers: [{count: 2}]"),
    "other words": spec() + "# a remark\ndescription: other words\nsource: https://example.org\n",
    "other line ends": spec().replace("\n", "\r\n"),
}


@pytest.mark.parametrize("text", REWRITES.values(), ids=REWRITES)
def test_an_equivalent_rewrite_is_an_empty_diff(repo: Repo, text: str) -> None:
    repo.write(text)
    code, out, err = repo.run("diff", "--exit-code")
    assert (code, err) == (0, "")
    assert "No changes: the only model matches the base." in out


def test_an_inlined_extends_is_an_empty_diff(repo: Repo) -> None:
    repo.write("name: child\nextends: tiny.yaml\ntraining: {batch_size: 7}\n", "specs/child.yaml")
    base = repo.commit()
    repo.write(spec("child", batch_size="7"), "specs/child.yaml")
    assert repo.run("diff", "--base", base, "--exit-code")[0] == 0


def test_extends_at_the_base_reads_the_old_file(repo: Repo) -> None:
    repo.write("name: child\nextends: tiny.yaml\ntraining: {batch_size: 7}\n", "specs/child.yaml")
    base = repo.commit()
    repo.write(spec(n_layers="3"))
    review = repo.review("--base", base)
    assert figures(review, "child")["params_total"]["before"] == TINY_PARAMS
    assert figures(review, "child")["params_total"]["after"] == TINY_PARAMS + LAYER_PARAMS
    assert [edit["place"]["file"] for edit in review["models"][0]["edits"]] == ["specs/tiny.yaml"]


def test_extends_at_the_base_can_read_a_file_deleted_since(repo: Repo) -> None:
    repo.write("name: child\nextends: tiny.yaml\n", "specs/child.yaml")
    base = repo.commit()
    (repo.root / "specs/tiny.yaml").unlink()
    repo.write(spec("child"), "specs/child.yaml")
    assert repo.states("--base", base) == {"child": "unchanged", "tiny": "removed"}


def test_an_unreadable_base_does_not_fail_the_review(repo: Repo) -> None:
    repo.write("name: tiny\nmodel: [\n")
    base = repo.commit()
    repo.write(spec())
    review = repo.review("--base", base)
    assert (review["failed"], review["findings"]) == (False, [])
    assert review["models"][0]["status"] == "new"
    assert "the spec has errors at the base" in review["models"][0]["note"]
    assert [note for note in review["notes"] if note.startswith("specs/tiny.yaml has errors at the base")]


def test_an_invalid_spec_is_a_finding_at_its_line_and_not_a_removal(repo: Repo) -> None:
    repo.write(spec().replace("d_model", "d_modle"))
    repo.write(spec("other"), "specs/other.yaml")
    code, out, _ = repo.run("diff", "--format", "github")
    assert code == 1
    assert "::error file=specs/tiny.yaml,line=5,col=3,title=unknown-key::unknown key 'd_modle' in model; did you mean 'd_model'?\n" in out
    assert repo.states() == {"other": "new", "tiny": "unreadable"}


def test_two_specs_of_one_name_are_a_finding(repo: Repo) -> None:
    repo.write(spec(), "specs/zz.yaml")
    code, out, _ = repo.run("diff")
    assert code == 1
    assert "specs/zz.yaml:1: error[duplicate-name]" in out


def test_a_shallow_clone_gets_a_suggested_fix(repo: Repo, tmp_path: Path) -> None:
    repo.write(spec(n_layers="3"))
    repo.commit()
    repo.git("checkout", "--quiet", "main")
    git(tmp_path, "clone", "--quiet", "--depth", "1", "--branch", "change", f"file://{repo.root}", "shallow")
    for arguments in ((), ("--base", "main"), ("--base", "main..."), ("--base", "0123456789" * 4)):
        code, out, err = repo.run("diff", *arguments, folder=tmp_path / "shallow")
        assert (code, out) == (2, "")
        assert "shallow" in err
        assert "fetch-depth: 0" in err
    git(tmp_path / "shallow", "fetch", "--quiet", "--unshallow", "origin", "+refs/heads/*:refs/remotes/origin/*")
    assert repo.run("diff", "--exit-code", folder=tmp_path / "shallow")[0] == 1


def test_without_a_repository_there_is_a_suggested_fix(repo: Repo, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    code, out, err = repo.run("diff", folder=tmp_path / "plain")
    assert (code, out) == (2, "")
    assert err == "planner: diff: not a git repository; run inside one, or use --base-report FILE\n"


def test_without_a_base_there_is_a_suggested_fix(make_repo: MakeRepo) -> None:
    empty = make_repo()
    empty.write(spec())
    assert empty.run("diff")[2] == "planner: diff: the repository has no commits yet\n"
    empty.commit()
    empty.git("branch", "--move", "trunk")
    code, _, err = empty.run("diff")
    assert code == 2
    assert "no main branch to compare with" in err
    assert "--base REF" in err
    assert "unknown revision 'v9'" in empty.run("diff", "--base", "v9")[2]


def test_unrelated_histories_have_no_base(repo: Repo) -> None:
    repo.git("checkout", "--quiet", "--orphan", "island")
    repo.write(spec(n_layers="3"))
    repo.commit()
    assert "HEAD and main have no commit in common; choose a base with --base REF" in repo.run("diff")[2]


def test_a_detached_head_works_like_a_branch(repo: Repo) -> None:
    repo.write(spec(n_layers="3"))
    repo.git("checkout", "--quiet", repo.commit())
    assert repo.states() == {"tiny": "changed"}


def test_the_default_base_is_the_merge_base_and_a_given_revision_is_used_directly(repo: Repo) -> None:
    repo.write(spec("mine"), "specs/mine.yaml")
    repo.commit()
    repo.git("checkout", "--quiet", "main")
    repo.write(unlike("theirs"), "specs/theirs.yaml")
    repo.commit()
    repo.git("checkout", "--quiet", "change")
    assert repo.states() == repo.states("--base", "main...") == {"mine": "new", "tiny": "unchanged"}
    assert repo.states("--base", "main") == {"mine": "new", "theirs": "removed", "tiny": "unchanged"}


def test_the_main_branch_of_the_remote_comes_first(repo: Repo, tmp_path: Path) -> None:
    repo.git("checkout", "--quiet", "main")
    git(tmp_path, "clone", "--quiet", str(repo.root), "clone")
    git(tmp_path / "clone", "branch", "--quiet", "--force", "stale")
    (tmp_path / "clone/specs/tiny.yaml").write_text(spec(n_layers="3"), encoding="utf-8")
    git(tmp_path / "clone", "commit", "--quiet", "--all", "--message", "on main, not pushed")
    assert "the merge base with origin/HEAD" in repo.review(folder=tmp_path / "clone")["base"]


def test_in_a_submodule_and_of_a_submodule(make_repo: MakeRepo, tmp_path: Path) -> None:
    inner = make_repo("inner")
    inner.write(spec("inner"), "specs/inner.yaml")
    inner.commit()
    outer = make_repo("outer")
    outer.write(spec("outer"), "specs/outer.yaml")
    outer.git("submodule", "--quiet", "add", str(inner.root), "specs/lib")
    outer.commit()
    outer.git("checkout", "--quiet", "-b", "change")
    outer.write(spec("inner", n_layers="3"), "specs/lib/specs/inner.yaml")
    assert outer.states() == {"inner": "changed", "outer": "unchanged"}
    assert figures(outer.review(), "inner")["params_total"]["before"] == TINY_PARAMS
    inside = tmp_path / "outer/specs/lib"
    assert figures(outer.review(folder=inside), "inner")["params_total"]["before"] == TINY_PARAMS
    assert outer.review(folder=inside)["models"][0]["path"] == "specs/inner.yaml"


def test_a_submodule_with_a_missing_commit_is_a_note(make_repo: MakeRepo) -> None:
    inner, outer = make_repo("inner"), make_repo("outer")
    inner.write(spec("inner"), "inner.yaml")
    inner.commit()
    outer.git("submodule", "--quiet", "add", str(inner.root), "specs/lib")
    outer.git("update-index", "--cacheinfo", f"160000,{'1' * 40},specs/lib")
    outer.git("commit", "--quiet", "--message", "a commit that nobody has")
    review = outer.review()
    assert "the submodule specs/lib lacks its commit 111111111111" in review["notes"][0]
    assert review["models"][0]["status"] == "new"


@pytest.mark.parametrize("name", ["with space", "Größe 模型", "quote'\"s", "[brackets]", "-dash"])
def test_paths_with_special_characters(make_repo: MakeRepo, name: str) -> None:
    repo = make_repo(f"in {name}")
    repo.write(spec(), f"specs/{name}/{name}.yaml")
    repo.commit()
    repo.git("checkout", "--quiet", "-b", "change")
    repo.write(spec(n_layers="3"), f"specs/{name}/{name}.yaml")
    review = repo.review()
    assert figures(review)["params_total"]["before"] == TINY_PARAMS
    assert review["models"][0]["edits"][0]["place"]["file"] == f"specs/{name}/{name}.yaml"
    assert figures(repo.review(f"specs/{name}/{name}.yaml"))["params_total"]["before"] == TINY_PARAMS


def test_a_file_name_that_is_not_utf8(repo: Repo) -> None:
    path = os.fsencode(repo.root / "specs") + b"/\xff.yaml"
    Path(os.fsdecode(path)).write_text(spec("odd"), encoding="utf-8")
    base = repo.commit()
    Path(os.fsdecode(path)).write_text(spec("odd", n_layers="3"), encoding="utf-8")
    model = repo.review("--base", base)["models"][0]
    assert (model["name"], model["status"], model["path"]) == ("odd", "changed", r"specs/\xff.yaml")


def test_in_a_subfolder_paths_are_relative_to_the_root(repo: Repo) -> None:
    repo.write(spec(n_layers="3"))
    inside = repo.root / "specs"
    for arguments in ((), ("tiny.yaml",), (".",), ("*.yaml",), ("../specs",)):
        review = repo.review(*arguments, folder=inside)
        assert review["models"][0]["edits"][0]["place"]["file"] == "specs/tiny.yaml", arguments
        assert figures(review)["params_total"]["before"] == TINY_PARAMS


def test_only_the_given_paths_are_reviewed(repo: Repo) -> None:
    repo.write(unlike("other"), "specs/other.yaml")
    repo.write(spec(n_layers="3"))
    assert repo.states("specs/tiny.yaml") == {"tiny": "changed"}
    (repo.root / "specs/tiny.yaml").unlink()
    assert repo.states("specs/tiny.yaml") == {"tiny": "removed"}
    assert repo.states("specs/other.yaml", "specs/t*.yaml") == {"other": "new", "tiny": "removed"}


def test_paths_that_do_not_exist(repo: Repo) -> None:
    code, _, err = repo.run("diff", "nowhere.yaml")
    assert (code, err) == (2, "planner: diff: nowhere.yaml: no such file or directory\n")
    assert repo.run("diff", "specs/tiny.yaml", "nowhere/*.yaml")[0] == 2
    (repo.root / "specs/tiny.yaml").unlink()
    assert repo.run("diff", "specs/tiny.yaml", "specs", "specs/*.yaml")[0] == 0
    repo.commit()
    code, _, err = repo.run("diff", "--base", "HEAD")
    assert code == 2
    assert "list where they are under specs: in planner.yaml" in err


def test_nothing_in_the_repository_changes(repo: Repo) -> None:
    repo.write(spec(n_layers="3"))
    repo.write(spec("other"), "specs/other.yaml")
    repo.git("add", "specs/other.yaml")
    os.utime(repo.root / "specs/tiny.yaml", (time.time() + 10, time.time() + 10))

    def everything() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in repo.root.rglob("*") if path.is_file()}

    before = everything()
    repo.review()
    assert everything() == before


@pytest.mark.parametrize("ref", ["-h", "--output=x", "--help", "", "HEAD\n", "HEAD;touch x", "$(touch x)", "HEAD:specs", "..", "-..."])
def test_a_revision_is_never_read_as_an_option_or_path(repo: Repo, ref: str) -> None:
    code, out, err = repo.run("diff", f"--base={ref}")
    assert (code, out) == (2, "")
    assert "unknown revision" in err
    assert not (repo.root / "x").exists()


def test_no_hook_monitor_or_filter_of_the_repository_runs(repo: Repo) -> None:
    trap = repo.write("#!/bin/sh\ntouch caught\n", "trap")
    trap.chmod(0o755)
    repo.write("*.yaml filter=trap diff=trap\n", ".gitattributes")
    for setting in ("core.fsmonitor", "core.pager", "diff.external", "filter.trap.smudge", "filter.trap.clean", "diff.trap.textconv"):
        repo.git("config", setting, str(trap))
    repo.write(spec(n_layers="3"))
    (repo.root / "caught").unlink(missing_ok=True)
    assert repo.states() == {"tiny": "changed"}
    assert not (repo.root / "caught").exists()


def test_a_partial_clone_does_not_use_the_network(repo: Repo, tmp_path: Path) -> None:
    repo.git("config", "uploadpack.allowFilter", "true")
    repo.write(spec(n_layers="3"))
    repo.commit()
    repo.git("checkout", "--quiet", "main")
    git(tmp_path, "clone", "--quiet", "--filter=blob:none", "--branch", "change", f"file://{repo.root}", "partial")
    code, _, err = repo.run("diff", folder=tmp_path / "partial")
    assert code == 2
    assert "git is missing files of the base" in err
    assert "git fetch --refetch" in err


def test_links_outside_the_repository_are_not_read(repo: Repo, tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("password: hunter2\n", encoding="utf-8")
    (repo.root / "specs/link.yaml").symlink_to(tmp_path / "secret.yaml")
    repo.write("name: up\nextends: ../../secret.yaml\n", "specs/up.yaml")
    repo.write("name: root\nextends: ../../../../../../etc/passwd\n", "specs/root.yaml")
    repo.write("name: abs\nextends: /etc/passwd\n", "specs/abs.yaml")
    repo.commit()
    for form in ("text", "md", "json", "github", "sarif", "junit"):
        code, out, err = repo.run("diff", "--format", form)
        assert code == 1
        assert "hunter2" not in out + err
        assert "root:" not in (out + err).replace("specs/root:", "")
    findings = {(finding["place"]["file"], finding["rule"]) for finding in repo.review()["findings"]}
    assert findings == {("specs/link.yaml", "outside"), *((f"specs/{name}.yaml", "extends") for name in ("up", "root", "abs"))}
    assert "hunter2" not in repo.run("diff", "--base", "HEAD")[1]


def test_links_within_the_repository_are_followed_on_both_sides(repo: Repo) -> None:
    repo.write(spec("shared"), "lib/shared.yaml")
    (repo.root / "specs/link.yaml").symlink_to("../lib/shared.yaml")
    base = repo.commit()
    repo.write(spec("shared", n_layers="3"), "lib/shared.yaml")
    review = repo.review("--base", base)
    assert figures(review, "shared")["params_total"]["before"] == TINY_PARAMS


def test_a_tree_that_climbs_out_of_its_folder_writes_nothing_there(repo: Repo, tmp_path: Path) -> None:
    blob = subprocess.run(
        ["git", "hash-object", "-w", "--stdin"], input=spec("evil"), cwd=repo.root, capture_output=True, text=True, check=True
    ).stdout.strip()
    raw = b"100644 ../../escaped.yaml\0" + bytes.fromhex(blob)
    tree = (
        subprocess.run(
            ["git", "hash-object", "-t", "tree", "--literally", "-w", "--stdin"], input=raw, cwd=repo.root, capture_output=True, check=True
        )
        .stdout.decode()
        .strip()
    )
    commit = repo.git("commit-tree", tree, "-m", "evil")
    assert repo.states("--base", commit) == {"tiny": "new"}
    assert not list(tmp_path.rglob("escaped.yaml"))


def test_a_model_of_the_catalog_can_be_extended_on_both_sides(repo: Repo) -> None:
    repo.write("name: ours\nextends: catalog/llama-3-8b\ntraining: {sequence_length: 1024}\n", "specs/ours.yaml")
    base = repo.commit()
    assert repo.states("--base", base)["ours"] == "unchanged"
    repo.write("name: ours\nextends: catalog/llama-2-7b\nmodel: {n_layers: 33}\ntraining: {sequence_length: 1024}\n", "specs/ours.yaml")
    review = repo.review("--base", base)
    edits = {edit["setting"]: edit["place"]["file"] for edit in review["models"][0]["edits"]}
    assert edits["model.n_layers"] == "specs/ours.yaml"
    assert {file for setting, file in edits.items() if setting != "model.n_layers"} <= {"catalog/llama-2-7b", "catalog/llama-3-8b"}


def test_a_config_json_can_be_compared(repo: Repo) -> None:
    config = (
        '{"model_type": "llama", "vocab_size": 200, "hidden_size": 64, "intermediate_size": 100, "num_hidden_layers": LAYERS, '
        '"num_attention_heads": 4, "max_position_embeddings": 32, "hidden_act": "silu", "tie_word_embeddings": true}'
    )
    repo.write(config.replace("LAYERS", "2"), "configs/config.json")
    base = repo.commit()
    repo.write(config.replace("LAYERS", "3"), "configs/config.json")
    for pattern in ("configs/config.json", "configs/*.json"):
        review = repo.review("--base", base, pattern)
        (model,) = review["models"]
        change = figures(review, model["name"])["params_total"]
        assert change["after"] - change["before"] == 4 * 64 * 64 + 3 * 64 * 100 + 2 * 64  # one layer without biases, two norms


@pytest.mark.parametrize(
    "pattern",
    [
        ".", "specs", "./specs", "specs/", "specs/*.yaml", "specs/*", "*", "**/*.yaml", "**", "specs/**", "specs/a", "specs/a/*", "s*/a",
        "specs/tiny.yaml", "specs/[x].yaml", "specs/[xt]*.yaml", ".hidden", ".hidden/*", "specs/.h*", "specs/*/*.yml", "nowhere",
        "specs/?.yaml", "*/**/d.yaml",
    ],
)  # fmt: skip
def test_a_glob_matches_the_same_files_in_a_revision_and_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    files = [
        "top.yaml", "specs/tiny.yaml", "specs/[x].yaml", "specs/x.yaml", "specs/note.txt", "specs/a/b.yml", "specs/a/c/d.yaml",
        "specs/.h.yaml", "specs/.hid/e.yaml", ".hidden/f.yaml",
    ]  # fmt: skip
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    on_disk = {Path(file).as_posix() for file in find([pattern])[0] if Path(file).is_file() and is_spec(file)}
    assert set(filter(is_spec, selected(files, [os.path.relpath(pattern)]))) == on_disk


def test_a_review_is_returned_to_python(repo: Repo) -> None:
    repo.write(spec(n_layers="3"))
    repo.monkeypatch.chdir(repo.root)
    review = planner.diff()
    (model,) = review.changed
    changes = {change.figure: (change.before, change.after) for change in model.rows[0].changes}
    assert changes["params_total"] == (TINY_PARAMS, TINY_PARAMS + LAYER_PARAMS)
    assert not review.failed
