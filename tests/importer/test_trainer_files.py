"""The files of other trainers, and of released weights, have the published parameter counts. Shapes of files are theirs, values facts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from planner.capacity.figures import Plan
from planner.importer.reader import Imported
from planner.importer.recognize import read_config
from tests.trainer_configs import DEEPSEEK, LEVANTER, LLAMA3, LLAMA_IN_NEOX, MISTRAL, NANOTRON, NEOX, OLMO, OLMO2, PYTHIA, Config, olmo_core

PlanModel = Callable[..., Plan]


def total(imported: Imported, plan_model: PlanModel) -> int:
    return plan_model(imported.model, **imported.training).parameters.total


def read(config: Mapping[str, Any], file: str = "config.json") -> Imported:
    return read_config(json.dumps(config), file)


@pytest.mark.parametrize(
    ("layers", "width", "heads", "ranks", "right"),
    [
        (6, 512, 8, 1, 70_426_624),
        (12, 768, 12, 1, 162_322_944),
        (24, 1024, 16, 1, 405_334_016),
        (16, 2048, 8, 1, 1_011_781_632),
        (24, 2048, 16, 1, 1_414_647_808),
        (32, 2560, 32, 1, 2_775_208_960),
        (32, 4096, 32, 2, 6_857_302_016),
        (36, 5120, 40, 4, 11_846_072_320),
        (44, 6144, 64, 2, 20_554_567_680),  # GPT-NeoX-20B
    ],
)
def test_gpt_neox_has_the_published_parameters(layers: int, width: int, heads: int, ranks: int, right: int, plan_model: PlanModel) -> None:
    sizes = {"num-layers": layers, "hidden-size": width, "num-attention-heads": heads, "model-parallel-size": ranks}
    assert total(read(PYTHIA | sizes), plan_model) == right
    underscores = {key.replace("-", "_"): value for key, value in (PYTHIA | sizes).items()}
    assert total(read(underscores), plan_model) == right


def test_a_gated_feed_forward_of_gpt_neox_has_two_thirds_of_the_width(plan_model: PlanModel) -> None:
    assert total(read(LLAMA_IN_NEOX), plan_model) == 6_738_415_616  # configs/llama/7B.yml of the repository, Llama 7B as published
    older = LLAMA_IN_NEOX | {"intermediate_size": 11008, "mlp_type": "llama", "activation": "silu"}
    assert total(read(older), plan_model) == 6_738_415_616


def test_gpt_neox_stores_the_second_norm_of_a_block_with_tied_norms(plan_model: PlanModel) -> None:
    tied = read(NEOX | {"gpt-j-tied": True})
    assert tied.model["block"] == "parallel_one_norm"
    assert total(tied, plan_model) == total(read(NEOX), plan_model)


# DeepSpeed keeps fp32 master weights, and sums gradients in fp16 for fp16 and, with ZeRO, in bf16 for bf16.
def test_the_training_half_of_gpt_neox_is_read() -> None:
    fp16 = {"batch_size": 8, "sequence_length": 2048, "gradient_accumulation": 2, "precision": "fp16-master", "optimizer": "adamw",
            "recompute": "full"}  # fmt: skip
    assert read(NEOX).training == fp16
    bf16 = NEOX | {"fp16": None, "precision": "bfloat16"}
    assert read(bf16).training == fp16 | {"precision": "bf16-master", "gradient_dtype": "bf16"}
    alone = bf16 | {"zero_optimization": {"stage": 0}, "attention-config": None}
    assert read(alone).training == fp16 | {"precision": "bf16-master", "implementation": "pytorch-eager"}


@pytest.mark.parametrize(
    ("model", "right"),  # of the released weights
    [
        (OLMO | {"d_model": 2048, "n_heads": 16, "n_layers": 16, "mlp_ratio": 8, "weight_tying": True}, 1_176_764_416),
        (OLMO | {"d_model": 4096, "n_heads": 32, "n_layers": 32, "mlp_hidden_size": 22016, "weight_tying": False}, 6_888_095_744),
        (OLMO2 | {"d_model": 2048, "n_heads": 16, "n_layers": 16, "mlp_ratio": 8}, 1_484_916_736),
        (OLMO2 | {"d_model": 4096, "n_heads": 32, "n_layers": 32, "mlp_hidden_size": 22016}, 7_298_617_344),
        (OLMO2 | {"d_model": 5120, "n_heads": 40, "n_layers": 40, "mlp_hidden_size": 27648}, 13_716_198_400),
    ],
    ids=["OLMo-1B", "OLMo-7B", "OLMo-2-1B", "OLMo-2-7B", "OLMo-2-13B"],
)
def test_olmo_has_the_published_parameters(model: Config, right: int, plan_model: PlanModel) -> None:
    trainer = {"model": model, "device_train_microbatch_size": 2, "precision": "amp_bf16", "optimizer": {"name": "adamw"}, "data": {}}
    imported = read(trainer)
    assert total(imported, plan_model) == right
    assert imported.training["batch_size"] == 2
    assert imported.training["precision"] == "bf16-autocast"
    assert total(read({"model_type": "hf_olmo", **model}), plan_model) == right


# Counts: OLMo-2's released weights, and TransformerConfig.num_params of OLMo-core for smallmoe, whose shared experts have biases.
def test_olmo_core_has_the_published_parameters(plan_model: PlanModel) -> None:
    assert total(read(olmo_core(4096, 32, 11008, {"n_heads": 32})), plan_model) == 7_298_617_344
    assert total(read(olmo_core(5120, 64, 27648, {"n_heads": 40, "n_kv_heads": 8})), plan_model) == 32_234_279_936


# A layer: 4·768² of attention, 2·768 of its norms of queries and keys, 2·768 of norms; 32 experts of 3·768·768 and a router of 768·32; a
# shared feed-forward of 3·768·1536 with biases of 2·1536 + 768. Twelve of them, two tables of 100,352·768, and a last norm.
def test_olmo_core_has_experts_and_shared_biases(plan_model: PlanModel) -> None:
    experts = {"num_experts": 32, "hidden_size": 768, "router": {"top_k": 4}, "shared_mlp": {"hidden_size": 1536}, "capacity_factor": 1.2}
    config = olmo_core(768, 12, 0, {"n_heads": 12}, feed_forward_moe=experts)
    layer = 4 * 768**2 + 4 * 768 + 32 * 3 * 768 * 768 + 768 * 32 + 3 * 768 * 1536 + 2 * 1536 + 768
    assert total(read(config), plan_model) == 12 * layer + 2 * 100_352 * 768 + 768


def test_olmo_core_repeats_its_pattern_of_windows() -> None:
    pattern = {"pattern": [4096, 4096, 4096, -1], "force_full_attention_on_first_layer": False}
    imported = read(olmo_core(4096, 8, 11008, {"n_heads": 32, "sliding_window": pattern}))
    window = {"attention": {"window": 4096}}
    assert imported.model["layers"] == [{"count": 2, "layers": [window, window, window, {}]}]
    assert imported.training == {"sequence_length": 8192, "batch_size": 2, "precision": "bf16-autocast", "optimizer": "adamw"}


def test_nanotron_has_the_published_parameters(plan_model: PlanModel) -> None:
    imported = read(NANOTRON)
    assert total(imported, plan_model) == 134_515_008
    assert imported.training == {
        "batch_size": 3, "sequence_length": 2048, "tokens": 100 * 3 * 4 * 4 * 2048, "gradient_accumulation": 4,
        "precision": "bf16-master", "optimizer": "adamw",
        "recompute": "full",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("model", "vocabulary", "right"),  # of the released weights
    [
        ({"type": "gpt2"}, 50257, 124_439_808),
        ({"type": "gpt2", "hidden_dim": 1600, "num_heads": 25, "num_layers": 48}, 50257, 1_557_611_200),
        ({"type": "llama"}, 32000, 6_738_415_616),
        ({"type": "mistral"}, 32000, 7_241_732_096),
        ({"type": "mixtral"}, 32000, 46_702_792_704),
        (
            {"type": "qwen3", "hidden_dim": 4096, "intermediate_dim": 12288, "num_layers": 36, "num_kv_heads": 8, "head_dim": 128},
            151936,
            8_190_735_360,
        ),
        ({"type": "olmo2"}, 100352, 7_298_617_344),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)
def test_levanter_has_the_published_parameters(model: Config, vocabulary: int, right: int, plan_model: PlanModel) -> None:
    imported = read({**LEVANTER, "model": model, "vocab_size": vocabulary})
    assert total(imported, plan_model) == right
    assert imported.training["precision"] == "bf16-autocast"
    assert imported.training["recompute"] == "full"


def torchtitan(name: str, flavor: str, more: str = "") -> Imported:
    return read_config(
        f'[model]\nname = "{name}"\nflavor = "{flavor}"\n\n[training]\nlocal_batch_size = 1\nseq_len = 8192\n{more}', "x.toml"
    )


@pytest.mark.parametrize(
    ("name", "flavor", "right"),  # of the released weights
    [
        ("llama3", "8B", 8_030_261_248),
        ("llama3", "70B", 70_553_706_496),
        ("llama3", "405B", 405_853_388_800),
        ("llama3", "8B_flex", 8_030_261_248),
        ("qwen3", "0.6B", 596_049_920),
        ("qwen3", "1.7B", 1_720_574_976),
        ("qwen3", "14B", 14_768_307_200),
        ("qwen3", "32B", 32_762_123_264),
        ("qwen3", "30B-A3B", 30_532_122_624),
        ("qwen3", "235B-A22B", 235_093_634_560),
        ("deepseek_v3", "16B", 15_706_484_224),
        ("deepseek_v3", "236B", 235_741_434_880),
        ("deepseek_v3", "671B", 671_026_404_352),
    ],
)
def test_a_flavor_of_torchtitan_has_the_published_parameters(name: str, flavor: str, right: int, plan_model: PlanModel) -> None:
    assert total(torchtitan(name, flavor), plan_model) == right


def test_kernels_of_torchtitan_that_are_not_modeled_are_noted() -> None:
    assert not any("kernel" in note for note in torchtitan("llama3", "8B").notes)
    assert "the attention kernel of flavor 8B_flex is not modeled; it is planned as 8B" in torchtitan("llama3", "8B_flex").notes
    kernels = [note.partition("'s own kernels")[0] for note in torchtitan("qwen3", "8B").notes if "own kernels are not modeled" in note]
    assert kernels == ["torchtitan"]  # not those of the program whose row it shares


def test_the_training_half_of_torchtitan_is_read() -> None:
    imported = torchtitan(
        "llama3", "8B", '[activation_checkpoint]\nmode = "full"\n[optimizer]\nname = "AdamW"\nimplementation = "foreach"\n'
    )
    assert imported.training == {
        "sequence_length": 8192, "batch_size": 1, "precision": "bf16-autocast", "recompute": "full", "optimizer": "adamw",
        "optimizer_kernel": "foreach", "implementation": "torchtitan",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "converter", "right"),
    [
        ("llama3", "quantize.linear.float8", {"float8": True, "device": "h100"}),
        ("llama3", "quantize.linear.mx", {}),
        ("qwen3", "float8", {}),  # its modules are not modeled
    ],
)
def test_float8_of_torchtitan_is_read(name: str, converter: str, right: dict[str, object]) -> None:
    imported = torchtitan(name, f'8B"\nconverters = ["{converter}"]\nhf_assets_path = "x')
    assert {key: imported.training[key] for key in ("float8", "device") if key in imported.training} == right
    assert any("is not modeled; matrix products" in note for note in imported.notes) == (not right)


@pytest.mark.parametrize(
    ("name", "given", "recompute", "noted"),
    [
        ("llama3", "", "full", False),  # by default every second layer
        ("llama3", 'mode = "none"', None, False),
        ("llama3", 'selective_ac_option = "op"', "selective", False),
        ("llama3", 'mode = "selective"\nselective_ac_option = "1"', "full", False),
        ("qwen3", 'mode = "selective"\nselective_ac_option = "op"', None, True),  # the operators of its modules are not modeled
        ("llama3", 'mode = "memory_budget"', None, True),
    ],
)
def test_the_recomputation_of_torchtitan_is_read(name: str, given: str, recompute: str | None, noted: bool) -> None:
    imported = torchtitan(name, "8B", f"[activation_checkpoint]\n{given}\n")
    assert imported.training.get("recompute") == recompute
    assert imported.training.get("recompute_every", 1) == (2 if not given else 1)
    assert any("`activation_checkpoint.mode: " in note and "is not modeled" in note for note in imported.notes) == noted


@pytest.mark.parametrize(
    ("config", "right"),  # of the released weights
    [
        (LLAMA3, 8_030_261_248),
        ({"dim": 4096, "multiple_of": 256, "n_heads": 32, "n_layers": 32, "norm_eps": 1e-6, "vocab_size": 32000}, 6_738_415_616),
        ({"dim": 8192, "multiple_of": 4096, "ffn_dim_multiplier": 1.3, "n_heads": 64, "n_kv_heads": 8, "n_layers": 80, "vocab_size": 32000},
         68_976_648_192),
        (MISTRAL, 7_241_732_096),
        (MISTRAL | {"moe": {"num_experts": 8, "num_experts_per_tok": 2}, "sliding_window": None}, 46_702_792_704),
        (MISTRAL | {"dim": 5120, "n_layers": 40, "vocab_size": 131072}, 12_247_782_400),  # Mistral NeMo
        (DEEPSEEK, 671_026_404_352),  # without the layer of multi-token prediction
        (DEEPSEEK | {
            "vocab_size": 102400, "dim": 2048, "inter_dim": 10944, "moe_inter_dim": 1408, "n_layers": 27, "n_dense_layers": 1,
            "n_heads": 16, "n_routed_experts": 64, "n_shared_experts": 2, "n_activated_experts": 6, "q_lora_rank": 0,
            "score_func": "softmax",
        }, 15_706_484_224),
    ],
    ids=["llama-3-8b", "llama-7b", "llama-2-70b", "mistral-7b", "mixtral", "mistral-nemo", "deepseek-v3", "deepseek-v2-lite"],
)  # fmt: skip
def test_released_weights_have_the_published_parameters(config: Config, right: int, plan_model: PlanModel) -> None:
    assert total(read(config, "params.json"), plan_model) == right


# train.py: n_layer, n_head, n_embd 12, 12, 768, bias False, 50,304 rows. GPT-2's 124,439,808 with 47 more rows of 768, and without biases:
# 2,304 + 768 + 3,072 + 768 and two norms of 768 in each of 12 layers, and one norm at the end.
def test_an_override_of_nanogpt_has_the_defaults_of_train_py(plan_model: PlanModel) -> None:
    overrides = "wandb_log = True\nbatch_size = 12\nblock_size = 1024\ngradient_accumulation_steps = 5 * 8\nmax_iters = 600000\n"
    imported = read_config(overrides, "train_gpt2.py")
    assert total(imported, plan_model) == 124_439_808 + 47 * 768 - 12 * (2304 + 768 + 3072 + 768 + 2 * 768) - 768
    assert imported.training["gradient_accumulation"] == 40
    finetune = "wandb_log = False\ninit_from = 'gpt2-xl'\nbatch_size = 1\ngradient_accumulation_steps = 32\nmax_iters = 20\n"
    assert total(read_config(finetune, "finetune_shakespeare.py"), plan_model) == 1_557_611_200  # GPT-2 XL as published
    characters = "eval_iters = 200\ndataset = 'shakespeare_char'\nblock_size = 256\nn_layer = 6\nn_head = 6\nn_embd = 384\n"
    # 65 characters; train.py prints 10.65 M without the table of positions.
    assert total(read_config(characters, "train_shakespeare_char.py"), plan_model) - 256 * 384 == 10_646_784


def test_yaml_in_braces_and_with_included_files_is_read(plan_model: PlanModel) -> None:
    """GPT-NeoX's files begin with a brace and have comments; levanter's include files of data."""
    small = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in (PYTHIA | NEOX).items())
    assert read_config(f"{{\n  # sizes\n  {small},\n}}", "70M.yml").model == read(NEOX).model
    text = "data: !include data/openwebtext_source.yaml\nmodel: {type: gpt2}\ntrainer: {mp: f32}\nvocab_size: 50257\n"
    assert total(read_config(text, "gpt2_small.yaml"), plan_model) == 124_439_808


def test_digits_in_groups_are_an_integer_and_give_the_training_tokens() -> None:
    """OLMo-1B's file has 739,328 steps of 2,048 sequences of 2,048 tokens, "3.1T tokens"."""
    sizes = "{d_model: 2048, n_heads: 16, n_layers: 16, mlp_ratio: 8, rope: true, max_sequence_length: 2048}"
    imported = read_config(f"model: {sizes}\nmax_duration: 739_328\nglobal_train_batch_size: 2048\n", "OLMo-1B.yaml")
    assert imported.training["tokens"] == 739_328 * 2048 * 2048


def test_a_duration_of_olmo_is_in_tokens_steps_or_epochs() -> None:
    """OLMo-7B's file says 2e12T, "2T tokens"; a duration in epochs depends on the data."""
    config = {"model": OLMO | {"d_model": 64, "n_heads": 2, "n_layers": 1}, "global_train_batch_size": 2160}
    assert read({**config, "max_duration": "2e12T"}).training["tokens"] == 2 * 10**12
    epochs = read({**config, "max_duration": "1ep"})
    assert "tokens" not in epochs.training
    assert any("`max_duration: '1ep'` is not planned" in note for note in epochs.notes)


# OLMo-core leaves out keys that are null, and OLMo's null takes the vocabulary's size and the biases of the other matrices.
def test_null_has_the_meaning_of_the_program(plan_model: PlanModel) -> None:
    config = olmo_core(64, 2, 64, {"n_heads": 2, "bias": None, "gate": None})
    assert read(config).model["attention"]["bias"] is True
    model = OLMO | {"d_model": 64, "n_heads": 2, "n_layers": 1, "mlp_hidden_size": 128, "embedding_size": None, "vocab_size": 100,
                    "layer_norm_with_affine": True, "bias_for_layer_norm": None, "include_bias": True}  # fmt: skip
    # a table of 100·64; four square matrices and two of 128·64, one of 64·64, with biases; three norms with weight and bias
    right = 100 * 64 + 4 * (64 * 64 + 64) + (128 * 64 + 128) + (64 * 64 + 64) + 3 * 2 * 64
    assert total(read({"model": model}), plan_model) == right
