"""Every default that depends on other settings, stated once."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from planner import devices
from planner.spec.amount import BYTES, amount, fraction
from planner.spec.language import leaves
from planner.spec.nodes import UNREADABLE
from planner.spec.precision import RECIPES
from planner.spec.records import Adapters, Cluster, Device, Experts, GradientDtype, Liger, Model, Norm, Patches, Training
from planner.spec.records.mixers import Mamba, ShortConvolution
from planner.spec.settings import Settings, Unresolved

if TYPE_CHECKING:
    from collections.abc import Callable


def words(settings: Settings, *, key: str) -> tuple[str, ...]:
    """Return a word, or several. Raises Unresolved."""
    written = settings.written(key)
    if written is None:
        default = leaves()[f"{settings.section}.{key}"].get("default")
        return (settings.get(key),) if default else ()
    found = [node.value for node in written.elements() or [written]]
    if UNREADABLE in found:
        raise Unresolved(key)
    return tuple(str(word) for word in found)


def vocab_size(settings: Settings) -> int:
    """Return the rows of the token embedding, of which there are none if patches replace tokens: then the classes."""
    return settings.size("vocab_size", settings.size("head.classes") if settings.on("patches") else None)


def context_length(settings: Settings) -> int:
    """Return the longest sequence, that of an image unless written."""
    patches = Patches(*(settings.get(f"patches.{one.name}") for one in fields(Patches))) if settings.on("patches") else None
    return settings.size("context_length", patches.length if patches else None)


def n_kv_heads(settings: Settings) -> int:
    """Return n_kv_heads, n_heads unless written."""
    return settings.size("n_kv_heads", settings.size("n_heads"))


def head_dim(settings: Settings) -> int:
    """Return head_dim, d_model / n_heads unless written; raises Unresolved where that does not divide."""
    if settings.written("head_dim"):
        return settings.size("head_dim")
    d_model, n_heads = settings.size("d_model"), settings.size("n_heads")
    if d_model % n_heads:
        raise Unresolved("head_dim")
    return settings.size("head_dim", default_head_dim(d_model, n_heads))


def default_head_dim(d_model: int, n_heads: int) -> int:
    """Return the width of a head that is not written."""
    return d_model // n_heads


def default_d_ff(d_model: int) -> int:
    """Return the width of a plain feed-forward that is not written."""
    return 4 * d_model


def has_feed_forward(settings: Settings) -> bool:
    """Return whether a layer has a dense feed-forward, which experts replace unless ``beside_feed_forward`` is set."""
    if settings.get("feed_forward.type") == "none":
        return False
    return not settings.on("experts") or bool(settings.get("experts.beside_feed_forward"))


def d_ff(settings: Settings) -> int:
    """Return d_ff, 4 * d_model unless written; a gated feed-forward has no usual width."""
    gated = settings.get("feed_forward.type") == "gated"
    return settings.size("d_ff", None if gated else default_d_ff(settings.size("d_model")))


def prompt_length(settings: Settings, model: Settings) -> int:
    """Return the tokens of a prompt: what outputs leave of the context unless written."""
    return settings.size("prompt", context_length(model) - settings.size("output"))


def served_on(settings: Settings, cluster: Settings | None) -> tuple[str | None, int | None]:
    """Return the device that serves the model, if it is in the catalog, and its memory: the cluster's unless written. Raises Unresolved."""
    if not settings.written("memory"):
        return device(cluster) if cluster else (None, None)
    known = devices.find(settings.get("memory"))
    return (known.name, known.memory_bytes) if known else (None, bytes_of(settings, "memory"))


def bytes_of(settings: Settings, key: str) -> int | None:
    """Return the bytes of an amount of memory, None unless written. Raises Unresolved."""
    if not settings.written(key):
        return None
    found = whole_amount(settings.get(key))
    if found is None:
        raise Unresolved(key)
    return found


def whole_amount(text: str) -> int | None:
    """Return an amount of memory in whole bytes, of a rounded one those below it: 3.81GiB, as a log prints it. None if it is not one."""
    value = fraction(text, BYTES)
    return int(value) if value else None


def data_degree(cluster: Settings | None, layout: Settings | None) -> int:
    """Return the devices that read different data. Raises Unresolved if the other degrees do not divide the devices."""
    if cluster is None:
        return 1
    degrees = [layout.size(key) for key in MODEL_DEGREES] if layout else []
    if cluster.size("devices") % prod(degrees):
        raise Unresolved("devices")
    return cluster.size("devices") // prod(degrees)


MODEL_DEGREES = ("tensor_parallel", "pipeline_parallel", "context_parallel")


def device(cluster: Settings) -> tuple[str, int]:
    """Return the name of the cluster's devices and the memory of one. Raises Unresolved for no or an unknown device, or amount."""
    if not cluster.written("device"):
        raise Unresolved("device")
    written = cluster.get("device")
    if isinstance(written, str):
        if known := devices.find(written):
            return known.name, known.memory_bytes
    elif (size := amount(str(cluster.get("device.memory")), BYTES)) is not None:
        return f"device with {cluster.get('device.memory')}", size
    raise Unresolved("device")


def per_node(cluster: Settings) -> int:
    """Return the devices of a full node, as in the device catalog unless written."""
    written = cluster.get("device") if cluster.written("device") else None
    known = devices.find(written) if isinstance(written, str) else None
    return cluster.size("per_node", known.per_node if known else devices.PER_NODE)


def kernels_of(device: str) -> Device | None:
    """Return the device class whose kernels PyTorch chooses on a device of the catalog, None if that was not measured."""
    return next((kind for kind, families in KERNELS.items() if device.partition("-")[0] in families), None)


KERNELS: dict[Device, tuple[str, ...]] = {"a100": ("A100", "A800"), "h100": ("H100", "H800", "H200", "H20", "GH200")}


def sequence_length(settings: Settings, model: Settings) -> int:
    """Return n, context_length unless written."""
    return settings.size("sequence_length", context_length(model))


def encoder_length(settings: Settings, model: Settings) -> int | None:
    """Return the length of the sequences that an encoder reads, None without one."""
    if not model.on("encoder"):
        return None
    frames = model.size("encoder.frames.length") // 2 if model.on("encoder.frames") else None
    return settings.size("encoder_length", frames or sequence_length(settings, model))


def images(settings: Settings, model: Settings) -> int:
    """Return the images of a sequence: 1 unless written, 0 without a tower that reads them."""
    return settings.size("images", 1) if model.on("vision") else 0


def tokens(settings: Settings, model: Settings, degree: int) -> int | None:
    """Return the tokens of the whole training, from the steps where they are written instead; None where neither is."""
    if settings.written("tokens"):
        return settings.size("tokens")
    if settings.written("steps"):
        return step_tokens(settings, model, degree) * settings.size("steps")
    return None


def step_tokens(settings: Settings, model: Settings, degree: int) -> int:
    """Return the tokens of one optimizer step: B * n * gradient_accumulation * the data-parallel devices."""
    passes = gradient_accumulation(settings, degree)
    return settings.size("batch_size") * sequence_length(settings, model) * passes * degree


def gradient_accumulation(settings: Settings, degree: int) -> int:
    """Return the passes per optimizer step, from the global batch where that is written. Raises Unresolved if it does not divide."""
    if not settings.written("global_batch_size"):
        return settings.size("gradient_accumulation")
    sequences, together = settings.size("global_batch_size"), settings.size("batch_size") * degree
    if sequences % together:
        raise Unresolved("global_batch_size")
    return sequences // together


def gradient_dtype_of(settings: Settings) -> GradientDtype:
    """Return the dtype of gradients: the chosen one if the precision has a choice."""
    default, *others = RECIPES[settings.get("precision")].gradients
    chosen: GradientDtype = settings.get("gradient_dtype", default) if others else default
    return chosen


def input_gradients(settings: Settings) -> bool:
    """Return whether the embedded tokens require a gradient: transformers makes them do so for recomputation.

    That changes nothing if all weights train. gradient_checkpointing_enable in modeling_utils.py of transformers 5.24.
    """
    if settings.written("input_gradients"):
        return bool(settings.get("input_gradients"))
    tuned = settings.on("adapters") or settings.written("train") is not None
    return tuned and settings.get("recompute") == "full" and str(settings.get("implementation")).startswith("transformers")


def liger_of(settings: Settings) -> Liger | None:
    """Return the switches of liger-kernel, None if it is off."""
    written = settings.written("liger")
    if written is None or written.value is False:
        return None
    return Liger(**{one.name: settings.get(f"liger.{one.name}") for one in fields(Liger) if one.name in written.items()})


# What rests on other settings: fields of all records that take a key of the layer, and fields of one record.
OF_LAYER: dict[str, Callable[[Settings], int]] = {
    "n_heads": lambda settings: settings.size("n_heads"),
    "n_kv_heads": n_kv_heads,
    "head_dim": head_dim,
    "d_ff": d_ff,
}


RULES: dict[type[Any], dict[str, Callable[[Settings], object]]] = {
    Model: {"vocab_size": vocab_size, "context_length": context_length},
    Norm: {"bias": lambda settings: settings.get("norm.bias", settings.get("norm.type") == "layernorm" and settings.get("norm.weight"))},
    Experts: {"gated": lambda settings: settings.get("experts.type") == "gated"},
    Mamba: {"dt_rank": lambda settings: settings.get("mamba.dt_rank", -(-settings.get("d_model") // 16))},  # modules/mamba_simple.py
    ShortConvolution: {"width": lambda settings: settings.get("short_convolution.width", settings.get("d_model"))},
    Cluster: {"per_node": lambda settings: min(per_node(settings), settings.size("devices"))},
    Adapters: {name: partial(words, key=f"adapters.{name}") for name in ("targets", "feedforward", "layers")},
    Training: {
        "gradient_dtype": gradient_dtype_of,
        "liger": liger_of,
        "input_gradients": input_gradients,
        **{name: partial(words, key=name) for name in ("train", "also_train")},
    },
}
