"""Context parallelism of PyTorch: devices share every sequence, and each attends from its part to the keys of all parts.

Read from PyTorch 2.13, torch/distributed/tensor/experimental/_context_parallel (_attention.py, _load_balancer.py). A device has the n-th
part of a sequence from its start and the n-th from its end, so that all attend to as many keys. It attends with the kernel of fused
attention in as many steps as there are devices, each to the keys of one device, and merges the results in float32: first to its own, with
the causal mask; then without a mask to the first half of the keys of devices before it, and from its second half of queries to all keys of
devices after it.

With DeepSpeed-Ulysses (Jacobs et al. 2023, arXiv:2309.14509), devices instead exchange parts of sequences for heads before attention, and
back after it. Read from DeepSpeed 0.18, deepspeed/sequence/layer.py: DistributedAttention with the batch in front, without overlap.

On one device, and without context parallelism, all of them return what they are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

from planner.spec.precision import BYTES
from planner.trace import primitives as op
from planner.trace.nodes import Sent
from planner.trace.sizes import Size, choose, exceeds_one, maximum, product, structure
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor
from planner.trace.unsupported import UnsupportedError

Step: TypeAlias = Literal["own keys", "half of the keys", "half of the queries"]
OWN: Step = "own keys"
KEYS: Step = "half of the keys"
QUERIES: Step = "half of the queries"
UNLIKE = 3  # steps of a kind that may differ in what is allocated
WIDE = BYTES["float32"]
ALIGNMENT = 8  # elements of heads that no kernel pads


KERNELS = ("flash_attention", "cudnn_attention")  # of those that context_parallel runs


class Around(NamedTuple):
    """What attention is around its kernel.

    Its inputs, the keys of a query, executed pairs (query, key), temporary bytes forward and backward, and communication.
    """

    inputs: tuple[Tensor, ...]
    keys: Size
    pairs: Size
    forward: Size = 0
    backward: Size = 0
    sends: Sequence[Sent] = ()


def token_ids(t: Tape) -> tuple[Tensor, Tensor]:
    """Return token ids and targets [B, n / cp]. context_parallel leaves them in the storages in which whole sequences were."""
    B, n = t.training.batch_size, t.training.sequence_length if t.rings else t.sequence
    whole = (t.tensor((B, n), "int64", needs_grad=False) for _ in range(2))
    ids, targets = (Tensor((B, t.sequence), one.dtype, one.parts, needs_grad=False) for one in whole)
    return ids, targets


def projected(t: Tape, x: Tensor, heads: Size, *, queries: bool = False) -> Tensor:
    """Return projected heads [B, n, heads·h], whose gradient is copied, since attention makes it head by head.

    That of ``queries`` is made so only if some of them are those of a later half.
    """
    if not t.rings or structure(heads) == 1 or (queries and t.context_rank == structure(t.context) - 1):
        return x
    return t.record("transpose", [x], [Tensor(x.shape, x.dtype, x.parts, needs_grad=x.needs_grad)], by=projected)[0]


def exchange_for_heads(t: Tape, x: Tensor) -> Tensor:
    """Return a part of the heads x [B, H, n / cp, h] for whole sequences: [B, H / cp, n, h]."""
    B, heads, n, h = x.shape
    return _exchanged(t, x, (B, heads // t.context, n * t.context, h)) if t.exchanges_heads else x


def exchange_for_sequences(t: Tape, x: Tensor, *alive: Tensor) -> Tensor:
    """Return all heads of x [B, H / cp, n, h] for the device's part of sequences: [B, H, n / cp, h]. Others stay alive until then."""
    if not t.exchanges_heads:
        return x
    B, heads, n, h = x.shape
    made = _exchanged(t, x, (B, heads * t.context, n // t.context, h))
    op.keep_alive(t, x, *alive)
    return made


def _exchanged(t: Tape, x: Tensor, shape: tuple[Size, ...]) -> Tensor:
    """Exchange parts of x. They are copied before or after, and of several sequences before and after."""
    made = t.tensor(shape, x.dtype)
    sends = [Sent("all-to-all", x.bytes, "forward", "context"), Sent("all-to-all", x.bytes, "backward", "context")]
    temporary = x.bytes * (1 + exceeds_one(x.shape[0]))
    return t.record("all-to-all", [x], [made], temporary=temporary, backward_temporary=temporary, sends=sends, by=_exchanged)[0]


def check_kernel(t: Tape, name: str, head_dim: Size) -> None:
    """Raise UnsupportedError for kernels of attention that are not modeled with context parallelism."""
    if t.rings and (name not in KERNELS or structure(head_dim) % ALIGNMENT):
        raise UnsupportedError(f"{name} of heads of {structure(head_dim)} channels with context_parallel is not modeled yet")


def around(t: Tape, q: Tensor, k: Tensor, v: Tensor, made: Tensor, statistics: Sequence[Tensor]) -> Around:
    """Return what fused attention of q [B, H, n, h] to k and v [B, K, n, h] is, and set the memory layout of its result.

    With context parallelism, the gradients of keys and values are views of one tensor.
    """
    n, m = q.shape[2], k.shape[2]
    if not t.rings:
        return Around((q, k, v), m, n * m)
    count, (rows, *random) = t.context, (one.bytes for one in statistics)
    ring = _Ring(q, k, v, rows, sum(random), choose(partial(_steps, rank=t.context_rank), count), count * t.gathers_keys)
    made.by_head = made.by_head or QUERIES in ring.steps
    both = Tensor((product(k.shape) + product(v.shape),), k.dtype, (*k.parts, *v.parts))
    t.record("cat", [k, v], [both], passes_gradient=True, views_gradient=True, by=around)
    passed = ("all-gather", count * both.bytes) if t.gathers_keys else ("all-to-all", (count - 1) * both.bytes)
    gradients = "all-to-all", count * product(both.shape) * WIDE
    sends = [Sent(*passed, "forward", "context"), Sent(*passed, "backward", "context"), Sent(*gradients, "backward", "context")]
    forward, backward = made.bytes + sum(one.bytes for one in statistics), q.bytes + both.bytes  # of results
    temporary = ring.forward() - forward, ring.backward() - backward
    return Around((q, both), n * count, n * (n + n * count) // 2, *temporary, sends)


class _Variables:
    """The bytes that a function's variables hold, step by step. A tensor that several variables hold counts once."""

    def __init__(self) -> None:
        self.sizes: list[Size] = []  # of all tensors
        self.held: dict[str, int] = {}  # the variables' tensors, by index
        self.samples: list[Size] = []

    def make(self, **sizes: Size) -> None:
        """Make tensors of these bytes, and then free those that only their variables held."""
        made = dict(zip(sizes, range(len(self.sizes), len(self.sizes) + len(sizes)), strict=True))
        self.sizes += sizes.values()
        self.samples.append(sum(self.sizes[one] for one in {*self.held.values(), *made.values()}))
        self.held |= made

    def same(self, **others: str) -> None:
        """Let variables hold the tensors of others."""
        self.held |= {name: self.held[other] for name, other in others.items()}

    def free(self, *names: str) -> None:
        """Let variables hold nothing."""
        for name in names:
            self.held.pop(name, None)

    @property
    def most(self) -> Size:
        """The most bytes at a time."""
        return maximum(*self.samples)


@dataclass(frozen=True, slots=True)
class _Ring:
    """Attention in steps, as the functions of the module that this one names run them."""

    q: Tensor
    k: Tensor
    v: Tensor
    rows: Size  # bytes of logsumexp
    random: Size  # bytes of the kernel's random state
    steps: tuple[Step, ...]
    gathered: Size  # devices whose keys are gathered, 0 if they are passed around

    def first(self, held: _Variables) -> None:
        """Make own keys and values contiguous."""
        held.make(key=self.k.bytes * _copied(self.k))
        held.make(value=self.v.bytes * _copied(self.v))

    def receive(self, held: _Variables, number: int) -> None:
        """Let the variables hold the keys and values of another device, from the second step on."""
        if number:
            held.same(received="buffer", key="buffer", value="buffer")

    def send(self, held: _Variables, number: int) -> None:
        """Send keys and values to the next device, or gather those of all, except in the last step."""
        if number < len(self.steps) - 1:
            held.make(sent=self.keys)
            if not self.gathered:
                held.make(buffer=self.keys)
            elif number == 0:
                held.make(buffer=self.gathered * self.keys)

    @property
    def keys(self) -> Size:
        """Bytes of keys and values."""
        return self.k.bytes + self.v.bytes

    def forward(self) -> Size:
        """Return the most bytes that the forward pass holds (_templated_ring_attention, _SDPAMerger)."""
        held, casts, q = _Variables(), self.q.dtype != "float32", product(self.q.shape) * WIDE
        self.first(held)
        for number, step in enumerate(self.steps):
            self.receive(held, number)
            self.send(held, number)
            held.free("sent")
            held.same(k="key", v="value")
            part = 2 if step == QUERIES else 1
            rows, wide = self.rows // part, q // part
            held.make(out=self.q.bytes // part, logsumexp=self.rows // part, random=self.random)
            if casts:
                held.make(block=wide)
            else:
                held.same(block="out")
            if number == 0:
                held.same(merged="block", merged_rows="logsumexp")
            else:
                _weigh(held, wide, rows)
                if part == 1:
                    held.same(merged="new", merged_rows="new_rows")
                else:
                    held.make(merged_rows=self.rows)
                    held.make(merged=q)
            held.free("block", "new", "new_rows")
        held.make(result=self.q.bytes * casts)
        return held.most

    def backward(self) -> Size:
        """Return the most bytes that the backward pass holds (_templated_ring_attention_backward). Gradients are summed in float32."""
        held, casts = _Variables(), self.q.dtype != "float32"
        q, k, v = (product(one.shape) * WIDE for one in (self.q, self.k, self.v))
        for name, size in (("query_gradient", q), ("key_gradient", k), ("value_gradient", v)):
            held.make(**{name: size})
        self.first(held)
        for number, step in enumerate(self.steps):
            self.receive(held, number)
            self.send(held, number)
            held.same(k="key", v="value")
            held.free("rows")
            of_queries, of_keys = (2 if step == kind else 1 for kind in (QUERIES, KEYS))
            if of_queries > 1:
                held.make(rows=self.rows // of_queries)
            held.make(of_q=self.q.bytes // of_queries, of_k=self.k.bytes // of_keys, of_v=self.v.bytes // of_keys)
            if number == 0:
                held.make(flat_k=k * _turned(self.k))
                held.make(flat_v=v * _turned(self.v))
            else:
                held.same(gradients="summed", key_gradient="summed", value_gradient="summed")
                if of_keys > 1:
                    held.make(key_gradient=k)
                    held.make(value_gradient=v)
            held.make(gradients=k + v)
            held.free("flat_k", "flat_v")
            held.make(summed=k + v)
            if of_queries > 1:
                held.make(query_gradient=q)
        held.make(query_gradient=self.q.bytes * casts)
        held.make(gradients=self.keys * casts)
        return held.most


def _weigh(held: _Variables, wide: Size, rows: Size) -> None:
    """Weigh the results of two steps by their sums of exponentials."""
    held.make(difference=rows)
    held.make(weight=rows)
    held.free("difference")
    held.make(change=wide)
    held.make(weighted=wide)
    held.free("weight", "change")
    held.make(new=wide)
    held.free("weighted")
    held.make(difference=rows)
    held.make(weight=rows)
    held.free("difference")
    held.make(new_rows=rows)
    held.free("weight")


def _turned(x: Tensor) -> bool:
    """Return whether heads [B, K, n, h] are stored as [B, n, K, h]."""
    return not x.by_head and structure(x.shape[1]) > 1


def _copied(x: Tensor) -> bool:
    """Return whether heads [B, K, n, h] are not contiguous."""
    return _turned(x) or product(x.storage.shape) != product(x.shape)


def _steps(count: int, rank: int) -> tuple[Step, ...]:
    """Return the steps of a device; of many alike only as many as differ in what is allocated."""
    before, after = min(rank, UNLIKE), min(count - 1 - rank, UNLIKE)
    return (OWN, *(KEYS,) * before, *(QUERIES,) * after)
