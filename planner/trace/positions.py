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

    def rotate(self, t: Tape, x: Tensor, rotary_dim: Size) -> Tensor:
        """Return x · cos + rotate_half(x) · sin over the first rotary_dim of x [B, heads, n, head_dim].

        The derivative needs the tables, never x.
        """
        cos, sin = self.tables[rotary_dim]
        turned = x.view(*x.shape[:-1], rotary_dim)
        half = t.tensor(turned.shape, x.dtype)
        t.record("rotate_half", [turned], [half], by=self.rotate)
        made = op.add(t, op.multiply(t, turned, cos), op.multiply(t, half, sin))
        if rotary_dim == x.shape[-1]:
            return made
        whole = t.tensor(x.shape, made.dtype)
        t.record("cat", [made, x], [whole], by=self.rotate)
        return whole

    def slopes(self, H: Size) -> Tensor:
        """Return the bias [1, H, n, n] that ALiBi adds to the scores, -inf above the diagonal."""
        return self.biases[H]
