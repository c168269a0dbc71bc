"""The classes of Hugging Face transformers that a model can name."""

from __future__ import annotations

from typing import Literal

# As in ``model_type`` of a config.json; all that the importer reads and transformers 5.24 has a language model for.
ModelType = Literal[
    "afmoe", "apertus", "apertus1p5_text", "arcee", "aria_text", "axk1", "bamba", "bart", "beam", "bert", "biogpt", "bitnet", "blenderbot",
    "bloom", "camembert", "codegen", "cohere", "cohere2", "cohere2_moe", "cpmant", "ctrl", "cwm", "dbrx", "deepseek_v2", "deepseek_v3",
    "deepseek_v32", "diffllama", "distilbert", "doge", "dots1", "electra", "ernie4_5", "ernie4_5_moe", "ernie4_5_vl_moe_text", "eurobert",
    "exaone", "exaone4", "exaone_moe", "falcon", "falcon_h1", "falcon_mamba", "flex_olmo", "flint", "gemma", "gemma2", "gemma3_text",
    "gemma3n_text", "gemma4_text", "glm", "glm4", "glm4_moe", "glm4_moe_lite", "glm4v_moe_text", "glm4v_text", "glm_moe_dsa",
    "glm_ocr_text", "gpt-sw3", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gpt_neox_japanese", "gpt_oss", "gptj", "granite",
    "granite_swa", "granitemoe", "granitemoe_swa", "granitemoehybrid", "granitemoeshared", "helium", "hunyuan_v1_dense", "hunyuan_v1_moe",
    "hy_v3", "hyperclovax", "internlm3", "iquestcoder", "jais2", "jamba", "kimi_linear", "kolibri1", "laguna", "lara_mini", "lfm2",
    "lfm2_moe", "lfm3", "llama", "llama4_text", "longcat_flash", "m2m_100", "mamba", "mamba2", "marian", "mbart", "mellum", "mimo_v2_flash",
    "minicpm3", "minimax", "minimax_m2", "ministral", "ministral3", "mistral", "mistral4", "mixtral", "mllama_text_model", "modernbert",
    "molmo2_text", "mpt", "mt5", "nanochat", "nemotron", "nemotron_h", "nomic_bert", "olmo", "olmo2", "olmo3", "olmo_hybrid", "olmoe",
    "openai-gpt", "opt", "pegasus", "persimmon", "phi", "phi3", "phi4_multimodal", "phimoe", "plbart", "qwen2", "qwen2_5_omni_text",
    "qwen2_5_vl_text", "qwen2_moe", "qwen2_vl_text", "qwen3", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_moe", "qwen3_next",
    "qwen3_omni_moe_text", "qwen3_vl_moe_text", "qwen3_vl_text", "recurrent_gemma", "rembert", "roberta", "rwkv", "sarvam_mla",
    "sarvam_moe", "seed_oss", "smollm3", "solar_open", "stablelm", "starcoder2", "step3p5", "t5", "umt5", "vaultgemma", "vit", "whisper",
    "xglm", "xlm-roberta", "xlm-roberta-xl", "xlstm", "youtu",
]  # fmt: skip
