"""``--set`` overrides a value of a spec; errors in it are located in the argument."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from planner import spec
from planner.spec.records import FeedForward, Layer, Place, Positions

Rendered = Callable[..., str]
Heads = Callable[..., list[str]]
Write = Callable[..., object]


def dense(layer: Layer) -> FeedForward:
    assert layer.feed_forward is not None
    return layer.feed_forward


@pytest.fixture
def overridden(write: Write, minimal: str) -> Callable[..., spec.Spec]:
    def overridden(*arguments: str) -> spec.Spec:
        write(minimal + "training: {tokens: 100}\n")
        (loaded,), problems = spec.read(["x.yaml"], arguments)
        assert not problems
        return loaded

    return overridden


def test_a_value_is_read_as_yaml_1_2(overridden: Callable[..., spec.Spec]) -> None:
    loaded = overridden(
        "training.batch_size=16",
        "model.d_ff=1e3",
        "training.dropout=0.1",
        "model.head.tied=false",
        "name=no",
        "model.positions={type: rope}",
    )
    training = loaded.scenarios[0].training
    assert (training.batch_size, training.dropout, training.tokens) == (16, Fraction(1, 10), 100)
    assert dense(loaded.model.runs[0].layers[0]).d_ff == 1000
    assert loaded.model.tied_head is False
    assert loaded.model.positions == Positions("rope", rotary_dim=12)
    assert loaded.name == "no"


def test_the_last_override_wins(overridden: Callable[..., spec.Spec]) -> None:
    assert overridden("training.batch_size=16", "training.batch_size=4").scenarios[0].training.batch_size == 4


def test_a_missing_section_is_added(overridden: Callable[..., spec.Spec]) -> None:
    assert dense(overridden("model.feed_forward.bias.up=false").model.runs[0].layers[0]).up_bias is False


def test_steps_replace_tokens(overridden: Callable[..., spec.Spec]) -> None:
    assert overridden("training.steps=3").scenarios[0].training.tokens == 3 * 64


@pytest.mark.parametrize("place", range(2))
def test_overrides_do_not_remove_each_other(overridden: Callable[..., spec.Spec], place: int) -> None:
    # A precision removes the gradient_dtype of a spec, and an optimizer its amsgrad; those given beside them stay, in any order.
    pairs = [("precision=bf16-master", "gradient_dtype=bf16"), ("optimizer=adam", "amsgrad=true")]
    arguments = [f"training.{setting}" for pair in pairs for setting in (pair if place else pair[::-1])]
    training = overridden(*arguments).scenarios[0].training
    assert (training.precision, training.gradient_dtype, training.optimizer, training.amsgrad) == ("bf16-master", "bf16", "adam", True)


def test_overrides_of_one_mapping_are_merged(overridden: Callable[..., spec.Spec]) -> None:
    arguments = ("model.positions.rotary_dim=4", "model.positions.type=rope", "model.attention.bias=false", "model.attention.bias.o=true")
    model = overridden(*arguments).model
    attention = model.runs[0].layers[0].attention
    assert model.positions == Positions("rope", rotary_dim=4)
    assert attention is not None
    assert (attention.q_bias, attention.o_bias) == (False, True)


def test_tokens_and_steps_that_differ_are_an_error(heads: Heads, minimal: str) -> None:
    # One step of the spec is 64 tokens, as above.
    (head,) = heads(minimal, "training.tokens=100", "training.steps=3")
    assert "error[tokens-steps]: tokens is 100, but 3 steps of 64 tokens" in head


def test_scenarios_override_an_overridden_training(write: Write, minimal: str) -> None:
    write(minimal + "scenarios: [{name: a}, {name: b, batch_size: 2}]\n")
    (loaded,), _ = spec.read(["x.yaml"], ["training.batch_size=16"])
    assert [scenario.training.batch_size for scenario in loaded.scenarios] == [16, 16, 2]


def test_the_location_of_an_overridden_value_is_the_argument(overridden: Callable[..., spec.Spec]) -> None:
    loaded = overridden("training.batch_size=16")
    assert loaded.places["training", "batch_size"] == Place("--set training.batch_size=16", 1, 21)
    assert "training.batch_size" not in loaded.defaulted


def test_an_override_applies_to_every_spec(write: Write, minimal: str) -> None:
    write(minimal, "a.yaml")
    write("extends: a.yaml\nname: b\n", "b.yaml")
    specs, _ = spec.read(["a.yaml", "b.yaml"], ["model.d_ff=5"])
    assert [dense(loaded.model.runs[0].layers[0]).d_ff for loaded in specs] == [5, 5]


def test_an_error_shows_the_argument(rendered: Rendered, minimal: str) -> None:
    assert (
        rendered(minimal, "training.batch_size=8k", "model.d_modle=3", "training.precision=bf16-mixed")
        == """\
--set training.batch_size=8k:1:21: error[type]: training.batch_size must be a whole number, not the text '8k'; write batch_size: 8e3
    1 | training.batch_size=8k
      |                     ^
--set model.d_modle=3:1:7: error[unknown-key]: unknown key 'd_modle' in model; did you mean 'd_model'?
    1 | model.d_modle=3
      |       ^
--set training.precision=bf16-mixed:1:20: error[value]: invalid value 'bf16-mixed' for training.precision; \
did you mean 'bf16-autocast' or 'bf16-master'?
    1 | training.precision=bf16-mixed
      |                    ^"""
    )


@pytest.mark.parametrize(
    ("argument", "head"),
    [
        ("foo", "1:1: error[override]: expected KEY=VALUE, got 'foo'; for example training.batch_size=16"),
        ("", "1:1: error[override]: expected KEY=VALUE, got ''; for example training.batch_size=16"),
        ("=3", "1:1: error[override]: expected KEY=VALUE, got '=3'; for example training.batch_size=16"),
        ("a..b=3", "1:1: error[override]: expected KEY=VALUE, got 'a..b=3'; for example training.batch_size=16"),
        ("a b=3", "1:1: error[override]: expected KEY=VALUE, got 'a b=3'; for example training.batch_size=16"),
        ("model.d_ff=", "1:1: error[override]: missing value after '='; for example model.d_ff=1"),
        ("extends=y.yaml", "1:1: error[override]: extends cannot be set here; write it in a spec file"),
        ("model.d_ff=[1", "1:14: error[yaml]: a list or mapping in brackets is not closed; close it, or put a ',' before this"),
        ("model.d_ff=!!x 3", "1:12: error[tag]: the YAML tag '!!x' is not supported; remove the tag"),
        ("model.d_ff=\x1b3", ("1:12: error[character]: the character U+001B is not allowed; "
                              "remove it, or write it as an escape in double quotes")),
        ("model.d_ff=-1", "1:12: error[range]: model.d_ff must be at least 1, not -1"),
        ("zzz=1", ("1:1: error[unknown-key]: unknown key 'zzz'; "
                  "allowed here: name, description, source, tags, omits, extends, model, training, cluster, layout, scenarios, serving, "
        "waivers, expect")),
        ("model.n_heads=5", ("1:15: error[head-dim]: n_heads 5 does not divide d_model 48; "
                            "write head_dim, or make d_model a multiple of n_heads")),
        ("model=3", "1:7: error[type]: model must be a mapping, not 3"),
        ("model.d_ff.x=3", "1:12: error[type]: model.d_ff must be a whole number, not a mapping; for example d_ff: 3072"),
    ],
)  # fmt: skip
def test_invalid_overrides(heads: Heads, minimal: str, argument: str, head: str) -> None:
    shown = argument.replace("\x1b", "\ufffd")
    assert heads(minimal, argument) == [f"--set {shown}:{head}"]


def test_an_override_is_one_line(heads: Heads, minimal: str) -> None:
    assert heads(minimal, "model={d_ff: 1,\n n_heads: 1}") == [
        "--set model={d_ff: 1,  n_heads: 1}:1:1: error[override]: an override is one line; put collections in brackets: {a: 1}"
    ]


def test_an_invalid_override_yields_no_spec(write: Write, minimal: str) -> None:
    write(minimal)
    specs, problems = spec.read(["x.yaml"], ["foo"])
    assert specs == ()
    assert len(problems) == 1
