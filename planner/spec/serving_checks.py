"""Checks of how a model is served."""

from __future__ import annotations

from collections.abc import Iterator

from planner import devices
from planner.spec.defaults import prompt_length, whole_amount
from planner.spec.key_checks import key_checks
from planner.spec.problems import Problem, quote
from planner.spec.records import Cache, Serving
from planner.spec.records.serving import OF_LLAMA_CPP, PLAIN_WEIGHTS
from planner.spec.settings import Document, Settings

Problems = Iterator[Problem]


def context(settings: Settings, document: Document) -> Problems:
    """Find prompts and outputs beyond the context."""
    longest, output = document.model.size("context_length"), settings.size("output")
    prompt = prompt_length(settings, document.model)
    if prompt + output > longest or prompt < 1:
        key, most = ("prompt", longest - output) if settings.written("prompt") and output < longest else ("output", longest - 1)
        message = f"prompt {prompt} and output {output} exceed context_length {longest}"
        yield settings.problem(key, "context", message, f"write at most {most}" if most > 0 else "write a longer context_length")


def room(settings: Settings, document: Document) -> Problems:
    """Find a static cache without room for all tokens."""
    needed = prompt_length(settings, document.model) + settings.size("output")
    if settings.written("cache.room") and settings.size("cache.room") < needed:
        message = f"cache.room {settings.size('cache.room')} is less than prompt and output, {needed} tokens"
        yield settings.problem("cache.room", "room", message, f"write at least {needed}")


def room_of_static(settings: Settings, _: Document) -> Problems:
    """Find the room of a cache that grows."""
    if settings.written("cache.room") and settings.get("cache.type") != "static":
        yield settings.problem("cache.room", "room", "cache.room requires cache.type: static", "remove it, or write type: static")


def amounts(settings: Settings, _: Document) -> Problems:
    """Find memory that is neither a device nor an amount with a unit."""
    for key in ("memory", "cache_memory"):
        if not settings.written(key):
            continue
        text = settings.get(key)
        if whole_amount(text) or (key == "memory" and devices.find(text)):
            continue
        near = devices.nearest(text) if key == "memory" else ()
        hint = f"did you mean {' or '.join(near)}?" if near else "for example 80GiB"
        what = "a device of the catalog, or a number and a unit" if key == "memory" else "a number and a unit"
        yield settings.problem(key, "unit", f"serving.{key} must be {what}, not {quote(text)}", hint)


def share_of_memory(settings: Settings, _: Document) -> Problems:
    """Find a share of the memory that is above all of it."""
    written = settings.written("memory_utilization")
    if written and settings.get("memory_utilization") > 1:
        message = f"memory_utilization {quote(written.text)} exceeds 1, all of the memory"
        yield settings.problem("memory_utilization", "share", message, "write a fraction, for example 0.9")


def weights_of_engine(settings: Settings, _: Document) -> Problems:
    """Find weights in a format of another engine, and packed ones of transformers, whose passes over them are not modeled."""
    weights, engine = settings.get("weights"), settings.get("engine")
    of_file = weights in OF_LLAMA_CPP
    if weights not in PLAIN_WEIGHTS and (engine == "transformers" or of_file != (engine == "llama.cpp")):
        message = f"weights {weights} are not modeled with engine {engine}"
        yield settings.problem("weights", "weights", message, f"write engine: {'llama.cpp' if of_file else 'vllm'}, or weights: bf16")


def shared_prefix(settings: Settings, document: Document) -> Problems:
    """Find a shared prefix that leaves no token of a prompt."""
    prefix, prompt = settings.size("shared_prefix"), prompt_length(settings, document.model)
    if prefix >= prompt:
        message = f"shared_prefix {prefix} must be less than prompt {prompt}"
        yield settings.problem("shared_prefix", "prefix", message, f"write at most {prompt - 1}")


def accepted(settings: Settings, _: Document) -> Problems:
    """Find proposed tokens without a probability that they are accepted, and the other way round; and one above 1."""
    drafted, rate = settings.size("draft_tokens"), settings.get("acceptance")
    written = settings.written("acceptance")
    if written and rate > 1:
        yield settings.problem("acceptance", "share", f"acceptance {quote(written.text)} exceeds 1", "write a fraction, for example 0.8")
    elif bool(drafted) != bool(rate):
        key, other = ("draft_tokens", "acceptance: 0.8") if drafted else ("acceptance", "draft_tokens: 3")
        yield settings.problem(key, "draft", f"{key} requires {other.partition(':')[0]}", f"add {other}, or remove {key}")


SERVING = (
    shared_prefix,
    accepted,
    weights_of_engine,
    *key_checks(Serving),
    *key_checks(Cache, "cache."),
    context,
    room,
    room_of_static,
    amounts,
    share_of_memory,
)
