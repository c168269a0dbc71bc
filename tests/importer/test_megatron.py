"""Megatron-LM's files as people have them: shell scripts, YAML, start-up lists. Totals are published or counted by hand."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from planner.capacity.figures import Plan
from planner.importer.reader import Imported, UnsupportedConfigError
from planner.importer.recognize import read_config
from tests.work import at_most

PlanModel = Callable[..., Plan]

# The forms of NVIDIA's examples: arrays with comments, branches, defaults, arithmetic, options in one pair of quotation marks.
LLAMA3 = """\
#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}
CHECKPOINT_PATH=${1:-"checkpoints/llama3_8b"}
TOKENIZER_ARG=${2:-"MOCK"} # a path, or "MOCK"
mkdir -p "$(dirname "$CHECKPOINT_PATH")"
GPUS_PER_NODE=8
NUM_NODES=2
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
SCRIPT="pretrain_gpt.py"
NUM_LAYERS=32
DTYPE="fp8"
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
)
MODEL_ARGS=(
    --num-layers $NUM_LAYERS
    --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
    --group-query-attention --num-query-groups 8 --kv-channels 128
    --seq-length 8192 --max-position-embeddings 8192
    --position-embedding-type rope
    --attention-dropout 0.0 --hidden-dropout 0.0
    --swiglu --normalization RMSNorm # RMSNorm has no bias
    # --qk-layernorm
    --untie-embeddings-and-output-weights
    --disable-bias-linear
)
TRAINING_ARGS=(
    --micro-batch-size 1 --global-batch-size 128 --train-samples 1000
    --bf16 --grad-reduce-in-bf16
)
DTYPE_ARGS=()
if [[ "$DTYPE" == "fp8" ]]; then
    DTYPE_ARGS+=(
        "--fp8-format hybrid"
    )
fi
DATA_ARGS=()
if [[ "$TOKENIZER_ARG" == "MOCK" ]] || [[ -z "$TOKENIZER_ARG" ]]; then
    DATA_ARGS+=("--mock-data" "--vocab-size 128256" "--split '99,1,0'")
else
    DATA_ARGS+=("--vocab-size 32000")
fi
if [ -n "${WANDB_API_KEY}" ]; then
    DATA_ARGS+=(--wandb-project ${WANDB_PROJECT:-"Llama"})
fi
TRAINING_ARGS+=("${DATA_ARGS[@]}")
if [ ! -f "$SCRIPT" ]; then
    echo "Error: $SCRIPT not found"
    exit 1
fi
torchrun ${DISTRIBUTED_ARGS[@]} \\
    "$SCRIPT" \\
    ${MODEL_ARGS[@]} \\
    ${TRAINING_ARGS[@]} \\
    ${DTYPE_ARGS[@]}
"""
GPT3 = """\
NUM_NODES=1
GPT_MODEL_ARGS=(
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96
    --seq-length 2048
    --max-position-embeddings 2048
)
torchrun --nproc_per_node 8 pretrain_gpt.py ${GPT_MODEL_ARGS[@]} --micro-batch-size 1 --global-batch-size 1536 --train-iters 500000 \\
    --fp16 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16 --vocab-file $1 --save $CHECKPOINT_PATH $EXTRA_ARGS
"""
# The form of BigScience's: options in quoted variables inside others, a here-document, a command in a text that a shell runs.
BLOOM = """\
#!/bin/bash
#SBATCH --nodes=24
source $HOME/start
NHIDDEN=14336
NLAYERS=70
SEQ_LEN=2048
OPTIMIZER_ARGS=" \\
    --optimizer adam \\
    --adam-beta1 0.9 \\
    "
GPT_ARGS=" \\
    --pp-partition-method 'type:transformer|embedding' \\
    --num-layers $NLAYERS \\
    --hidden-size $NHIDDEN \\
    --num-attention-heads 112 \\
    --seq-length $SEQ_LEN \\
    --max-position-embeddings $SEQ_LEN \\
    --micro-batch-size 2 \\
    --rampup-batch-size 192 16 9_765_625 \\
    --global-batch-size 2048 \\
    --train-samples 220_000_000 \\
    --embed-layernorm \\
    --bf16 \\
    --position-embedding-type alibi \\
    --checkpoint-activations \\
    --pad-vocab-size-to 250880 \\
    $OPTIMIZER_ARGS \\
    "
config_json="./ds_config.$SLURM_JOB_ID.json"
cat <<EOT > $config_json
{"train_micro_batch_size_per_gpu": 2, "it's": "not closed}
EOT
export LAUNCHER="python -u -m torch.distributed.run --nproc_per_node 8 --nnodes $SLURM_NNODES"
export CMD=" \\
    `pwd`/pretrain_gpt.py \\
    --tensor-model-parallel-size 4 \\
    $GPT_ARGS \\
    --deepspeed_config ${config_json} \\
    "
echo $CMD
clear; srun --wait=60 bash -c '$LAUNCHER --node_rank $SLURM_PROCID $CMD' 2>&1 | tee -a log.txt
"""
# The form of Pai-Megatron-Patch's: sizes by branches on an argument.
SIZES = """\
MODEL_SIZE=$1
if [ $MODEL_SIZE = 0.6B ]; then
    NUM_LAYERS=28
    HIDDEN_SIZE=1024
elif [ $MODEL_SIZE = 1.7B ]; then
    NUM_LAYERS=28
    HIDDEN_SIZE=2048
fi
case $MODEL_SIZE in
    *B) moe_options="" ;;
esac
run_cmd="torchrun pretrain_gpt.py --num-layers ${NUM_LAYERS} --hidden-size ${HIDDEN_SIZE} --num-attention-heads 16 --seq-length 8 \\
  --max-position-embeddings 8 --vocab-size 1024 ${moe_options}"
echo ${run_cmd}
eval ${run_cmd}
"""
DEEPSEEK = """\
pretrain_gpt.py --num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 --max-position-embeddings 4096 \\
  --seq-length 4096 --normalization RMSNorm --swiglu --disable-bias-linear --untie-embeddings-and-output-weights --vocab-size 129280 \\
  --multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128 \\
  --num-experts 256 --moe-router-topk 8 --moe-ffn-hidden-size 2048 --moe-shared-expert-intermediate-size 2048 \\
  --moe-router-score-function sigmoid --moe-router-enable-expert-bias --moe-layer-freq "([0]*3+[1]*58)" --qk-layernorm \\
  --position-embedding-type rope --make-vocab-size-divisible-by 1280 --bf16
"""
GPT_OSS = """\
--num-layers 24 --hidden-size 2880 --ffn-hidden-size 2880 --num-attention-heads 64 --group-query-attention --num-query-groups 8
--kv-channels 64 --num-experts 32 --moe-router-topk 4 --max-position-embeddings 40960 --seq-length 4096 --padded-vocab-size 201088
--position-embedding-type rope --normalization RMSNorm --untie-embeddings-and-output-weights --quick-geglu --glu-linear-offset 1.0
--softmax-type learnable --window-attn-skip-freq 2 --window-size 127,0 --bf16
"""
MIXTRAL = """\
ENV_VARS:
  NVTE_FUSED_ATTN: 1
MODEL_ARGS:
  --num-layers: 32
  --hidden-size: 4096
  --ffn-hidden-size: 14336
  --num-attention-heads: 32
  --group-query-attention: true
  --num-query-groups: 8
  --seq-length: 4096
  --max-position-embeddings: 32768
  --position-embedding-type: rope
  --no-position-embedding: true
  --normalization: RMSNorm
  --swiglu: true
  --disable-bias-linear: true
  --untie-embeddings-and-output-weights: true
  --num-experts: 8
  --moe-router-topk: 2
  --moe-grouped-gemm: true
  --qk-layernorm: false
  --data-path: ${DATA_PATH}/text
"""
CORE = """\
micro_batch_size: 4
seq_length: 1024
max_position_embeddings: 1024
padded_vocab_size: 50304
model_parallel: {tensor_model_parallel_size: 1, bf16: true}
language_model:
  {num_layers: 12, hidden_size: 768, num_attention_heads: 12, activation_func: gelu, hidden_dropout: 0.1, attention_dropout: 0.1}
"""
PRINTED = """\
[default0]:2024-05-01 10:00:00,123 using world size: 16, data-parallel size: 4
{0}------------------------ arguments ------------------------
{0}  bf16 ............................................ True
{0}  data_parallel_size .............................. 4
{0}  global_batch_size ............................... 64
{0}  group_query_attention ........................... False
{0}  hidden_size ..................................... 768
{0}  max_position_embeddings ......................... 1024
{0}  micro_batch_size ................................ 4
{0}  num_attention_heads ............................. 12
{0}  num_layers ...................................... 12
{0}  num_query_groups ................................ 1
{0}  padded_vocab_size ............................... 50304
{0}  params_dtype .................................... torch.bfloat16
{0}  retro_add_retriever ............................. False
{0}  seq_length ...................................... 1024
{0}  tensor_model_parallel_size ...................... 4
{0}-------------------- end of arguments ---------------------
{0}  hidden_size ..................................... of another list
"""
# A layer has 4·512² + 3·512·1024 weights and two norms; 1,000 tokens are padded to 1,024.
SMALL = (
    "--num-layers 2 --hidden-size 512 --num-attention-heads 8 --seq-length 128 --max-position-embeddings 128 --vocab-size 1000 "
    "--position-embedding-type rope --swiglu --ffn-hidden-size 1024 --disable-bias-linear --normalization RMSNorm "
)
SMALL_TOTAL = 1024 * 512 + 2 * (4 * 512**2 + 3 * 512 * 1024 + 2 * 512) + 512


def total(imported: Imported, plan_model: PlanModel) -> int:
    return plan_model(imported.model, **imported.training).parameters.total


@pytest.mark.parametrize(
    ("text", "file", "assignments", "right"),
    [
        (LLAMA3, "train.sh", (), 8_030_261_248),  # as published
        # Narayanan et al. 2021 (arXiv:2104.04473), equation 2, which is 174.6 B: 12·l·h²·(1 + 13/12h + (V + s)/12lh), and the last norm.
        (GPT3, "train.sh", ("vocab_size=50257",), 96 * (12 * 12288**2 + 13 * 12288) + (51200 + 2048) * 12288 + 2 * 12288),
        (BLOOM, "tr11.slurm", (), 176_247_271_424),  # as published
        (DEEPSEEK, "run.sh", (), 671_026_404_352),  # as published
        (GPT_OSS, "args.txt", (), 20_914_757_184),  # as published
        (MIXTRAL, "model_config.yaml", ("vocab_size=32000",), 46_702_792_704),  # as published
        (CORE, "gpt.yaml", (), 124_439_808 + 47 * 768),  # GPT-2 as published, with a padded vocabulary
        (PRINTED.format(""), "log.txt", (), 124_439_808 + 47 * 768),
        (PRINTED.format("[rank0]: "), "log.txt", (), 124_439_808 + 47 * 768),
        (PRINTED.format("0: 2024-05-01 10:00:00,123 INFO:root:"), "log.txt", (), 124_439_808 + 47 * 768),
        (SMALL + "--softmax-type learnable", "args.txt", (), SMALL_TOTAL + 2 * 8),  # a score per head
        (SMALL + "--attention-output-gate", "args.txt", (), SMALL_TOTAL + 2 * 512**2),  # as wide as the queries
        (SMALL + "--num-query-groups 2", "args.txt", (), SMALL_TOTAL),  # one group per head without --group-query-attention
        (SMALL + "--qk-layernorm", "args.txt", (), SMALL_TOTAL + 2 * 2 * 64),
        (SIZES, "run.sh", ("num_layers=28", "hidden_size=1024"), 28 * (12 * 1024**2 + 13 * 1024) + (1024 + 8) * 1024 + 2 * 1024),
    ],
    ids=[
        "llama-3", "gpt-3", "bloom", "deepseek-v3", "gpt-oss", "mixtral", "core", "printed", "printed-by-rank", "printed-in-log", "sinks",
        "gate", "groups", "qk-norm", "branches",
    ],
)  # fmt: skip
def test_a_file_has_the_known_parameters(text: str, file: str, assignments: tuple[str, ...], right: int, plan_model: PlanModel) -> None:
    assert total(read_config(text, file, assignments), plan_model) == right


def test_a_script_is_trained_as_it_says() -> None:
    imported = read_config(LLAMA3, "train.sh")
    assert imported.training == {
        # 16 GPUs: 128 / (1 · 16) passes; 1,000 samples of 8,192 tokens
        "batch_size": 1, "sequence_length": 8192, "gradient_accumulation": 8, "tokens": 8_192_000, "precision": "bf16-master",
        "gradient_dtype": "bf16", "optimizer": "adamw", "implementation": "megatron-core", "float8": True, "device": "h100",
    }  # fmt: skip
    assert imported.omits == ()
    blockwise = read_config(LLAMA3.replace("--fp8-format hybrid", "--fp8-format hybrid --fp8-recipe blockwise"), "train.sh")
    assert blockwise.omits == ("fp8_format hybrid: bytes are those without it",)
    assert "float8" not in blockwise.training


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        ("", {"implementation": "megatron-core"}),
        (
            "--transformer-impl transformer_engine --attention-backend fused",
            {"implementation": "megatron-core", "attention_kernel": "cudnn"},
        ),
        ("--use-flash-attn", {"implementation": "megatron-core", "attention_kernel": "flash"}),
        (
            "--no-gradient-accumulation-fusion --no-create-attention-mask-in-dataloader",
            {"implementation": "megatron-core", "gradient_accumulation_fusion": False, "mask_in_data_loader": False},
        ),
        (
            "--recompute-granularity selective --recompute-modules moe_act shared_experts",
            {"implementation": "megatron-core", "recompute_modules": {"core_attn": False, "shared_experts": True, "moe_act": True}},
        ),
        ("--transformer-impl local --no-gradient-accumulation-fusion", {"implementation": "megatron"}),
        ("--deepspeed --use-flash-attn", {"implementation": "megatron"}),
    ],
)
def test_the_stack_is_that_of_the_arguments(arguments: str, right: dict[str, object]) -> None:
    found = read_config(f"pretrain_gpt.py {SMALL} {arguments}", "x.sh").training
    names = ("implementation", "attention_kernel", "gradient_accumulation_fusion", "mask_in_data_loader", "recompute_modules")
    assert {name: found[name] for name in names if name in found} == right


def test_a_printed_list_states_the_replicas() -> None:
    # 64 / (4 · 4) passes
    right = {"batch_size": 4, "gradient_accumulation": 4, "precision": "bf16-master", "dropout": 0.1}
    imported = read_config(PRINTED.format(""), "log.txt")
    assert {key: imported.training[key] for key in right} == right
    assert imported.omits == ("layout over devices (tensor_model_parallel_size 4): figures are for the whole model on one device",)


@pytest.mark.parametrize("form", ["([1]+[0]*2)*2", "[1,0,0,1,0,0]", "3"])
def test_layers_with_experts_are_listed_in_several_forms(form: str) -> None:
    arguments = f"{SMALL} --num-layers 6 --num-experts 4 --moe-layer-freq '{form}'".replace("--num-layers 2 ", "")
    layers = read_config(f"pretrain_gpt.py {arguments}", "x.sh").model["layers"]
    assert next(run for run in layers if "layers" in run)["count"] == 2


def test_lines_may_end_as_on_windows_and_have_comments() -> None:
    assert read_config(LLAMA3.replace("\n", "\r\n"), "x.sh") == read_config(LLAMA3, "x.sh")
    assert read_config(SMALL.replace("--swiglu", "\\\n# --bf16\n--swiglu"), "x").model == read_config(SMALL, "x").model


def test_what_the_file_does_not_state_is_noted() -> None:
    imported = read_config(GPT3, "x.sh", ["vocab_size=50257"])
    notes = "\n".join(imported.notes)
    # 8 GPUs are fewer than the 8 · 16 of one model.
    assert "gradient accumulation is 1536 / (1 · replicas), and the file does not state the number of replicas" in notes
    layout = "tensor_model_parallel_size 8, pipeline_model_parallel_size 16"
    assert imported.omits == (f"layout over devices ({layout}): figures are for the whole model on one device",)
    assert "not set in the file, so read as nothing: $EXTRA_ARGS" in notes


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        ("", {"precision": "fp32", "optimizer": "adamw", "dropout": 0.1}),
        ("--fp16 --recompute-activations", {"precision": "fp16-master", "recompute": "selective"}),
        ("--fp16 --accumulate-allreduce-grads-in-fp32", {"precision": "fp16-master", "gradient_dtype": "fp32"}),
        ("--bf16 --main-grads-dtype bf16", {"precision": "bf16-master", "gradient_dtype": "bf16"}),
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1", {"recompute": "full"}),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 2", {"recompute": "full"}),
        ("--activations-checkpoint-method uniform", {"recompute": "full"}),
        ("--optimizer sgd", {"optimizer": "sgd-momentum"}),
        ("--optimizer sgd --sgd-momentum 0.0", {"optimizer": "sgd"}),
        ("--optimizer muon --num-experts 8", {"optimizer": "muon", "muon_experts": "each"}),
        ("--attention-dropout 0 --hidden-dropout 0", {"dropout": None}),
        ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl te", {"cross_entropy_fusion": "te"}),
        ("--cross-entropy-loss-fusion", {"cross_entropy_fusion": "native"}),
        ("--micro-batch-size 2 --global-batch-size 12", {"gradient_accumulation": None}),
        ("--train-iters 10 --global-batch-size 12", {"tokens": 10 * 12 * 128}),
    ],
)
def test_a_training_argument_becomes_its_setting(arguments: str, right: dict[str, object], plan_model: PlanModel) -> None:
    imported = read_config(f"{SMALL} {arguments}", "args.txt")
    assert {key: imported.training.get(key) for key in right} == right
    plan_model(imported.model, **imported.training)


@pytest.mark.parametrize(
    ("text", "file", "message"),
    [
        (SIZES, "x.sh", "`--num-layers $NUM_LAYERS`: NUM_LAYERS depends on `if [ $MODEL_SIZE = 0.6B ]`; give it with --set num_layers=…"),
        (SIZES.replace("${HIDDEN_SIZE}", "$HIDDEN"), "x.sh", "--set num_layers=… --set hidden_size=…"),
        (GPT3.replace("12288", "$(cat width)"), "x.sh", "`--hidden-size $(cat width)`: $(cat width) is a command"),
        (GPT3.replace("12288", "$HIDDEN"), "x.sh", "$HIDDEN`: HIDDEN is not set in the file; give it with --set hidden_size=…"),
        (GPT3.replace("12288", "$(cat\n\x1b a)"), "x.sh", "`--hidden-size $(cat a)`: $(cat a) is a command"),
        (GPT3.replace("12288", "$1"), "x.sh", "$1 is an argument of the script"),
        (GPT3.replace("$EXTRA_ARGS", "$(cat extra)"), "x.sh", "the arguments in `$(cat extra)` are not known"),
        (GPT3 + "torchrun pretrain_gpt.py --num-layers 3 --hidden-size 4\n", "x.sh", "calls several programs with different arguments"),
        (GPT3.replace("_gpt.py", "_mamba.py"), "x.sh", "this looks like arguments of Megatron-LM's pretrain_mamba.py"),
        (GPT3.replace("_gpt.py", "_vlm.py"), "x.sh", "this looks like arguments of Megatron-LM's pretrain_vlm.py"),
        (GPT3 + "echo 'never closed", "x.sh", "line 11: ' is not closed"),
        (GPT3 + "X=" + "$(" * 100, "x.sh", "nested too deeply"),
        (DEEPSEEK.replace("--qk-layernorm", ""), "x.sh", "`multi_latent_attention` without `qk_layernorm`"),
        (SMALL + "--recompute-granularity full --recompute-method block --recompute-num-layers 1", "x", "--set recompute_granularity=null"),
        (SMALL + "--recompute-granularity selective --recompute-modules layernorm", "x", "supported: core_attn, mlp, moe, shared_experts"),
        (SMALL + "--new-gate-size 3", "x", "unsupported key `new_gate_size: 3`, which may change the parameter count"),
        (SMALL + "--exp-avg-dtype fp8", "x", "`exp_avg_dtype: 'fp8'` is not supported"),
        (SMALL + "--bf16 --fp16", "x", "exclude each other"),
        (PRINTED.format("").replace("bf16 ..", "seq_length .. 2048\n  bf16 .."), "log.txt", "`seq_length` is printed with several values"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_by_name(text: str, file: str, message: str) -> None:
    with pytest.raises(UnsupportedConfigError) as refused:
        read_config(text, file)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_foreign_argument_that_suggests_no_part_of_the_model_is_listed() -> None:
    assert read_config(f"{SMALL} --use-fast-loader 3", "args.txt").not_understood == ("use_fast_loader",)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("vocab_sise=3", "unknown key of Megatron-LM configurations; did you mean vocab_size?"),
        ("vocab_size", "expected KEY=VALUE"),
        ("model.vocab_size=3", "the file has no section `model`"),
        ("hidden_size=wide", "`hidden_size: 'wide'` is not a positive integer"),
    ],
)
def test_a_wrong_assignment_is_refused(assignment: str, message: str) -> None:
    with pytest.raises(UnsupportedConfigError) as refused:
        read_config(SMALL, "args.txt", [assignment])
    assert message in str(refused.value)


def test_a_key_can_be_set_in_sections_of_any_file() -> None:
    text = {"model_type": "llama", "vocab_size": 9, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    text |= {"num_attention_heads": 4, "max_position_embeddings": 8}
    composite = json.dumps({"model_type": "llava", "text_config": text, "vision_config": {"hidden_size": 32}})
    imported = read_config(composite, "config.json", ["text_config.hidden_size=128", "vocab_size=100"])
    assert (imported.model["d_model"], imported.model["vocab_size"]) == (128, 100)
    with pytest.raises(UnsupportedConfigError, match=r"as text_config.hidden_size and vision_config.hidden_size; name the section"):
        read_config(composite, "config.json", ["hidden_size=128"])


def test_an_assignment_overrides_the_file_and_is_noted() -> None:
    imported = read_config(MIXTRAL, "x.yaml", ["hidden_size=2048", "vocab_size=32000"])
    assert imported.model["d_model"] == 2048
    assert "`hidden_size` is 2048 as set, not 4096 as in the file" in imported.notes
    with pytest.raises(UnsupportedConfigError, match="is given twice: 1 and 2"):
        read_config(SMALL, "args.txt", ["vocab_size=1", "vocab_size=2"])


@pytest.mark.parametrize(
    "text",
    [
        "A=1\n" * 5_000,
        "A=$A$A$A\n" * 5_000,
        'A="$A x"\n' * 5_000,
        "if x; then A=$A$B; fi\n" * 1_000,
        "A=x\n" + 'if x; then A="$A y"; fi\n' * 500 + "p.py --a $A\n",
        "case $1 in " + "".join(f"{number}) A{number}=1;; " for number in range(2_000)) + "esac\n",
        "f() { f; f; }\nf\n",
        "cat <<EOF\n" * 2_000,
        "p.py --x " * 5_000,
        "eval \"eval '\n" * 300,
        "${" * 2_000,
        "a\\\n" * 10_000,
        "((" * 3_000,
        "[[ " + "a && " * 3_000 + "]]\n",
        "A=$((" + "1+" * 3_000 + "1))\n",
        "A=(" * 3_000,
        "f() { g --a $1; }\n" + "".join(f"f {number}\n" for number in range(3_000)),
    ],
    ids=range(17),
)
def test_a_hostile_script_takes_few_calls(text: str) -> None:
    with at_most(5 * 2**20), pytest.raises(UnsupportedConfigError):
        read_config(text, "x.sh")
