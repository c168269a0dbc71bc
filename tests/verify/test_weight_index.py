"""The total size of published checkpoints against the parameters of their specs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

import planner
from planner.cli.program import main
from planner.verify import CannotMeasureError
from planner.verify.weight_index import NAME, Weighed, check

LAYER = (
    "input_layernorm mlp.down_proj mlp.gate_proj mlp.up_proj post_attention_layernorm self_attn.k_proj self_attn.o_proj self_attn.q_proj "
    "self_attn.v_proj"
)


def llama(layers: int, *more: str, prefix: str = "model") -> list[str]:
    names = [f"{prefix}.layers.{layer}.{name}.weight" for layer in range(layers) for name in LAYER.split()]
    return [f"{prefix}.embed_tokens.weight", f"{prefix}.norm.weight", *names, *more]


def write(path: Path, total: object, names: Iterable[str], **more: int) -> Path:
    weight_map = dict.fromkeys(names, "model-00001-of-00002.safetensors")
    path.write_text(json.dumps({"metadata": {"total_size": total, **more}, "weight_map": weight_map}), encoding="utf-8")
    return path


def weigh(name: str, index: Path) -> Weighed:
    return check(planner.plan(planner.load(name)), index)


INV_FREQ = [f"model.layers.{layer}.self_attn.rotary_emb.inv_freq" for layer in range(32)]
TOWER = ["vision_tower.vision_model.post_layernorm.weight", "multi_modal_projector.mm_input_projection_weight"]


# total_size of the published indexes.
@pytest.mark.parametrize(
    ("name", "total", "names", "text"),
    [
        (
            "llama-3-8b", 16060522496, llama(32, "lm_head.weight"),
            "16,060,522,496 bytes are the spec's 8,030,261,248 parameters of 2 bytes",
        ),
        (  # and 32 · 64 frequencies in float32
            "llama-2-7b", 13476839424, llama(32, "lm_head.weight", *INV_FREQ),
            "13,476,839,424 bytes are the spec's 6,738,415,616 parameters of 2 bytes plus rotary frequencies",
        ),
        ("gemma-2b", 5012344832, llama(18), "5,012,344,832 bytes are the spec's 2,506,172,416 parameters of 2 bytes"),
        (  # SmolLM2-135M in float32: 4 · 134,515,008
            "smollm2-135m", 538060032, llama(30), "538,060,032 bytes are the spec's 134,515,008 parameters of 4 bytes",
        ),
        (  # the same with its tied head stored again: 2 · (134,515,008 + 49,152 · 576)
            "smollm2-135m", 325653120, llama(30, "lm_head.weight"),
            "325,653,120 bytes are the spec's 134,515,008 parameters of 2 bytes plus the tied LM head, which is stored, too",
        ),
    ],
)  # fmt: skip
def test_published_indexes_agree(name: str, total: int, names: list[str], text: str, tmp_path: Path) -> None:
    assert weigh(name, write(tmp_path / NAME, total, names)) == Weighed(True, text)


def test_a_difference_is_given_in_parameters(tmp_path: Path) -> None:
    found = weigh("llama-2-13b", write(tmp_path / NAME, 13476839424, llama(32, "lm_head.weight", *INV_FREQ)))
    assert found == Weighed(
        False,
        "13,476,839,424 bytes are 6,738,419,712 parameters of 2 bytes, 6,277,444,608 fewer than the spec's 13,015,864,320; "
        "the file has 32 layers, the spec 40",
    )


def test_tensors_that_the_spec_does_not_have_are_named(tmp_path: Path) -> None:
    index = write(tmp_path / NAME, 16060522496 + 2000, llama(32, "lm_head.weight", *TOWER))
    found = weigh("llama-3-8b", index)
    assert found.agrees is False
    assert "1,000 more than the spec's" in found.text
    assert found.text.endswith("tensors that the spec does not have: multi_modal_projector.* (1), vision_tower.* (1)")


def test_towers_that_a_spec_omits_cannot_be_checked(tmp_path: Path) -> None:
    # MedGemma 27B, which has Gemma 3's shapes: 416,866,032 parameters of the tower, 1152 · 5376 + 1152 of the projector.
    index = write(tmp_path / NAME, 54864813280, llama(62, *TOWER, prefix="language_model.model"))
    found = weigh("gemma-3-27b-pt", index)
    assert found.agrees is None
    assert f"{416_866_032 + 1152 * 5376 + 1152:,} more than the spec's 27,009,346,304" in found.text


def test_quantized_weights_cannot_be_checked_without_their_number(tmp_path: Path) -> None:
    names = llama(40, "model.layers.0.mlp.down_proj.weight.absmax")
    assert weigh("llama-2-13b", write(tmp_path / NAME, 7201770923, names)) == Weighed(
        None, "not checked: the weights are quantized (model.layers.0.mlp.down_proj.weight.absmax)"
    )
    counted = write(tmp_path / NAME, 7201770923, names, total_parameters=13015864320)
    assert weigh("llama-2-13b", counted) == Weighed(True, "total_parameters are the spec's 13,015,864,320")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"metadata": {"total_size": "9"}, "weight_map": {"a": "b"}}', "[" * 100_000, '{"metadata": 1}']
)
def test_other_files_are_no_index(text: str, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(text, encoding="utf-8")
    with pytest.raises(CannotMeasureError):
        weigh("gpt2", tmp_path / NAME)
    with pytest.raises(CannotMeasureError):
        weigh("gpt2", tmp_path / "missing")


def test_names_are_printed_safely_and_in_linear_time(tmp_path: Path) -> None:
    names = llama(32, "vision\x1b[31m.a", "w" * 200_000 + ".vision_" + "w" * 200_000 + ".b", "." * 100_000)
    assert "\x1b" not in weigh("llama-3-8b", write(tmp_path / NAME, 9, names)).text


def test_the_command_compares_an_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = write(tmp_path / NAME, 16060522496, llama(32, "lm_head.weight"))
    assert main(["verify", "llama-3-8b", "--index", str(index)]) == 0
    assert capsys.readouterr().out == (
        "meta-llama/Meta-Llama-3-8B: 16,060,522,496 bytes are the spec's 8,030,261,248 parameters of 2 bytes\n"
    )
    assert main(["verify", "llama-2-7b", "--index", str(index), "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["agrees"] is False
    assert main(["verify", "gpt2", "llama-2-7b", "--index", str(index)]) == 2
    assert main(["verify", "gpt2", "--index", str(tmp_path / "missing")]) == 2


CONFIG = {
    "model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.mark.parametrize(("layers", "code"), [(32, 0), (31, 1)])
def test_an_import_is_checked_by_the_index_beside_it(layers: int, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": layers}), encoding="utf-8")
    write(tmp_path / NAME, 16060522496, llama(32, "lm_head.weight"))
    assert main(["import", str(tmp_path)]) == code
    assert f"{NAME}: 16,060,522,496 bytes are " in capsys.readouterr().err
