"""A forward pass without gradients, whose keys and values go into a cache that the next pass reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.trace.sizes import Size


@dataclass(frozen=True, slots=True)
class Inference:
    """A pass over the first tokens of each sequence (``prompt`` is 0), or over one more after ``past`` tokens, ``prompt`` of them at once.

    ``room``: tokens for which the cache has room from the start; None: it grows. ``logits``: of each sequence's last token, or of all.
    """

    prompt: Size = 0
    past: Size = 0
    room: Size | None = None
    logits: Literal["last", "all"] = "last"

    @property
    def decodes(self) -> bool:
        """Whether earlier tokens are cached."""
        return self.prompt != 0
