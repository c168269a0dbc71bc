"""The figures of a model that answers requests, as frozen records of exact integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from planner.capacity.cached import KindOfCache
from planner.capacity.pool import Pool
from planner.capacity.roofline import Bound
from planner.spec.records import Serving
from planner.trace.sizes import maximum


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over the model: its FLOPs as PyTorch counts them, all bytes at its peak, and the operator there."""

    flops: int
    peak_bytes: int
    operator: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least time of a pass over the prompts and of one over the last token."""

    prefill: Bound
    last: Bound
    serving: Serving

    @property
    def tokens_per_pass(self) -> float:
        """Expected tokens of a sequence and pass: one, and those of the draft before the first that is refused.

        (1 - a^(k + 1)) / (1 - a) of k tokens, each accepted with probability a (Leviathan et al. 2023, arXiv:2211.17192, equation 1).
        """
        return float(sum(self.serving.acceptance**count for count in range(self.serving.draft_tokens + 1)))

    @property
    def tokens_per_second(self) -> float:
        """The most tokens that one sequence can decode in a second."""
        return self.tokens_per_pass / self.last.seconds

    @property
    def all_tokens_per_second(self) -> float:
        """The same of all sequences."""
        return self.serving.batch_size * self.tokens_per_second

    @property
    def price_per_million(self) -> float | None:
        """The least price of a million decoded tokens; None without a price."""
        if self.serving.price is None:
            return None
        return float(self.serving.price) * self.serving.tensor_parallel / 3600 / self.all_tokens_per_second * 10**6


@dataclass(frozen=True, slots=True)
class Served:
    """The figures of a model that answers ``batch_size`` requests at once. Bytes are those of one device."""

    name: str
    spec_path: str
    serving: Serving
    params: int
    weights_bytes: int
    buffers_bytes: int
    inputs_bytes: int
    cache_bytes: int  # after the prompts
    cache_after_bytes: int  # after the outputs
    caches: tuple[KindOfCache, ...]  # the same by kind of layer
    prefill: Pass  # over all prompts
    first: Pass  # over the first token of each output
    last: Pass  # over the last one
    bounds: Bounds | None
    not_counted: tuple[str, ...]

    @property
    def peak_bytes(self) -> int:
        """The largest of all passes: that of the first or of the last token, since windows leave the prompt's storage with the first."""
        return cast("int", maximum(*(one.peak_bytes for one in (self.prefill, self.first, self.last))))

    @property
    def free_bytes(self) -> int | None:
        """The memory of the device less the largest peak, negative if the peak does not fit; None if the spec states no memory."""
        return None if self.serving.memory_bytes is None else self.serving.memory_bytes - self.peak_bytes


@dataclass(frozen=True, slots=True)
class Pooled:
    """The figures of a model that an engine with a pool of memory for the cache serves. Bytes are those of one device."""

    name: str
    spec_path: str
    serving: Serving
    params: int
    weights_bytes: int
    pool: Pool
    bounds: Bounds | None
    not_counted: tuple[str, ...]
