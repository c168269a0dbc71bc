"""Error messages: location, plain words, suggested fix, the line and a caret; never the words of a validator."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from planner import spec
from planner.spec.problems import Problem
from planner.spec.records import Place
from planner.spec.suggest import key_hint, number_meant

Rendered = Callable[..., str]
Heads = Callable[..., list[str]]


def test_all_errors_of_a_file_are_reported_in_order(rendered: Rendered) -> None:
    text = """\
name: gpt2
model:
  vocab_size: 50,257
  hidden_size: 768
  context_length: 1024
  n_layer: 12
  n_heads: "12"
  d_ff: 3072.5
  feed_forward: {activation: gelu_fast, bais: no}
  head:
    tied: yes
  activation: silu
training:
  precision: bf16-mixed
  batch_size:
  tokens: 300B
  batch_size: 8
  dropout: 1
"""
    assert (
        rendered(text)
        == """\
x.yaml:3:15: error[type]: model.vocab_size must be a whole number, not the text '50,257'; write vocab_size: 50257
    3 |   vocab_size: 50,257
      |               ^
x.yaml:4:3: error[unknown-key]: unknown key 'hidden_size' in model; did you mean 'd_model'?
    4 |   hidden_size: 768
      |   ^
x.yaml:6:3: error[unknown-key]: unknown key 'n_layer' in model; did you mean 'n_layers'?
    6 |   n_layer: 12
      |   ^
x.yaml:7:12: error[type]: model.n_heads must be a whole number, not the text '12'; write n_heads: 12
    7 |   n_heads: "12"
      |            ^
x.yaml:8:9: error[type]: model.d_ff must be a whole number, not 3072.5; for example d_ff: 3072
    8 |   d_ff: 3072.5
      |         ^
x.yaml:9:30: error[value]: invalid value 'gelu_fast' for model.feed_forward.activation; did you mean 'gelu_tanh'?
    9 |   feed_forward: {activation: gelu_fast, bais: no}
      |                              ^
x.yaml:9:41: error[unknown-key]: unknown key 'bais' in model.feed_forward; did you mean 'bias'?
    9 |   feed_forward: {activation: gelu_fast, bais: no}
      |                                         ^
x.yaml:11:11: error[type]: model.head.tied must be true or false, not the text 'yes'; YAML 1.2 reads 'yes' as text: write tied: true
   11 |     tied: yes
      |           ^
x.yaml:12:3: error[unknown-key]: unknown key 'activation' in model; did you mean 'model.feed_forward.activation'?
   12 |   activation: silu
      |   ^
x.yaml:14:14: error[value]: invalid value 'bf16-mixed' for training.precision; did you mean 'bf16-autocast' or 'bf16-master'?
   14 |   precision: bf16-mixed
      |              ^
x.yaml:15:14: error[type]: training.batch_size must be a whole number, not empty; for example batch_size: 8
   15 |   batch_size:
      |              ^
x.yaml:16:11: error[type]: training.tokens must be a whole number, not the text '300B'; write tokens: 300e9
   16 |   tokens: 300B
      |           ^
x.yaml:17:3: error[duplicate-key]: duplicate key 'batch_size' (first used on line 15); keep one of them
   17 |   batch_size: 8
      |   ^
x.yaml:18:12: error[range]: training.dropout must be below 1, not 1
   18 |   dropout: 1
      |            ^"""
    )


# A line after the minimal spec, and its error.
ONE_PROBLEM = """\
  layers: []
    8:11: error[empty-list]: model.layers must not be an empty list; remove the key
  layers: 3
    8:11: error[type]: model.layers must be a list, not 3
  layers: [3]
    8:12: error[type]: model.layers[0] must be a mapping, not 3
  layers: [{count: 0}, {}]
    8:20: error[range]: model.layers[0].count must be at least 1, not 0
  d_ff: -1
    8:9: error[range]: model.d_ff must be at least 1, not -1
  d_ff: 9007199254740992
    8:9: error[range]: model.d_ff must be at most 9,007,199,254,740,991, not 9007199254740992
  d_ff: .inf
    8:9: error[type]: model.d_ff must be a whole number, not .inf; for example d_ff: 3072
  d_ff: .nan
    8:9: error[type]: model.d_ff must be a whole number, not .nan; for example d_ff: 3072
  d_ff: true
    8:9: error[type]: model.d_ff must be a whole number, not true; for example d_ff: 3072
  d_ff: [1]
    8:9: error[type]: model.d_ff must be a whole number, not a list; for example d_ff: 3072
  d_ff: {a: 1}
    8:9: error[type]: model.d_ff must be a whole number, not a mapping; for example d_ff: 3072
  d_ff: 1_024
    8:9: error[type]: model.d_ff must be a whole number, not the text '1_024'; write d_ff: 1024
  positions: rotary
    8:14: error[value]: invalid value 'rotary' for model.positions; did you mean 'rope'?
  norm: {type: rmsnor}
    8:16: error[value]: invalid value 'rmsnor' for model.norm.type; did you mean 'rmsnorm'? One of: layernorm, rmsnorm
  positions: 3
    8:14: error[value]: invalid value 3 for model.positions; one of: learned, rope, alibi, sinusoidal, bucketed, none
  positions: [rope]
    8:14: error[value]: model.positions cannot be a list; one of: learned, rope, alibi, sinusoidal, bucketed, none
  positions: {rotary: 3}
    8:15: error[unknown-key]: unknown key 'rotary' in model.positions; did you mean 'rotary_dim'?
  attention: {bias: 3}
    8:21: error[type]: model.attention.bias must be true or false or a mapping, not 3; for example bias: true
  rms_norm_eps: 1e-5
    8:3: error[unknown-key]: unknown key 'rms_norm_eps' in model; it does not affect the plan; remove it
training: {recompute: true}
    8:23: error[value]: invalid value true for training.recompute; did you mean 'full'?
training: {precision: 32}
    8:23: error[value]: invalid value 32 for training.precision; did you mean 'fp32'?
training: {dropout: -0.1}
    8:21: error[range]: training.dropout must be at least 0, not -0.1
training: {optimizer: adam8bit}
    8:23: error[value]: invalid value 'adam8bit' for training.optimizer; did you mean 'adamw-8bit'?
training: {seq_len: 8}
    8:12: error[unknown-key]: unknown key 'seq_len' in training; did you mean 'sequence_length'?
training: {d_model: 8}
    8:12: error[unknown-key]: unknown key 'd_model' in training; did you mean 'model.d_model'?
training: []
    8:11: error[type]: training must be a mapping, not a list
scenarios: [{batch_size: 1}]
    8:13: error[missing-key]: missing required key 'name' in scenarios[0]; for example name: long
expect: {params: 3}
    8:10: error[unknown-key]: unknown key 'params' in expect; did you mean 'params_total'?
expect: {params_total: 124M}
    8:24: error[type]: expect.params_total must be a whole number, not the text '124M'; write params_total: 124e6
source: 3
    8:9: error[type]: source must be text or a list, not 3; put it in quotes: source: "3"
source: ['']
    8:10: error[text]: source[0] must not be empty
<<: {a: 1}
    8:1: error[unknown-key]: unknown key '<<'; merge keys are not part of YAML 1.2: write the keys out, or use extends
zzz: 1
    8:1: error[unknown-key]: unknown key 'zzz'; allowed here: name, description, source, tags, omits, extends, model, training, \
cluster, layout, scenarios, serving, waivers, expect
"""


@pytest.mark.parametrize(("more", "head"), list(zip(*[iter(ONE_PROBLEM.splitlines())] * 2, strict=True)))
def test_an_error_and_its_suggested_fix(heads: Heads, minimal: str, more: str, head: str) -> None:
    assert heads(minimal + more) == [f"x.yaml:{head.strip()}"]


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("3", 'error[type]: name must be text, not 3; put it in quotes: name: "3"'),
        ("true", 'error[type]: name must be text, not true; put it in quotes: name: "true"'),
        ("", "error[type]: name must be text, not empty; for example name: gpt2-small"),
        ("' x'", "error[text]: name must not begin or end with a space; remove the space"),
        ('"x\\n"', "error[text]: name must be one line without control characters; write it on one line"),
        ('"a\\nb"', "error[text]: name must be one line without control characters; write it on one line"),
        ('"a\\u202eb"', "error[text]: name must be one line without control characters; write it on one line"),
        ("x" * 101, "error[text]: name exceeds 100 characters; shorten it"),
        ("[a]", "error[type]: name must be text, not a list; for example name: gpt2-small"),
    ],
)
def test_invalid_names(heads: Heads, minimal: str, name: str, head: str) -> None:
    said = [line.split(": ", 1)[1] for line in heads(minimal.replace("small", name, 1))]
    assert head in said
    assert all("name" in line for line in said)


@pytest.mark.parametrize("name", ["x" * 100, "Llama 3 (8B)", "日本", "=1+1", "a|b", "no"])
def test_valid_names(rendered: Rendered, minimal: str, name: str) -> None:
    assert rendered(minimal.replace("small", name, 1)) == ""


def test_missing_keys_are_reported_at_their_mapping(heads: Heads) -> None:
    assert heads("model:\n  d_model: 3\n") == [
        "x.yaml:1:1: error[missing-key]: missing required key 'name'; for example name: gpt2-small",
        "x.yaml:1:1: error[missing-key]: missing required key 'vocab_size' in model; for example vocab_size: 50257",
        "x.yaml:1:1: error[missing-key]: missing required key 'context_length' in model; for example context_length: 1024",
        "x.yaml:1:1: error[missing-key]: missing required key 'n_heads' in model; for example n_heads: 12",
        "x.yaml:1:1: error[missing-key]: missing required key 'n_layers' or 'layers' in model; for example n_layers: 12",
    ]


# The keys of transformers' and nanoGPT's configurations.
@pytest.mark.parametrize(
    ("foreign", "ours"),
    [
        ("hidden_size", "d_model"), ("n_embd", "d_model"), ("dim", "d_model"), ("d_modle", "d_model"), ("D_MODEL", "d_model"),
        ("dmodel", "d_model"), ("d-model", "d_model"),
        ("num_hidden_layers", "n_layers"), ("n_layer", "n_layers"), ("num_layers", "n_layers"),
        ("num_attention_heads", "n_heads"), ("n_head", "n_heads"), ("num_heads", "n_heads"),
        ("num_key_value_heads", "n_kv_heads"), ("n_query_groups", "n_kv_heads"), ("head_size", "head_dim"),
        ("intermediate_size", "d_ff"), ("n_inner", "d_ff"), ("ffn_hidden_size", "d_ff"),
        ("max_position_embeddings", "context_length"), ("block_size", "context_length"), ("n_positions", "context_length"),
        ("n_ctx", "context_length"), ("vocabulary_size", "vocab_size"), ("padding_multiple", "pad_vocab_to_multiple_of"),
        ("tie_word_embeddings", "model.head.tied"), ("hidden_act", "model.feed_forward.activation"), ("batch_size", "training.batch_size"),
        ("parallel_residual", "block"), ("position_embedding_type", "positions"), ("mlp", "feed_forward"), ("tied", "model.head.tied"),
        ("lm_head", "head"), ("qk_norm", "model.attention.qk_norm"), ("gradient_checkpointing", "training.recompute"),
    ],
)  # fmt: skip
def test_keys_of_other_tools_get_a_suggestion(foreign: str, ours: str) -> None:
    assert key_hint(foreign, spec.schema()["properties"]["model"]["properties"]) == f"did you mean '{ours}'?"


@pytest.mark.parametrize(
    ("key", "said", "meant"),
    [
        ("training.precision", "bf16-mixed", "'bf16-autocast' or 'bf16-master'"),
        ("training.precision", "BF16_MIXED", "'bf16-autocast' or 'bf16-master'"),
        ("training.precision", "amp", "'bf16-autocast' or 'bf16-master'"),
        ("training.precision", "bfloat16", "'bf16'"),
        ("training.precision", "bf16-true", "'bf16'"),
        ("training.precision", "fp16", "'fp16-autocast'"),
        ("training.precision", "float32", "'fp32'"),
        ("training.optimizer", "adamw_bnb_8bit", "'adamw-8bit'"),
        ("training.implementation", "flash_attention_2", "'pytorch'"),
        ("training.recompute", "yes", "'full'"),
        ("model.feed_forward.activation", "swish", "'silu'"),
        ("model.feed_forward.type", "swiglu", "'gated'"),
        ("model.norm.type", "rms_norm", "'rmsnorm'"),
        ("model.positions", "absolute", "'learned'"),
        ("model.block", "parallel", "'parallel_one_norm'"),
        ("model.norm.placement", "pre-norm", "'before'"),
    ],
)
def test_values_of_other_tools_get_a_suggestion(heads: Heads, minimal: str, key: str, said: str, meant: str) -> None:
    (head,) = heads(minimal, f"{key}={said}")
    assert head.endswith(f"did you mean {meant}?")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("50,257", "50257"), ("1_024", "1024"), ("1 024 000", "1024000"), ("1k", "1e3"), ("300B", "300e9"), ("1.5T", "1.5e12"),
        ("7 M", "7e6"), ("768", "768"), (" 768 ", "768"), ("3e11", "3e11"),
        ("", ""), ("abc", ""), ("1.5", ""), ("1,2", ""), ("true", ""), (".inf", ""), ("9" * 101, ""),
    ],
)  # fmt: skip
def test_text_that_means_a_number(text: str, meant: str) -> None:
    assert number_meant(text) == meant


def test_errors_have_color_only_on_request() -> None:
    problem = Problem(Place("x.yaml", 2, 3), "code", "message", "  line", "hint")
    assert problem.render() == str(problem) == "x.yaml:2:3: error[code]: message; hint\n    2 |   line\n      |   ^"
    assert problem.render(color=True) == (
        "\x1b[1mx.yaml:2:3:\x1b[0m \x1b[1;31merror[code]:\x1b[0m message; hint\n    2 |   line\n      |   \x1b[1;32m^\x1b[0m"
    )
    assert spec.render([problem, problem]) == f"{problem}\n{problem}"
    assert spec.render([]) == ""


def test_an_error_of_a_whole_file_has_no_line() -> None:
    assert Problem(Place("x.yaml", 0, 0), "code", "message").render() == "x.yaml: error[code]: message"


def test_control_characters_never_reach_the_terminal() -> None:
    problem = Problem(Place("a\x1b[2J\n.yaml", 1, 3), "code", "mess\x07age\r\u202e", "\ta\x1b[31mb\ud800")
    assert problem.render() == ("a\ufffd[2J .yaml:1:3: error[code]: mess\ufffdage \ufffd\n    1 |  a\ufffd[31mb\ufffd\n      |   ^")


def test_a_long_line_is_shown_around_the_caret() -> None:
    line = "".join(str(number % 10) for number in range(10_000))
    _, shown, caret = Problem(Place("x.yaml", 1, 5001), "code", "message", line).render().splitlines()
    assert len(shown) < 140
    assert shown[caret.index("^")] == "0"
    assert shown.startswith("    1 | …")
    assert shown.endswith("…")
    _, shown, caret = Problem(Place("x.yaml", 1, 10_001), "code", "message", line).render().splitlines()
    assert caret.index("^") == len(shown)
    _, shown, caret = Problem(Place("x.yaml", 1, 1), "code", "message", line).render().splitlines()
    assert shown[caret.index("^")] == "0"


def test_the_caret_is_aligned_below_wide_and_combining_characters() -> None:
    _, _, caret = Problem(Place("x.yaml", 1, 4), "code", "message", "日e\u0301x").render().splitlines()
    assert caret == "      |    ^"


def test_long_values_are_shortened(heads: Heads, minimal: str) -> None:
    found = heads(minimal + f"  {'k' * 500}: 1\n  block: {'v' * 5000}\n  d_ff: '{'9' * 5000}'\n")
    assert len(found) == 3
    assert all(len(head) < 700 for head in found)  # the allowed keys included


def test_the_text_of_the_exception_has_all_errors(rendered: Rendered, write: Callable[..., object]) -> None:
    text = "name: 3\nmodel: 4\n"
    write(text)
    with pytest.raises(spec.SpecError) as raised:
        spec.load("x.yaml")
    assert str(raised.value) == rendered(text)
    assert pickle.loads(pickle.dumps(raised.value)).problems == raised.value.problems  # noqa: S301 - our own
    assert [problem.code for problem in raised.value.problems] == ["type", "type"]
