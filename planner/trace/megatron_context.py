"""Attention over sequences that several devices share, in Transformer Engine 2.11: dot_product_attention/context_parallel.py.

A device has n tokens of each sequence, of cp devices: its first and its last part. ``ulysses`` (AttnFuncWithCPAndQKVOA2A) exchanges these
for all tokens of some heads; ``ring`` (AttnFuncWithCPAndKVP2P) passes keys and values around; ``all_gather``
(AttnFuncWithCPAndKVAllGather) gathers them.
"""

from __future__ import annotations

from collections.abc import Callable

from planner.trace import primitives as op
from planner.trace.kernels import fused_flops
from planner.trace.nodes import Flops, Saved, Sent
from planner.trace.sizes import Size, maximum
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor

Kernel = Callable[[Tensor, Tensor, Tensor], Tensor]


def attend(t: Tape, q: Tensor, k: Tensor, v: Tensor, kernel: Kernel) -> Tensor:
    """Attend with q [B, H, n, h] to k and v [B, K, n, h] of all devices -> [B, H, n, h]. ``kernel``: on one device."""
    kind = t.training.layout.context_kind if t.training.layout else "ring"
    if kind == "ulysses":
        return of_tokens(t, kernel(*of_heads(t, q, k, v)))
    return ring(t, q, k, v) if kind == "ring" else gathered(t, q, k, v)


def of_heads(t: Tape, *qkv: Tensor) -> list[Tensor]:
    """Exchange tokens of all heads [B, H, n, h] for all tokens of some heads [B, H / cp, n·cp, h].

    Temporary: a copy of each before it is sent, and what arrives, until it is in order.
    """
    cp, (q, k, v) = t.context, (x.bytes for x in qkv)
    made = [t.tensor((x.shape[0], x.shape[1] // cp, x.shape[2] * cp, x.shape[3]), x.dtype) for x in qkv]
    return [
        *t.record("all-to-all", qkv, made, temporary=q + k + 2 * v, backward_temporary=q + k + 2 * v, sends=exchange(*qkv), by=of_heads)
    ]


def of_tokens(t: Tape, x: Tensor) -> Tensor:
    """Exchange all tokens of some heads for tokens of all heads, with temporary tensors as ``of_heads``."""
    B, heads, n, h = x.shape
    made = t.tensor((B, heads * t.context, n // t.context, h), x.dtype)
    return t.record("all-to-all", [x], [made], temporary=x.bytes, backward_temporary=2 * x.bytes, sends=exchange(x), by=of_tokens)[0]


def exchange(*tensors: Tensor) -> list[Sent]:
    """Return what an exchange of tensors, and that of their gradients, communicates."""
    return [Sent("all-to-all", x.bytes, when, "context") for x in tensors for when in ("forward", "backward")]


def ring(t: Tape, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend in cp steps, each to the keys and values of another device. Saves q, the last keys and values, the output and logsumexp.

    Until the last step, forward keeps the keys and values, and the result, of each step: on the last device of all its queries. Backward
    has two buffers of keys, values and their gradients, and the gradients of a step.
    """
    pair, made, cp = t.tensor((*k.shape[:-1], k.shape[-1] + v.shape[-1]), k.dtype), output(t, q, v), t.context
    statistics, states = of_steps(t, q, cp)
    sends = [Sent("send", (cp - 1) * pair.bytes, "forward", "context"), Sent("send", (2 * cp - 1) * pair.bytes, "backward", "context")]
    saved = [Saved(q, "queries"), Saved(pair, "keys and values"), Saved(made, "output")]
    saved += [Saved(statistics, "logsumexp"), Saved(states, "RNG states")]
    step = made.bytes + statistics.bytes
    temporary, backward = (cp - 1) * pair.bytes + cp * step, 4 * pair.bytes + q.bytes
    made = t.record(
        "ring_attention",
        [q, k, v],
        [made, pair, statistics, states],
        saved,
        of_parts(t, q, v),
        temporary=temporary,
        backward_temporary=backward,
        sends=sends,
        by=ring,
    )[0]
    op.keep_alive(t, k, v)
    return made


def gathered(t: Tape, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend in two steps, of the device's first and last part, to gathered keys and values.

    Saves q, k, v, and the result and logsumexp of each step; the output is a copy. Temporary: keys and values of all devices, also as they
    arrive; backward has their gradients, of a step, too.
    """
    steps, made, whole = output(t, q, v), output(t, q, v), t.context * (k.bytes + v.bytes)
    statistics, states = of_steps(t, q, 2)
    sends = [Sent("all-gather", whole, when, "context") for when in ("forward", "backward")]
    sends.append(Sent("reduce-scatter", whole, "backward", "context"))
    saved = [Saved(q, "queries"), Saved(k, "keys"), Saved(v, "values"), Saved(steps, "output of steps")]
    saved += [Saved(statistics, "logsumexp"), Saved(states, "RNG states")]
    temporary = maximum(whole, whole + t.context * k.bytes - 2 * made.bytes)
    return t.record(
        "gathered_attention", [q, k, v], [made, steps, statistics, states], saved, of_parts(t, q, v), temporary=temporary,
        backward_temporary=3 * whole + q.bytes, sends=sends, by=gathered,
    )[0]  # fmt: skip


def of_parts(t: Tape, q: Tensor, v: Tensor) -> Flops:
    """Return the FLOPs of a device's first and last part of a sequence, which see half of all keys, and their own."""
    n = q.shape[2]
    return fused_flops(t, q, v.shape[-1], n * t.context, n * (n + n * t.context) // 2)


def output(t: Tape, q: Tensor, v: Tensor) -> Tensor:
    """Return a new tensor for the mixed values of queries."""
    return t.tensor((*q.shape[:-1], v.shape[-1]), q.dtype)


def of_steps(t: Tape, q: Tensor, steps: Size) -> tuple[Tensor, Tensor]:
    """Return new tensors for a number of each query, and for a state of random numbers of each step."""
    return t.tensor((*q.shape[:-1], 1), "float32", needs_grad=False), t.tensor((steps, 2), "int64", needs_grad=False)
