"""How a model answers requests."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

from planner.spec.key import group, key, record

ServingEngine = Literal["transformers", "vllm", "sglang", "tensorrt-llm", "llama.cpp"]
ServedWeights = Literal[
    "bf16",
    "fp16",
    "fp32",
    "fp8",
    "fp8-blocks",
    "int8",
    "nf4",
    "nf4-double",
    "gptq",
    "awq",
    "mxfp4",
    "q8_0",
    "q6_k",
    "q5_k_m",
    "q5_k_s",
    "q5_1",
    "q5_0",
    "q4_k_m",
    "q4_k_s",
    "q4_1",
    "q4_0",
    "q3_k_s",
]
PLAIN_WEIGHTS = ("bf16", "fp16", "fp32")
OF_LLAMA_CPP = ("q8_0", "q6_k", "q5_k_m", "q5_k_s", "q5_1", "q5_0", "q4_k_m", "q4_k_s", "q4_1", "q4_0", "q3_k_s")
"""Types of GGUF files."""
ServedAttention = Literal["sdpa", "eager"]
CacheType = Literal["dynamic", "static"]
CacheDtype = Literal["bf16", "fp16", "fp32", "fp8", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]
_TRANSFORMERS = "engine: transformers"
_OTHERS = "engine: vllm or sglang or tensorrt-llm or llama.cpp"


# A table, in which a key takes a line or two.
# fmt: off

@record
class Cache:
    """What is kept of earlier tokens: keys and values, or latents."""

    type: CacheType = key("Of transformers: it grows with the tokens (dynamic), or has room for all from the start (static).",
        default="dynamic", only=_TRANSFORMERS, aliases="cache_implementation")
    room: int | None = key("Tokens of each sequence for which a static cache has room.", "tokens", default=None,
        derived="prompt + output", quiet=True, aliases="max_cache_len")
    dtype: CacheDtype | None = key("Type of its elements. q8_0 and the others are blocks of llama.cpp.", default=None,
        derived="that of the weights, bf16 of packed ones", only=_OTHERS, aliases="kv_cache_dtype cache_type cache_type_k")
    block: int | None = key("Tokens of a block. Each sequence has whole ones.", "tokens", default=None,
        derived="16 of vllm, 1 of sglang, 32 of tensorrt-llm, 256 of llama.cpp", only=_OTHERS,
        aliases="page_size tokens_per_block")


@record
class Serving:
    """How the model answers requests: planner serve computes its memory and FLOPs."""

    engine: ServingEngine = key("Program that runs the model. Passes are modeled as transformers runs them, caches of every engine.",
        default="transformers", values={"transformers": "hf", "tensorrt-llm": "trtllm", "llama.cpp": "llamacpp llama_cpp"})
    batch_size: int = key("Sequences at once.", "sequences", default=1, aliases="users concurrency max_num_seqs max_batch_size n_parallel")
    prompt: int = key("Tokens of each prompt.", "tokens", derived="context_length - output", example=2048, kw_only=True,
        aliases="input_length isl prompt_length")
    output: int = key("Tokens that each sequence decodes after its prompt, each in a pass of its own.", "tokens", default=1,
        aliases="max_new_tokens osl output_length")
    weights: ServedWeights = key("Type of the weights. Engines have packed ones: linears of layers and experts in few bits with scales, or "
        "a GGUF file of llama.cpp.", default="bf16", aliases="weights_dtype", values={"bf16": "bfloat16",
        "fp16": "float16 half", "fp32": "float32 float", "nf4": "bitsandbytes", "q4_k_m": "Q4_K_M", "q8_0": "Q8_0"})
    group_size: int = key("Inputs that share a scale.", "inputs", default=128, only="weights: gptq or awq", aliases="q_group_size")
    shared_prefix: int = key("Tokens at the start of every prompt, which requests share and an engine caches once.", "tokens", default=0,
        least=0, only="engine: vllm or sglang or tensorrt-llm", aliases="prefix_length")
    batched_tokens: int | None = key("Tokens of a pass at most. The cache of a window has room for them.", "tokens", default=None,
        derived="8192 of vllm, 512 of llama.cpp", only="engine: vllm or llama.cpp",
        aliases="max_num_batched_tokens chunked_prefill_size ubatch_size n_ubatch")
    draft_tokens: int = key("Tokens that speculative decoding proposes for each pass.", "tokens", default=0, least=0,
        aliases="num_speculative_tokens draft_max")
    acceptance: Fraction = key("Probability that a proposed token is accepted.", default=Fraction(0), least=0, aliases="acceptance_rate")
    price: Fraction | None = key("Price of a device for an hour, in a currency of your choice.", default=None, above=0, example=2.49,
        derived="no price", aliases="price_per_device_hour")
    attention: ServedAttention = key("Attention of transformers.", default="sdpa", only=_TRANSFORMERS)
    cache: Cache = group("The cache.", kind=Cache, default=Cache())
    tensor_parallel: int = key("Devices that share every layer.", "devices", default=1, only=_OTHERS, aliases="layout")
    memory: str | None = key("Memory of a device: its name, or an amount with a unit.", default=None,
        derived="that of the cluster's device", longest=100, example="H100-80GB-SXM", aliases="device")
    memory_utilization: Fraction = key("Share of it that the engine uses.", default=Fraction(9, 10), above=0, only=_OTHERS,
        aliases="gpu_memory_utilization mem_fraction_static free_gpu_memory_fraction kv_cache_free_gpu_mem_fraction")
    device: str | None = None  # its name in the catalog
    memory_bytes: int | None = None  # of a device
    cache_memory: str | None = key("Memory of the cache on each device, where it is known, for example from the engine's log.",
        default=None, derived="what weights leave", longest=100, example="26.6GiB", only=_OTHERS, aliases="kv_cache_memory_bytes")
    cache_bytes: int | None = None  # of the same
