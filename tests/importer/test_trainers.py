"""Configurations of Megatron-LM, LitGPT and nanoGPT have the published parameter counts."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from planner.capacity.figures import Plan
from planner.importer.reader import Imported, UnsupportedConfigError
from planner.importer.recognize import read_config
from tests.work import at_most

PlanModel = Callable[..., Plan]

# Megatron-LM's example for Llama 3 8B (examples/llama/train_llama3_8b_fp8.sh), plus the vocabulary.
LLAMA3 = """\
torchrun --nproc_per_node 8 pretrain_gpt.py \\
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \\
    --group-query-attention --num-query-groups 8 --kv-channels 128 --seq-length 8192 --max-position-embeddings 8192 \\
    --position-embedding-type rope --rotary-base 1000000 --rotary-percent 1.0 --attention-dropout 0.0 --hidden-dropout 0.0 \\
    --swiglu --normalization=RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights --vocab-size 128256 \\
    --micro-batch-size 1 --global-batch-size 128 --bf16 --recompute-granularity full
"""
GPT2_PRINTED = """\
------------------------ arguments ------------------------
  hidden_size ..................................... 768
  max_position_embeddings ......................... 1024
  num_attention_heads ............................. 12
  num_layers ...................................... 12
  openai_gelu ..................................... True
  padded_vocab_size ............................... 50304
  swiglu .......................................... False
  window_size ..................................... None
-------------------- end of arguments ---------------------
"""
MIXTRAL = """\
num_layers: 32
hidden_size: 4096
ffn_hidden_size: 14336
num_attention_heads: 32
num_query_groups: 8
max_position_embeddings: 32768
position_embedding_type: rope
normalization: RMSNorm
swiglu: true
add_bias_linear: false
untie_embeddings_and_output_weights: true
padded_vocab_size: 32000
num_experts: 8
moe_router_topk: 2
"""
DEEPSEEK = {
    "num_layers": 61, "hidden_size": 7168, "ffn_hidden_size": 18432, "num_attention_heads": 128, "max_position_embeddings": 4096,
    "normalization": "RMSNorm", "swiglu": True, "add_bias_linear": False, "untie_embeddings_and_output_weights": True,
    "padded_vocab_size": 129280, "multi_latent_attention": True, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_head_dim": 128,
    "qk_pos_emb_head_dim": 64, "v_head_dim": 128, "num_experts": 256, "moe_router_topk": 8, "moe_ffn_hidden_size": 2048,
    "moe_shared_expert_intermediate_size": 2048, "moe_router_score_function": "sigmoid", "moe_router_enable_expert_bias": True,
    "moe_layer_freq": "([0]*3+[1]*58)", "rotary_base": 10000,
}  # fmt: skip
LITGPT_PYTHIA = """\
name: pythia-160m
block_size: 2048
n_layer: 12
n_embd: 768
n_head: 12
padding_multiple: 128
vocab_size: 50254
mlp_class_name: GptNeoxMLP
norm_class_name: LayerNorm
rotary_percentage: 0.25
parallel_residual: true
bias: true
"""
NANOGPT = """\
# train_gpt2.py
n_layer = 12
n_head = 12
n_embd = 768
block_size = 1024
bias = True
vocab_size = 50257
batch_size = 12
wandb_run_name = 'gpt2-' + str(124)
"""
SMALL = """\
--num-layers 2 --hidden-size 512 --num-attention-heads 8 --seq-length 128 --max-position-embeddings 256 --vocab-size 1000
--position-embedding-type rope --swiglu --ffn-hidden-size 1024 --disable-bias-linear --normalization RMSNorm --num-query-groups 2
"""


def total(imported: Imported, plan_model: PlanModel) -> int:
    return plan_model(imported.model, **imported.training).parameters.total


@pytest.mark.parametrize(
    ("text", "file", "right"),
    [
        (LLAMA3, "run.sh", 8_030_261_248),  # as published
        (GPT2_PRINTED, "log.txt", 124_439_808 + (50304 - 50257) * 768),
        (MIXTRAL, "mixtral.yaml", 46_702_792_704),  # as published
        (json.dumps(DEEPSEEK), "args.json", 671_026_404_352),  # as published
        (LITGPT_PYTHIA, "model_config.yaml", 162_322_944),  # as published, EleutherAI/pythia-160m
        (NANOGPT, "train_gpt2.py", 124_439_808),  # as published, and printed by nanoGPT
    ],
    ids=["megatron-command", "megatron-printed", "megatron-experts", "megatron-latent", "litgpt", "nanogpt"],
)
def test_a_configuration_of_a_trainer_has_the_published_parameters(text: str, file: str, right: int, plan_model: PlanModel) -> None:
    assert total(read_config(text, file), plan_model) == right


def test_training_settings_are_read_from_megatron() -> None:
    imported = read_config(LLAMA3, "run.sh")
    # One node of 8 GPUs: 128 / (1 · 8) passes. Adam's weight decay is decoupled (decoupled_weight_decay is true by default).
    assert imported.training == {
        "batch_size": 1, "sequence_length": 8192, "gradient_accumulation": 16, "precision": "bf16-master", "optimizer": "adamw",
        "recompute": "full", "implementation": "megatron-core",
    }  # fmt: skip
    assert imported.not_understood == ()


# A layer has 4·512² weights in attention, 3·512·1024 in the feed-forward and 2·512 in norms; 1,000 tokens are padded to 1,024.
def test_megatron_drops_the_groups_of_queries_without_its_switch(plan_model: PlanModel) -> None:
    assert total(read_config(SMALL, "args.txt"), plan_model) == 1024 * 512 + 2 * (4 * 512**2 + 3 * 512 * 1024 + 2 * 512) + 512
    grouped = read_config(f"{SMALL} --group-query-attention", "args.txt")
    assert grouped.model["n_kv_heads"] == 2


def test_a_quotation_mark_around_arguments_is_no_part_of_them() -> None:
    assert read_config(f'ARGS="{SMALL}"', "args.sh").model == read_config(SMALL, "args.txt").model


def test_megatron_may_train_on_shorter_sequences_than_it_has_positions() -> None:
    imported = read_config(SMALL, "args.txt")
    assert (imported.model["context_length"], imported.training["sequence_length"]) == (256, 128)


def test_megatron_pads_the_vocabulary_per_rank() -> None:
    imported = read_config(LLAMA3.replace("128256", "50257") + " --tensor-model-parallel-size 4", "run.sh")
    assert imported.model["pad_vocab_to_multiple_of"] == 512


@pytest.mark.parametrize(
    ("text", "file", "message"),
    [
        (LLAMA3.replace("--vocab-size 128256", ""), "run.sh", "`vocab_size` or `padded_vocab_size` is missing"),
        (LLAMA3 + " --window-size 128", "run.sh", "`window_size: 128` is not a number of tokens before and 0 after"),
        (LLAMA3 + " --softmax-type off-by-one", "run.sh", "`softmax_type: 'off-by-one'` is not supported; supported: vanilla, learnable"),
        (LLAMA3.replace("--disable-bias-linear", "--attention-output-gate"), "run.sh", "`attention_output_gate` with biases"),
        (LLAMA3 + " --hybrid-layer-pattern M*M-", "run.sh", "`hybrid_layer_pattern: 'M*M-'` is not supported"),
        (LLAMA3 + " --heterogeneous-layers-config-path x.json", "run.sh", "`heterogeneous_layers_config_path: 'x.json'`"),
        (LLAMA3 + " --spec a.b c", "run.sh", "`spec: ['a.b', 'c']` is not supported"),
        (LLAMA3 + " --tokenizer-type BertWordPieceLowerCase", "run.sh", "`tokenizer_type: 'BertWordPieceLowerCase'` is not supported"),
        (LLAMA3.replace("pretrain_gpt", "pretrain_bert"), "run.sh", "this looks like arguments of Megatron-LM's pretrain_bert.py"),
        (json.dumps(DEEPSEEK | {"moe_layer_freq": "__import__('os')"}), "args.json", "is not a list such as"),
        (json.dumps(DEEPSEEK | {"moe_router_topk": 300}), "args.json", "more than the 256 experts"),
        (LITGPT_PYTHIA.replace("GptNeoxMLP", "OtherMLP"), "x.yaml", "`mlp_class_name: 'OtherMLP'` is not supported"),
        (NANOGPT.replace("bias = True", ""), "x.py", "`bias` is missing"),
        (NANOGPT.replace("n_embd = 768", "n_embd = 'wide'"), "x.py", "`n_embd: 'wide'` is not a positive integer"),
        ("def", "x.py", "invalid Python"),
        ("n_layer = " + "-" * 200_000 + "1", "x.py", "invalid Python: the expressions are nested too deeply"),
        ("{", "config.json", "(the file seems to be cut off)"),
        ('{"model_type": "llam', "config.json", "(the file seems to be cut off)"),
        ('{"model_type": "llama", "vocab_size": 3, "vocab_size": 5}', "config.json", "duplicate key `vocab_size`"),
        ('{"a": ' + "[" * 100_000, "config.json", "nested too deeply"),
        ('{"hidden_size": ' + "9" * 5000 + "}", "config.json", "invalid JSON"),
        ("", "config.json", "the file is empty"),
        ("a\0b", "config.json", "the file is binary"),
        ("[1, 2]", "config.json", "expected a mapping of keys to values, got a list"),
        ("hello", "notes.txt", "expected a mapping of keys to values, got a string"),
        ('{"layers": 3}', "config.json", "unrecognized configuration"),
        ("name: x\nmodel: {n_layers: 3}\n", "x.yaml", "is it already a spec?"),
    ],
)
def test_an_invalid_configuration_is_reported_in_one_line(text: str, file: str, message: str) -> None:
    with pytest.raises(UnsupportedConfigError) as refused:
        read_config(text, file)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "\n" * 2**20 + "x",
        "a .. " + " " * 2**20 + "x\ny",
        "{" + ",".join(f'"{number}":1' for number in range(80_000)) + ', "79999": 1}',
        json.dumps({**DEEPSEEK, "moe_layer_freq": "+".join(["[0]*999999999"] * 60_000)}),
        json.dumps({**DEEPSEEK, "moe_layer_freq": "1" * 5_000}),
    ],
    ids=["lines", "spaces", "keys", "list", "digits"],
)
def test_a_long_text_takes_few_calls(text: str) -> None:
    """A search that restarts at each character would not end: 2^20 squared steps."""
    with at_most(20 * 2**20), pytest.raises(UnsupportedConfigError):
        read_config(text, "x.txt")
