from __future__ import annotations

import doctest

from planner.capacity import peak
from planner.spec.records import Attention, FeedForward, Layer, Model, Run, Training
from planner.trace import primitives as op
from planner.trace.decoder import new_tape


def test_the_worked_example_of_three_layers_is_true() -> None:
    model = Model(8, 8, 8, 8, 3, (Run(3, (Layer(Attention(1, 1, 8), FeedForward(8)),)),))
    t = new_tape(model, Training(1, 1, precision="fp32"))
    found = doctest.testmod(peak, extraglobs={"t": t, "op": op})
    assert (found.failed, found.attempted) == (0, 10)
