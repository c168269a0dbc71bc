"""Small random specs over the whole spec language: the same for a seed on every machine."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import planner
from planner.spec.records import Spec
from planner.trace.unsupported import UnsupportedError

T = TypeVar("T")
Section = dict[str, Any]

# Values listed several times are drawn more often.
ACTIVATIONS = ("gelu", "gelu_tanh", "gelu_new", "relu", "relu_squared", "silu")
DEVICES = ("a100", "a100", "h100", "cpu")
IMPLEMENTATIONS = ("pytorch", "pytorch-eager", "transformers", "transformers-eager", "megatron", "megatron-core", "torchtitan")
LOSSES = ("default", "default", "cross_entropy", "cross_entropy_shifted", "linear_cross_entropy", "linear_cross_entropy_chunked")
MIXERS = (
    *("mamba", "mamba2", "gated_delta_net", "kimi_delta_attention", "lightning_attention", "rg_lru", "rwkv", "short_convolution", "mlstm"),
    *("latent_attention", "latent_attention", "latent_attention", "none"),
)
OPTIMIZERS = ("adamw", "adamw", "adamw", "adam", "sgd", "sgd-momentum", "adamw-8bit", "adafactor", "lion", "muon")
POSITIONS = ("learned", "rope", "rope", "alibi", "sinusoidal", "none")
PRECISIONS = ("fp32", "bf16-autocast", "bf16-autocast", "fp16-autocast", "bf16", "bf16-master")


class Draw:
    """Random choices of one seed."""

    def __init__(self, seed: int | str) -> None:
        self.source = random.Random(seed)  # noqa: S311 - no secret, the same on every machine

    def one(self, choices: Sequence[T]) -> T:
        return self.source.choice(choices)

    def true(self, in_all: int) -> bool:
        """Return true with probability 1 / ``in_all``."""
        return self.source.randrange(in_all) == 0

    def some(self, in_all: int, **settings: object) -> Section:
        """Return each setting with probability 1 / ``in_all``."""
        return {name: value for name, value in settings.items() if self.true(in_all)}


def attempts(seed: int) -> Iterator[Spec]:
    """Yield specs with one scenario each, of any part of the language. One in thirty is not supported, with an error."""
    for number in count():
        yield _loaded(f"seed {seed}", _Any(Draw(f"{seed}.{number}")).document())


@cache
def drawn(seed: int) -> Spec:
    """Return the seed's first spec that can be planned."""
    for spec in attempts(seed):
        try:
            planner.plan(spec)
        except UnsupportedError:
            continue
        return spec
    raise AssertionError


@cache
def buildable(seed: int) -> Spec:
    """Return the seed's spec, with one scenario, of parts for which ``planner.verify`` has PyTorch modules."""
    return _loaded(f"buildable seed {seed}", _Buildable(Draw(f"buildable {seed}.0")).document())


def _loaded(name: str, document: Section) -> Spec:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "spec.yaml"
        path.write_text(json.dumps({"name": name, **document}), encoding="utf-8")  # JSON is YAML
        return planner.load(path)


def attends(layer: Section) -> bool:
    mixed: str | list[str] = layer["mixer"]
    return "attention" in ([mixed] if isinstance(mixed, str) else mixed)


class _Buildable:
    """Decoders with layers of multi-head attention and a dense feed-forward."""

    activations: Sequence[str] = ACTIVATIONS
    implementations: Sequence[str] = IMPLEMENTATIONS[:2]
    optimizers: Sequence[str] = [name for name in OPTIMIZERS if name != "adamw-8bit"]  # its kernels need data

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.position = draw.one(POSITIONS)
        self.implementation = draw.one(self.implementations)
        self.shared: list[Section] = []  # sizes of keys and values that later layers can share

    def document(self) -> Section:
        draw, first = self.draw, self.layer()
        runs: list[Section] = [{"count": draw.one([1, 2, 3]), "layers": [first]}]
        if draw.true(4):
            runs.append({"count": draw.one([1, 2]), "layers": [self.layer()]})
        elif draw.true(4):
            runs = [{"count": draw.one([1, 2]), "layers": [first, self.layer()]}]
        model, training = self.model(first), self.training()
        if training["loss"].startswith("linear"):
            model["head"].pop("logit_softcap", None)
        return {"model": {**model, "layers": runs}, "training": training}

    def model(self, first: Section) -> Section:
        draw = self.draw
        positions: Section = {"type": self.position}
        if self.position == "learned":
            positions["offset"] = draw.one([0, 2])
        return {
            "vocab_size": draw.one([64, 101, 509]),
            "pad_vocab_to_multiple_of": draw.one([1, 1, 4, 128]),
            "context_length": draw.one([64, 70]),
            "d_model": draw.one([first["n_heads"] * first["head_dim"], 24, 40, 48]),
            "positions": positions,
            "norm": first["norm"],
            "head": {"tied": draw.true(2), "bias": draw.true(3), **draw.some(4, logit_softcap=30.0)},
            "embedding_norm": draw.true(3),
            "embedding_scale": draw.true(4),
            "final_norm": not draw.true(3),
        }

    def layer(self) -> Section:
        draw = self.draw
        head_dim, kv_heads = draw.one([4, 6, 8, 16, 20, 24, 32, 264]), draw.one([1, 2, 3])
        heads = kv_heads * draw.one([1, 1, 2, 3])
        sequential = draw.true(2)
        positions: Section = {"type": self.position}
        if self.position == "rope":
            positions["rotary_dim"] = draw.one([head_dim, head_dim // 4 * 2])
        return {
            "n_heads": heads,
            "n_kv_heads": kv_heads,
            "head_dim": head_dim,
            "d_ff": draw.one([50, 64, 96]),
            "attention": self.attention(heads, kv_heads),
            "feed_forward": self.feed_forward(),
            "norm": self.norm() | {"placement": draw.one(["before", "after", "before_and_after"]) if sequential else "before"},
            "block": "sequential" if sequential else draw.one(["parallel_one_norm", "parallel_two_norms"]),
            **({"positions": positions} if self.position == "rope" else {}),
        }

    def attention(self, heads: int, kv_heads: int) -> Section:
        draw = self.draw
        qkv = draw.one(["fused", "separate", "fused_per_head" if heads == kv_heads else "fused"])
        bias = {part: draw.true(2) for part in "qkv"} if qkv == "separate" else dict.fromkeys("qkv", draw.true(2))
        return {
            "qkv": qkv,
            "bias": {**bias, "o": draw.true(2)},
            "qk_norm": draw.one(["none", "none", "head_dim", "full_width"]),
            **(draw.some(4, logit_softcap=50.0) if self.implementation.endswith("eager") else {}),
        }

    def feed_forward(self) -> Section:
        draw, gated = self.draw, self.draw.true(2)
        bias = {part: draw.true(2) for part in ("up", "down", *(["gate"] if gated else []))}
        return {"type": "gated" if gated else "plain", "activation": draw.one(self.activations), "bias": bias}

    def norm(self) -> Section:
        draw, weight, layernorm = self.draw, not self.draw.true(3), not self.draw.true(3)
        more = weight and draw.true(2)
        return {
            "type": "layernorm" if layernorm else "rmsnorm",
            "weight": weight,
            "bias": layernorm and more,
            "unit_offset": not layernorm and more,
        }

    def training(self) -> Section:
        draw = self.draw
        n, precision, optimizer, device = (
            draw.one([1, 7, 32, 33, 40, 64]),
            draw.one(PRECISIONS),
            draw.one(self.optimizers),
            draw.one(DEVICES),
        )
        loss = draw.one(self.losses()) if n > 1 else "default"
        return {
            "batch_size": draw.one([1, 2, 3]),
            "sequence_length": n,
            "gradient_accumulation": draw.one([1, 1, 1, 2, 5]),
            "precision": precision,
            **({"gradient_dtype": draw.one(["fp32", "bf16"])} if precision == "bf16-master" else {}),
            "optimizer": optimizer,
            **({"optimizer_kernel": draw.one(["fused", "foreach", "for-loop"])} if optimizer in ("adam", "adamw") else {}),
            "dropout": draw.one([0, 0, 0.1]),
            "recompute": draw.one(["none", "none", "selective", "full"]),
            "implementation": self.implementation,
            "device": "a100" if n == 1 and device == "h100" else device,  # cuDNN's attention needs more than one token
            "loss": loss,
            "keep_logits": not loss.startswith("linear") and draw.true(3),
            "ema": draw.one(["none", "none", "none", "fp32", "bf16"]),
        }

    def losses(self) -> Sequence[str]:
        return LOSSES if self.implementation.startswith("pytorch") else LOSSES[:4]


class _Any(_Buildable):
    """Decoders with any layers."""

    implementations = IMPLEMENTATIONS
    optimizers = OPTIMIZERS

    def model(self, first: Section) -> Section:
        draw, model = self.draw, super().model(first)
        return {
            **model,
            **draw.some(6, embedding_dim=22, per_layer_embedding={"vocab_size": 33, "dim": 4}, extra=[self.declared("d_model", 3)]),
            **draw.some(4, prediction={"count": draw.one([1, 2]), "copies_embedding": draw.true(2)}),
        }

    def document(self) -> Section:
        document = super().document()
        layers = [layer for run in document["model"]["layers"] for layer in run["layers"]]
        if document["training"]["optimizer"] == "muon" and any("experts" in layer for layer in layers):
            document["training"] |= self.draw.some(2, muon_experts="each")
        if "prediction" in document["model"]:
            document["training"] |= self.draw.some(2, count_prediction=True)
        return document

    def layer(self) -> Section:
        draw, layer = self.draw, super().layer()
        mixer = self.mixed(layer)
        if attends(layer):
            layer["attention"] = self.any_attention(layer)
        elif "positions" in layer:
            layer["positions"] = {"type": "rope" if mixer == "latent_attention" else "none"}
        if draw.true(3):
            layer["experts"] = self.experts()
        self.fed(layer, mixer)
        bare = mixer == "none" or layer["feed_forward"] == "none"  # parallel blocks need both sublayers
        layer["block"] = "sequential" if bare else layer["block"]
        if layer["block"] == "sequential" and draw.true(6):
            layer["norm"] = layer["norm"] | {"placement": "after_residual"}
        return {**layer, **draw.some(8, extra=[self.declared("d_ff", "n_heads")])}

    def mixed(self, layer: Section) -> str:
        """Give the layer a mixer in place of attention, or beside it, and return its name."""
        draw = self.draw
        mixer = draw.one(MIXERS) if draw.true(2) else "attention"
        if mixer == "latent_attention" and self.position == "alibi":
            mixer = "mamba2"
        beside = mixer not in ("attention", "latent_attention", "none") and draw.true(4)
        layer["mixer"] = ["attention", mixer] if beside else mixer
        if mixer not in ("attention", "none"):
            layer[mixer] = self.mixer(mixer)
        return mixer

    def fed(self, layer: Section, mixer: str) -> None:
        """Give the layer another feed-forward, or none."""
        if self.draw.true(8):
            layer["feed_forward"] = {"type": "rwkv"}
        elif mixer != "none" and "experts" not in layer and self.draw.true(8):
            layer["feed_forward"] = "none"
        elif self.draw.true(6):
            layer["feed_forward"]["hidden_norm"] = True

    def declared(self, *shape: object) -> Section:
        return {
            "name": "more",
            "shape": list(shape),
            "component": self.draw.one(["other", "norm", "attention"]),
            "uses": self.draw.one([0, 1]),
        }

    def any_attention(self, layer: Section) -> Section:
        draw, head_dim = self.draw, layer["head_dim"]
        kind: Section = layer["attention"] | draw.some(4, output_norm=True, sinks=True)
        if draw.true(3):
            kind |= {"window": draw.one([1, 5, 16, 64])} | draw.some(2, chunked=True)
        if draw.true(4):
            kind["output_gate"] = draw.one(["element", "head"])
        if draw.true(6):
            kind["qk_norm"] = "per_head"
        if layer["n_kv_heads"] % 2 == 0 and draw.true(8):
            kind["differential"] = True
        sizes = {"n_kv_heads": layer["n_kv_heads"], "head_dim": head_dim}
        if kind["qkv"] == "separate" and draw.true(4):
            kind |= {"keys_as_values": True}
        elif kind["qkv"] == "separate" and sizes in self.shared and draw.true(2):
            kind |= {"shared_kv": True}
        elif draw.true(5):
            kind |= {"v_head_dim": draw.one([4, 12])}
        else:
            self.shared.append(sizes)
        return kind

    def mixer(self, name: str) -> Section:
        draw = self.draw
        latent = {"kv_rank": 12, "nope_dim": draw.one([4, 8]), "rope_dim": draw.one([4, 6]), "v_dim": draw.one([4, 8, 12])}
        indexer = {"n_heads": 2, "head_dim": 8, "top_k": draw.one([3, 16])}
        conv = draw.some(2, d_conv=3)
        sizes: dict[str, Section] = {
            "latent_attention": latent | draw.some(2, q_rank=10, bias=True, indexer=indexer),
            "mamba": {"d_inner": draw.one([32, 50]), "d_state": 8, "dt_rank": 3}
            | conv
            | draw.some(2, conv_bias=False, bias=True, norms=True),
            "mamba2": {"d_inner": draw.one([32, 64]), "d_state": 8, "n_heads": 4, "n_groups": draw.one([1, 2])}
            | conv
            | draw.some(2, conv_bias=False, bias=True, gated_norm=False),
            "gated_delta_net": {"n_key_heads": 2, "n_value_heads": draw.one([2, 4]), "key_dim": 8, "value_dim": draw.one([6, 8])} | conv,
            "kimi_delta_attention": {"n_heads": draw.one([2, 3]), "head_dim": 8} | conv,
            "lightning_attention": {"n_heads": draw.one([2, 3]), "head_dim": 8},
            "rg_lru": {"width": 32, "n_blocks": draw.one([1, 4])} | conv,
            "rwkv": {"width": draw.one([32, 48])},
            "short_convolution": {"width": draw.one([32, 48])} | conv | draw.some(2, bias=True),
            "mlstm": {"n_heads": 2, "qk_dim": draw.one([16, 32]), "v_dim": 32},
        }
        return sizes[name]

    def experts(self) -> Section:
        draw = self.draw
        kind: Section = {
            "count": draw.one([2, 4, 6]),
            "top_k": draw.one([1, 2]),
            "d_ff": draw.one([8, 16, 24]),
            "type": draw.one(["gated", "plain"]),
            "activation": draw.one(self.activations),
            "scoring": draw.one(["softmax", "softmax", "sigmoid"]),
            "normalize": draw.true(2),
            "scores_dtype": draw.one(["fp32", "compute"]),
            "correction_bias": draw.one(["none", "none", "buffer", "parameter"]),
        }
        kind |= draw.some(4, bias=True, router_bias=True, latent_dim=16, empty=2, capacity_factor=1.5, beside_feed_forward=True)
        return kind | draw.some(3, shared={"d_ff": draw.one([8, 16]), "gate": draw.true(2)})

    def training(self) -> Section:
        draw, training = self.draw, super().training()
        if self.implementation.startswith("transformers"):
            training |= draw.some(4, use_cache=True)
        if self.implementation in ("pytorch", "transformers"):
            training |= draw.some(6, attention_kernel="math")
        return training | draw.some(5, round_allocations=True, reserve_bytes=1000, tokens=12_345) | draw.some(2, flops_convention="palm")
