"""Types of encoder-decoders: T5 and BART with their successors, translators, and Whisper.

Read from transformers 5.24: models/*/configuration_*.py and modeling_*.py of each type.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.importer.engine import Reading, Row, Settings, row
from planner.importer.keys import *
from planner.importer.neutral import DERIVED, GENERATES, NAMES, ROTATES, RUNS, UNREAD
from planner.importer.parts import *
from planner.importer.reader import show

NOT_TIED = "planned with an LM head of its own, as published; transformers 5.24 ties it when it makes a model of the configuration"


def generates(c: Reading) -> None:
    """Refuse classes with another head than that of generation."""
    named = c.value("architectures") or []
    for name in named if isinstance(named, list) else [named]:
        if not isinstance(name, str) or not name.endswith(("ForConditionalGeneration", "MTModel", "WithLMHeadModel")):
            raise c.refusal(f"`architectures: [{show(name)}]` is not supported; supported classes: …ForConditionalGeneration")


def equal(first: str, second: str, default: int) -> Source:
    """Return a size that encoder and decoder have in common."""
    both = size(first, default), size(second, default)

    def one(c: Reading) -> int:
        of_encoder, of_decoder = (c.of(each) for each in both)
        if of_encoder != of_decoder:
            raise c.refusal(f"`{first.split(maxsplit=1)[0]}: {of_encoder}` and `{second}: {of_decoder}` differ, which is not supported")
        return int(of_decoder)

    return code(one, *both)


COMMON: Settings = {"attention.qkv": "separate", "_unused": code(generates, "architectures")}
ONLY = {"is_encoder_decoder": True}


def bart(*parts: Row | Settings, n_layers: int = 12, n_heads: int = 16, d_ff: int = 4096, d_model: int = 1024) -> Row:
    """Return an encoder-decoder with BART's key names; the numbers are the class's defaults."""
    base: Settings = {
        "vocab_size": size("vocab_size", 50265),
        "context_length": size("max_position_embeddings", 1024),
        "d_model": size("d_model hidden_size", d_model),
        "n_layers": layers("decoder_layers", n_layers),
        "n_heads": equal("encoder_attention_heads num_attention_heads", "decoder_attention_heads", n_heads),
        "d_ff": equal("encoder_ffn_dim", "decoder_ffn_dim", d_ff),
        "encoder.n_layers": layers("encoder_layers num_hidden_layers", n_layers),
        **plain("gelu", None, "activation_function"),
        "positions": {"type": "learned", "offset": 2},
        "embedding_norm": True,
        "embedding_scale": flag("scale_embedding"),
        **tied(True),
        **COMMON,
    }
    unread = (
        "add_bias_logits add_final_layer_norm classif_dropout extra_pos_embeddings normalize_before normalize_embedding output_past "
        "static_position_embeddings"
    )
    ignored = {
        UNREAD: unread,
        RUNS: "gradient_checkpointing",
        GENERATES: "force_bos_token_to_be_generated prefix",
        NAMES: "_num_labels save_step",
    }
    return row(base, *parts, only=ONLY, ignored=ignored)


def translates(c: Reading) -> None:
    """Refuse other heads, and a token embedding of the decoder beside that of the encoder."""
    generates(c)
    V, own = c.of(size("vocab_size", 58101)), c.value("decoder_vocab_size")
    if not c.of(flag("share_encoder_decoder_embeddings", True)) or (own is not None and own != V):
        raise c.refusal("an encoder and a decoder with token embeddings of their own are not supported")


def form(default: str) -> Source:
    """Return type and activation of the feed-forward, from ``gated-gelu``; the default is the class's."""

    def read(c: Reading) -> tuple[str, str]:
        written = c.value("feed_forward_proj")
        kind, _, name = (default if written is None else str(written)).rpartition("-")
        if kind not in ("", "gated") or name not in ACTIVATIONS:
            raise c.unsupported("feed_forward_proj", written, ("relu", "gated-gelu", "gated-silu"))
        return ("gated" if kind else "plain"), "gelu_new" if (kind, name) == ("gated", "gelu") else ACTIVATIONS[name]

    return code(read, "feed_forward_proj")


def noted(c: Reading) -> bool:
    """Return whether the LM head is tied, and note what transformers makes of one that is not."""
    one: bool = c.of(flag("tie_word_embeddings", True))
    c.notes += [NOT_TIED] if not one and NOT_TIED not in c.notes else []
    return one


AFTER: Settings = {"norm.placement": "after_residual", "final_norm": False}


def t5(vocab_size: int, n_layers: int, n_heads: int, d_ff: int, feed_forward: str = "relu", *, per_layer: bool = False) -> Row:
    """Return an encoder-decoder with T5's key names; the numbers are the class's defaults."""
    its = form(feed_forward)
    depth = "num_layers num_hidden_layers"
    return row(
        {
            "vocab_size": size("vocab_size", vocab_size),
            "context_length": size("n_positions", 512),
            "d_model": size("d_model hidden_size", 512),
            "n_layers": layers("num_decoder_layers", size(depth, n_layers)),
            "n_heads": size("num_heads num_attention_heads", n_heads),
            "head_dim": size("d_kv head_dim", 64),
            "d_ff": size("d_ff", d_ff),
            "encoder.n_layers": layers(depth, n_layers),
            "attention.bias": False,
            "feed_forward.type": apply(lambda its: its[0], its),
            "feed_forward.activation": apply(lambda its: its[1], its),
            "feed_forward.bias": False,
            "norm.type": "rmsnorm",
            "positions": {
                "type": "bucketed",
                "buckets": size("relative_attention_num_buckets", 32),
                **({"per_layer": True} if per_layer else {}),
            },
            "head.tied": code(noted, "tie_word_embeddings", flag("tie_word_embeddings", True)),
            **COMMON,
        },
        only=ONLY,
        ignored={
            ROTATES: "relative_attention_max_distance",
            DERIVED: "dense_act_fn is_gated_act scale_decoder_outputs",
            RUNS: "gradient_checkpointing",
            UNREAD: "output_past tokenizer_class",
        },
    )


def frames(c: Reading) -> int:
    """Return the frames of audio: two for each position."""
    return 2 * int(c.of(POSITIONS))


POSITIONS = size("max_source_positions", 1500)
WHISPER: Settings = {
    "vocab_size": size("vocab_size", 51865),
    "context_length": size("max_target_positions", 448),
    "encoder.frames": {"bins": size("num_mel_bins", 80), "length": code(frames, POSITIONS)},
    "attention.bias": {"k": False},
    "positions": "learned",
    "embedding_norm": None,
    "embedding_scale": None,
}

CODE: Settings = {"vocab_size": size("vocab_size", 50005), "embedding_scale": flag("scale_embedding", True)}

NO_NORM: Settings = {"embedding_norm": None}
TABLE: Settings = {**NO_NORM, "positions": {"type": "learned", "frozen": True}}

ROWS: Mapping[str, Row] = {
    "bart": bart(AFTER),
    "blenderbot": bart(
        NO_NORM,
        {
            "vocab_size": size("vocab_size", 8008),
            "context_length": size("max_position_embeddings", 128),
            "encoder.n_layers": layers("encoder_layers num_hidden_layers", 2),
            "positions": "learned",
        },
        n_layers=24,
        n_heads=32,
        d_ff=10240,
        d_model=2560,
    ),
    "m2m_100": bart(
        NO_NORM,
        {
            **plain("relu", None, "activation_function"),
            "vocab_size": size("vocab_size", 128112),
            "positions": "sinusoidal",
            "embedding_scale": flag("scale_embedding", True),
        },
    ),
    "marian": bart(
        AFTER,
        TABLE,
        {
            "vocab_size": size("vocab_size", 58101),
            "_unused": code(translates, "architectures", "share_encoder_decoder_embeddings decoder_vocab_size vocab_size"),
        },
    ),
    "mbart": bart(),
    "mt5": t5(250112, 8, 6, 1024, "gated-gelu"),
    "pegasus": bart(TABLE),
    "plbart": bart(
        AFTER,
        CODE,
        n_layers=6,
        n_heads=12,
        d_ff=3072,
        d_model=768,
    ),
    "t5": t5(32128, 6, 8, 2048),
    "umt5": row(t5(250112, 8, 6, 1024, "gated-gelu", per_layer=True), ignored={UNREAD: "scalable_attention"}),
    "whisper": row(
        bart(WHISPER, n_layers=4, n_heads=6, d_ff=1536, d_model=384),
        ignored={
            UNREAD: "classifier_proj_size max_position_embeddings median_filter_width scale_embedding use_weighted_layer_sum",
            RUNS: "apply_spec_augment mask_feature_length mask_feature_min_masks mask_feature_prob mask_time_length mask_time_min_masks "
            "mask_time_prob",
            GENERATES: "forced_decoder_ids",
        },
    ),
}
