"""What layers share to learn where a token stands: rotary tables and ALiBi's slopes, made once for a forward pass.

Rotary: Su et al. 2021 (arXiv:2104.09864). ALiBi: Press et al. 2021 (arXiv:2108.12409).
"""

from __future__ import annotations

from planner.spec.records import Model
from planner.trace import primitives as op
from planner.trace.implementations import Implementation
from planner.trace.sizes import Size
from planner.trace.tape import Tape
from planner.trace.tensor import Tensor


class Places:
    """The tables that the layers of one forward pass read, each made at its first reader's request and kept once."""

    def __init__(self, t: Tape, implementation: Implementation, model: Model, n: Size) -> None:
        layers = [layer for run in model.runs for layer in run.layers]
        rotary = dict.fromkeys(layer.positions.rotary_dim for layer in layers if layer.positions.type == "rope")
        heads = dict.fromkeys(layer.attention.n_heads for layer in layers if layer.positions.type == "alibi")
        with t.at("positions", "position"):
            self.tables = {dim: implementation.rotary_tables(t, n, dim) for dim in rotary}
            self.biases = {H: implementation.alibi_bias(t, n, H) for H in heads}
        self.all = (*(table for tables in self.tables.values() for table in tables), *self.biases.values())

    def rotate(self, t: Tape, x: Tensor, rotary_dim: Size) -> Tensor:
        """Return x · cos + rotate_half(x) · sin over the first rotary_dim of x [B, heads, n, head_dim].

        The derivative needs the tables, never x.
        """
        cos, sin = self.tables[rotary_dim]
        *outer, h = x.shape
        whole = rotary_dim == h
        turned = x if whole else op.split(t, x, (*outer, rotary_dim))[0]
        half = rotary_dim // 2
        first, second = op.split(t, turned, (*outer, half), (*outer, rotary_dim - half))
        made = op.multiply(t, turned, cos)
        made = op.add(t, made, op.multiply(t, op.cat(t, op.negate(t, second), first), sin))
        return made if whole else op.cat(t, made, op.split(t, x, (*outer, h - rotary_dim))[0])

    def slopes(self, H: Size) -> Tensor:
        """Return the bias [1, H, n, n] that ALiBi adds to the scores, -inf above the diagonal."""
        return self.biases[H]
