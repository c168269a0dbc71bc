"""Types of encoders: BERT and its successors, with the head that ``architectures`` names.

Read from transformers 5.24: models/*/configuration_*.py and modeling_*.py of each type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from planner.importer.engine import Reading, Row, Settings, row
from planner.importer.keys import *
from planner.importer.neutral import RUNS, UNREAD
from planner.importer.parts import *
from planner.importer.reader import show

Kind = Literal["masked", "classes", "none"]
ENDINGS: Mapping[str, Kind] = {
    "ForMaskedLM": "masked",
    "ForSequenceClassification": "classes",
    "ForImageClassification": "classes",
    "Model": "none",
}


def kind_of(c: Reading, default: Kind, allowed: tuple[Kind, ...]) -> Kind:
    """Return the kind of the model's head, by the class that the file names."""
    named = c.value("architectures")
    if not named:
        what = {"masked": "a masked-language head", "classes": "classes", "none": "the encoder alone"}[default]
        note = f"planned with {what}: the file has no `architectures`, such as [BertModel]"
        c.notes += [] if note in c.notes else [note]
        return default
    name = named[0] if isinstance(named, list) and isinstance(named[0], str) else show(named)
    kind = next((kind for ending, kind in ENDINGS.items() if name.endswith(ending)), None)
    if kind not in allowed:
        can = ", ".join(f"…{ending}" for ending, one in ENDINGS.items() if one in allowed)
        raise c.refusal(f"`architectures: [{name}]` is not supported; supported classes: {can}")
    return kind


def labels(c: Reading) -> int:
    """Return the number of classes."""
    names = c.value("id2label")
    return len(names) if isinstance(names, Mapping) and names else int(c.of(size("num_labels", 2)))


def heads(
    *, default: Kind = "masked", pooler: str = "tanh", of_model: str = "tanh", allowed: tuple[Kind, ...] = ("masked", "classes", "none")
) -> Settings:
    """Return the head that ``architectures`` names; ``pooler``: that before classes, ``of_model``: that of the encoder alone."""
    kind = code(lambda c: kind_of(c, default, allowed), "architectures")
    masked, classes = (apply(lambda kind, one=one: kind == one, kind) for one in ("masked", "classes"))
    pools = {"masked": None, "classes": pooler, "none": of_model}
    return {
        "head.type": apply(lambda kind: None if kind == "masked" else kind, kind),
        "head.pooler": apply(pools.get, kind),
        "head.classes": when(classes, code(labels, "num_labels", "id2label", size("num_labels", 2))),
        "head.transform": when(masked, True),
        "head.bias": when(masked, True),
        "head.tied": when(masked, flag("tie_word_embeddings", True)),
    }


TIED = row(only={"tie_word_embeddings": True})  # otherwise these classes have the bias of the head twice


def encoder(context_length: int, *parts: Row | Settings) -> Row:
    """Return an encoder with BERT's key names, norms after the residual sum and a norm of the embeddings."""
    base: Settings = {
        **sizes(context_length),
        **wide("gelu", None),
        "causal": False,
        "attention.qkv": "separate",
        "segments": size("type_vocab_size", 2),
        "embedding_norm": True,
        "norm.placement": "after_residual",
        "final_norm": False,
    }
    only = {"is_decoder": False, "position_embedding_type": "absolute"}
    return row(base, *parts, only=only, ignored={RUNS: "gradient_checkpointing"})


def after_padding(c: Reading) -> int:
    """Return the rows of the position embedding before the first token: up to that of padding, 1 by default."""
    padding = c.value("pad_token_id")
    return (1 if padding is None else positive(c, "pad_token_id", padding + 1) - 1) + 1


OFFSET = code(after_padding, "pad_token_id")
ONLY_GELU = {"feed_forward.activation": choice("hidden_act", {"gelu": "gelu"}, "gelu")}  # of the transform, whatever the layers have
ROBERTA = encoder(
    512,
    ONLY_GELU,
    heads(),
    TIED,
    {
        "vocab_size": size("vocab_size", 50265),
        "context_length": apply(lambda rows, offset: rows - offset, size("max_position_embeddings", 514), OFFSET),
        "positions": apply(lambda offset: {"type": "learned", "offset": offset}, OFFSET),
    },
)
NARROW = apply(lambda width, d_model: None if width == d_model else width, size("embedding_size", 128), same("d_model"))
LOCAL = size("local_attention", 128)

IMAGE, PATCH = size("image_size", 224), size("patch_size", 16)

ROWS: Mapping[str, Row] = {
    "bert": encoder(512, heads(), TIED),
    "camembert": ROBERTA,
    "distilbert": encoder(
        512,
        row(ignored={UNREAD: "sinusoidal_pos_embds seq_classif_dropout qa_dropout"}),
        sizes(512, d_model="dim hidden_size", n_layers="n_layers num_hidden_layers", n_heads="n_heads num_attention_heads"),
        {"d_ff": size("hidden_dim"), "feed_forward.activation": activation("activation", "gelu"), "segments": None},
        heads(pooler="relu", of_model="none"),
    ),
    "electra": encoder(
        512,
        ONLY_GELU,
        heads(default="none", pooler="gelu", of_model="none"),
        {"embedding_dim": NARROW, "embedding_projection": apply(lambda width: width and "embedded", NARROW)},
    ),
    "eurobert": row(
        sizes(8192),
        {
            "vocab_size": size("vocab_size", 128256),
            "d_model": size("hidden_size", 768),
            "n_layers": layers("num_hidden_layers", 12),
            "n_heads": size("num_attention_heads", 12),
            "n_kv_heads": size("num_key_value_heads", same("n_heads"), null=same("n_heads")),
            "head_dim": head_dim(),
            "d_ff": size("intermediate_size", 3072),
            "causal": False,
            "attention.qkv": "separate",
            "attention.bias": flag("attention_bias"),
            **feed_forward("gated", activation("hidden_act", "silu"), flag("mlp_bias")),
            "norm.type": "rmsnorm",
            "positions": rope(),
        },
        heads(of_model="none", allowed=("masked", "none")),
        {
            "head.transform": None,
            "head.bias": when(same("head.tied"), flag("mlp_bias"), flag("mlp_bias")),
            "head.tied": when(apply(lambda kind: kind is None, same("head.type")), flag("tie_word_embeddings")),
        },
        ignored={RUNS: "classifier_pooling"},
    ),
    "modernbert": row(
        sizes(8192),
        {
            "d_ff": size("intermediate_size"),
            "causal": False,
            "attention.bias": flag("attention_bias"),
            **feed_forward("gated", activation("hidden_activation", "gelu"), flag("mlp_bias")),
            "norm.bias": flag("norm_bias"),
            "positions": "rope",
            "embedding_norm": True,
        },
        heads(of_model="none", allowed=("masked", "none")),
        {"head.bias": when(same("head.transform"), flag("decoder_bias", True)), "head.transform_bias": flag("classifier_bias")},
        windowed(
            kinds(every(size("global_attn_every_n_layers", 3), first=True)),
            apply(lambda width: width // 2 + 1, LOCAL),
        ),
        {"layers.first": apply(lambda n: [{"mixer_norm": False}, *[{}] * (n - 1)], N)},
        only={"classifier_activation": same("feed_forward.activation"), "sparse_prediction": False},
        ignored={
            UNREAD: "position_embedding_type layer_norm_eps",
            RUNS: "reference_compile repad_logits_with_grad deterministic_flash_attn classifier_pooling sparse_pred_ignore_index "
            "initializer_cutoff_factor global_rope_theta local_rope_theta",
        },
    ),
    "nomic_bert": encoder(
        2048,
        {**GATED, "attention.bias": False, "head_dim": head_dim(), "positions": "rope"},
        heads(of_model="none"),
        TIED,
    ),
    "rembert": encoder(
        512,
        heads(default="none", pooler="tanh", allowed=("classes", "none")),
        {
            "vocab_size": size("vocab_size", 250300),
            "d_model": size("hidden_size", 1152),
            "n_layers": layers("num_hidden_layers", 32),
            "n_heads": size("num_attention_heads", 18),
            "d_ff": size("intermediate_size", 4608),
            "embedding_dim": size("input_embedding_size", 256),
            "embedding_projection": "embedded",
        },
        row(ignored={UNREAD: "embedding_size output_embedding_size tie_word_embeddings"}),
    ),
    "roberta": ROBERTA,
    "vit": row(
        {
            "causal": False,
            "d_model": size("hidden_size", 768),
            "n_layers": layers("num_hidden_layers", 12),
            "n_heads": size("num_attention_heads", 12),
            "d_ff": size("intermediate_size", 3072),
            "attention.qkv": "separate",
            "attention.bias": bias(flag("qkv_bias", True), True),
            "feed_forward.activation": activation("hidden_act", "gelu"),
            "patches": {"image": IMAGE, "size": PATCH, "channels": size("num_channels", 3)},
        },
        heads(default="classes", pooler="none", allowed=("classes", "none")),
        only={"pooler_output_size": same("d_model"), "pooler_act": "tanh"},
        ignored={RUNS: "encoder_stride"},
    ),
    "xlm-roberta": ROBERTA,
    "xlm-roberta-xl": row(
        ROBERTA,
        {
            "vocab_size": size("vocab_size", 250880),
            "d_model": size("hidden_size", 2560),
            "n_layers": layers("num_hidden_layers", 36),
            "n_heads": size("num_attention_heads", 32),
            "d_ff": size("intermediate_size", 10240),
            "segments": size("type_vocab_size", 1),
            "embedding_norm": None,
            "norm.placement": None,
            "final_norm": None,
        },
    ),
}
