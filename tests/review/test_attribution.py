"""Which line changed which metric, checked against arithmetic on the tiny model."""

from __future__ import annotations

from planner.review.snapshot import working_tree
from planner.spec.edits import ByName, Difference, differences

from .conftest import LAYER_PARAMS, Repo, Review, figures, spec

# Parameters of a layer: 12·d² + 13·d; of the embeddings: V·d + L·d; of the last norm: 2·d.
WIDTH = 64


def params(width: int, layers: int) -> int:
    return 200 * width + 32 * width + layers * (12 * width**2 + 13 * width) + 2 * width


def settings(review: Review, moves: list[dict[str, object]], name: str = "tiny") -> list[tuple[list[str], object]]:
    """Return the settings and amount of each cause."""
    edits = next(model for model in review["models"] if model["name"] == name)["edits"]
    return [([edits[index]["setting"] for index in move["edits"]], move["by"]) for move in moves]  # type: ignore[attr-defined]


def test_one_changed_line_causes_every_change(repo: Repo) -> None:
    repo.write(spec(n_layers="3"))
    review = repo.review()
    assert "params_total" in figures(review)
    for change in figures(review).values():
        assert settings(review, change["moves"]) == [(["model.n_layers"], change["after"] - change["before"])]
        assert change["together"] == 0


def test_independent_edits_add_up(repo: Repo) -> None:
    repo.write(spec(n_layers="3", vocab_size="300"))
    review = repo.review()
    change = figures(review)["params_total"]
    assert settings(review, change["moves"]) == [(["model.vocab_size"], 100 * WIDTH), (["model.n_layers"], LAYER_PARAMS)]
    assert change["together"] == 0
    assert settings(review, figures(review)["params_embedding"]["moves"]) == [(["model.vocab_size"], 100 * WIDTH)]


def test_the_interaction_of_edits_is_reported_separately(repo: Repo) -> None:
    repo.write(spec(n_layers="4", d_model="128"))
    review = repo.review()
    change = figures(review)["params_total"]
    wider, deeper, both = params(128, 2) - params(64, 2), params(64, 4) - params(64, 2), params(128, 4) - params(64, 2)
    assert settings(review, change["moves"]) == [(["model.d_model"], wider), (["model.n_layers"], deeper)]
    assert change["together"] == both - wider - deeper > 0
    _, out, _ = repo.run("diff", "--format", "md")
    assert "interaction of the changes above — parameters +" in out


def test_edits_that_are_only_valid_together_are_one_cause(repo: Repo) -> None:
    repo.write(spec(d_model="66", n_heads="6", batch_size="4"))  # neither 66 / 4 nor 64 / 6 is whole
    review = repo.review()
    change = figures(review)["params_total"]
    assert settings(review, change["moves"]) == [(["model.d_model", "model.n_heads"], params(66, 2) - params(64, 2))]
    moves = settings(review, figures(review)["activations_bytes"]["moves"])
    assert [names for names, _ in moves] == [["model.d_model", "model.n_heads"], ["training.batch_size"]]


def test_an_invalid_edit_is_combined_with_a_valid_one(repo: Repo) -> None:
    repo.write(spec(d_model="72", n_heads="8").replace("n_layers: 2", "n_layers: 2\n  head_dim: 9"))
    review = repo.review()
    total = sum(move["by"] for change in [figures(review)["params_total"]] for move in change["moves"])
    assert total + figures(review)["params_total"]["together"] == params(72, 2) - params(64, 2)


def test_edits_without_effect_are_not_listed_as_causes(repo: Repo) -> None:
    repo.write(spec(n_layers="3").replace("  n_heads: 4\n", "  n_heads: 4\n  d_ff: 256\n  head_dim: 16\n"))
    (model,) = repo.review()["models"]
    assert [edit["setting"] for edit in model["edits"]] == ["model.n_layers"]


def test_a_key_that_was_a_default_is_shown_with_its_default(repo: Repo) -> None:
    repo.write(spec() + "  recompute: full\n")
    (model,) = repo.review()["models"]
    place = {"file": "specs/tiny.yaml", "line": 12, "column": 14}
    assert model["edits"] == [{"setting": "training.recompute", "before": "none (default)", "after": "full", "place": place}]


def test_a_removed_line_is_reported_at_its_old_location(repo: Repo) -> None:
    repo.write(spec().replace("  precision: fp32\n", ""))
    (model,) = repo.review()["models"]
    place = {"file": "specs/tiny.yaml", "line": 11, "column": 14}
    assert model["edits"] == [{"setting": "training.precision", "before": "fp32", "after": "bf16-autocast (default)", "place": place}]


def test_an_edit_of_a_base_changes_the_specs_that_extend_it(repo: Repo) -> None:
    repo.write("name: child\nextends: tiny.yaml\ntraining: {batch_size: 7}\n", "specs/child.yaml")
    base = repo.commit()
    repo.write(spec(n_layers="3", batch_size="5"))
    review = repo.review("--base", base)
    child = next(model for model in review["models"] if model["name"] == "child")
    place = {"file": "specs/tiny.yaml", "line": 6, "column": 13}
    assert child["edits"] == [{"setting": "model.n_layers", "before": "2", "after": "3", "place": place}]
    tiny = next(model for model in review["models"] if model["name"] == "tiny")
    assert [edit["setting"] for edit in tiny["edits"]] == ["model.n_layers", "training.batch_size"]


def test_scenarios_are_matched_by_name(repo: Repo) -> None:
    repo.write(spec() + "scenarios:\n  - {name: long, sequence_length: 32}\n  - {name: old, batch_size: 9}\n")
    base = repo.commit()
    repo.write(spec() + "scenarios:\n  - {name: new, batch_size: 8}\n  - {name: long, sequence_length: 16}\n")
    review = repo.review("--base", base)
    (model,) = review["models"]
    assert {row["scenario"]: row["status"] for row in model["rows"]} == {"new": "new", "long": "changed", "old": "removed"}
    assert [(edit["setting"], edit["before"], edit["after"]) for edit in model["edits"]] == [
        ("scenarios.new", "", "{name: new, batch_size: 8}"),
        ("scenarios.long.sequence_length", "32", "16"),
        ("scenarios.old", "{name: old, batch_size: 9}", ""),
    ]
    moves = settings(review, figures(review, scenario="long")["activations_bytes"]["moves"])
    assert [names for names, _ in moves] == [["scenarios.long.sequence_length"]]


def test_the_order_of_scenarios_does_not_matter(repo: Repo) -> None:
    one, other = "  - {name: long, sequence_length: 32}\n", "  - {name: big, batch_size: 9}\n"
    repo.write(spec() + "scenarios:\n" + one + other)
    base = repo.commit()
    repo.write(spec() + "scenarios:\n" + other + one)
    assert repo.states("--base", base) == {"tiny": "unchanged"}


def test_layer_groups_are_compared_one_by_one(repo: Repo) -> None:
    runs = "layers: [{count: 1}, {count: 2, d_ff: 100}]"
    repo.write(spec().replace("n_layers: 2", runs))
    base = repo.commit()
    repo.write(spec().replace("n_layers: 2", runs.replace("100", "128").replace("count: 1", "count: 4")))
    review = repo.review("--base", base)
    change = figures(review)["params_total"]
    # two layers of the second run: 28 more columns and rows and biases of the feed-forward, 2·64·28 + 28 each
    assert settings(review, change["moves"]) == [
        (["model.layers[0].count"], 3 * LAYER_PARAMS),
        (["model.layers[1].d_ff"], 2 * (2 * 64 * 28 + 28)),
    ]


def test_a_setting_that_changes_no_metric_is_still_a_change(repo: Repo) -> None:
    repo.write(spec() + "  gradient_accumulation: 1\n")
    assert repo.states() == {"tiny": "unchanged"}
    repo.write(spec().replace("n_heads: 4", "n_heads: 4\n  attention: {qkv: fused_per_head}"))
    review = repo.review()
    assert review["models"][0]["status"] == "changed"
    assert review["models"][0]["edits"][0]["setting"] == "model.attention.qkv"
    code, out, _ = repo.run("diff", "--exit-code")
    assert code == 1
    assert "no metric changed" in out


def test_a_shorthand_and_its_mapping_are_compared_as_a_whole(repo: Repo) -> None:
    repo.write(spec().replace("n_heads: 4", "n_heads: 4\n  positions: rope"))
    repo.write(spec("other").replace("n_heads: 4", "n_heads: 4\n  positions: {type: rope, rotary_dim: 8}"), "specs/other.yaml")
    repo.monkeypatch.chdir(repo.root)
    side = working_tree(repo.root, ["specs"])
    one, other = side.specs["tiny"].written, side.specs["other"].written
    assert one is not None
    assert other is not None
    assert [found.setting for found in differences(one, other)] == ["model.positions"]


def test_names_of_settings() -> None:
    assert Difference(("model", "layers", 0, "count"), None, None).setting == "model.layers[0].count"
    assert Difference(("scenarios", ByName("long"), "batch_size"), None, None).setting == "scenarios.long.batch_size"
