"""A model, its training and its layout over symbols for sizes, and the structure that such formulas hold for.

Structure depends on whether a degree is one, and on few other small sizes. So these are integers, and each symbol is at least as large as
the smallest size with its structure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from planner.capacity.schedule_events import CLOSED, ROUNDS
from planner.spec.records import Layout, Model, Training
from planner.trace.sizes import Choice, Size, symbol
from planner.trace.stages import uniform

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

OF_CLUSTER = ("devices",)
OF_LAYOUT = ("tensor_parallel", "pipeline_parallel", "virtual_stages", "context_parallel", "expert_parallel", "shard_degree")
OF_TRAINING = ("batch_size", "sequence_length", "gradient_accumulation")
SIZES = (*OF_CLUSTER, *OF_LAYOUT, *OF_TRAINING, "n_layers", "tokens")
"""The sizes that may differ between the layouts of a grid."""

Values: TypeAlias = Any  # an integer, a size, or an array of one integer per layout
Sizes = Mapping[str, Values]  # by name
_EXACT = ("virtual_stages", "expert_parallel")
DIFFERENT_LAYERS = 3  # the first, the last and those between, of a device with several


@dataclass(frozen=True, slots=True)
class Structure:
    """Which sizes are symbols.

    ``stages``: the devices of a pipeline of three or more, of which the first, the second and the last one have the highest peaks;
    ``layers``: those of a stage; ``data``: the devices that share data or weights; ``context``: those that share a sequence.
    """

    model: Model
    training: Training
    layout: Layout
    stages: bool
    layers: bool
    data: bool
    context: bool

    def values(self, sizes: Sizes) -> dict[str, Values]:
        """Return the values of what may be a symbol, by its name."""
        return {name: one for name, (one, _) in self.named(sizes).items()}

    def named(self, sizes: Sizes) -> dict[str, tuple[Values, int]]:
        """Return what may be a symbol, by its name, and the least value with which it is one."""
        passes, stages, data = sizes["gradient_accumulation"], sizes["pipeline_parallel"], data_degree(sizes)
        in_rounds = {"rounds": (passes // stages, ROUNDS)} if self.layout.schedule == "interleaved" else {"m": (passes, 2)}
        return {
            "tp": (sizes["tensor_parallel"], 2),
            **({"pp": (stages, 3)} if self.stages else {}),
            **({"dp": (data, 2)} if self.data else {}),
            **({"cp": (sizes["context_parallel"], 2)} if self.context else {}),
            **in_rounds,
            "B": (sizes["batch_size"], 1),
            "n": (sizes["sequence_length"] // self._of_sequence(sizes), 1),
            **({"tokens": (sizes["tokens"], 1)} if self.training.tokens else {}),
            **({"layers": (sizes["n_layers"] // (stages * sizes["virtual_stages"]), DIFFERENT_LAYERS + 1)} if self.layers else {}),
        }

    def exact(self, sizes: Sizes) -> list[Values]:
        """Return the sizes that the structure depends on by their values."""
        exact = {
            "pipeline_parallel": not self.stages,
            "devices": not self.data,
            "shard_degree": not self.data,
            "n_layers": not self.layers,
            "context_parallel": not self.context,
        }
        passes, stages = sizes["gradient_accumulation"], sizes["pipeline_parallel"]
        left = [passes - passes // stages * stages] if self.layout.schedule == "interleaved" else []
        return [*left, *(sizes[name] for name in (*_EXACT, *(name for name, is_exact in exact.items() if is_exact)))]

    def _of_sequence(self, sizes: Sizes) -> Values:
        """Return the devices that divide a sequence between them."""
        degree: Values = sizes["context_parallel"] * (sizes["tensor_parallel"] if self.layout.sequence_parallel else 1)
        return degree

    def over_symbols(self, sizes: Mapping[str, int]) -> Symbolic:
        """Return the model and its training over symbols, with one layout's sizes as hints."""
        choices: list[Choice] = []
        known = {name: symbol(name, value, choices) if value >= least else value for name, (value, least) in self.named(sizes).items()}
        made: dict[str, Size] = dict(sizes)
        made["tensor_parallel"], made["pipeline_parallel"] = known["tp"], known.get("pp", sizes["pipeline_parallel"])
        made["context_parallel"] = known.get("cp", sizes["context_parallel"])
        data: Size = known["dp"] if "dp" in known else data_degree(sizes)
        made["devices"] = made["tensor_parallel"] * made["pipeline_parallel"] * made["context_parallel"] * data
        more = sizes["gradient_accumulation"] % sizes["pipeline_parallel"]
        made["gradient_accumulation"] = known["rounds"] * made["pipeline_parallel"] + more if "rounds" in known else known["m"]
        made["tokens"] = known.get("tokens", 1)
        made["batch_size"], made["sequence_length"] = known["B"], known["n"] * self._of_sequence(made)
        if self.layers:
            made["n_layers"] = known["layers"] * made["pipeline_parallel"] * made["virtual_stages"]
        names = tuple(name for name, one in known.items() if not isinstance(one, int))
        return Symbolic(*with_sizes(self.model, self.training, made), names, choices)


@dataclass(frozen=True, slots=True)
class Symbolic:
    """A model and its training over symbols, the symbols' names, and the choices that a trace of the model makes by them."""

    model: Model
    training: Training
    names: tuple[str, ...]
    choices: list[Choice] = field(default_factory=list)


def size_of(name: str, model: Model, training: Training) -> int:
    """Return a size of a model, its training or its layout."""
    layout = _layout(training)
    of = layout.cluster if name in OF_CLUSTER else layout if name in OF_LAYOUT else model if name == "n_layers" else training
    return cast("int", getattr(of, name) or 1)  # no tokens


def data_degree(sizes: Sizes) -> Values:
    """Return the devices that read different data."""
    degree: Values = sizes["devices"] // prod(sizes[key] for key in ("tensor_parallel", "pipeline_parallel", "context_parallel"))
    return degree


def structure_of(model: Model, training: Training, *, varies: bool) -> Structure:
    """Return which sizes are symbols for a model; ``varies``: whether layouts have different numbers of layers.

    PyTorch's ZeRO-1 gives devices whole tensors, and DeepSpeed gradients of whole ones, so that their number, and that of layers, are
    structure. The devices and the groups of HSDP are, too, and PyTorch's devices that share a sequence, which attend in as many steps.
    """
    layout = _layout(training)
    divides = training.by_megatron or (layout.data_parallel != "zero1" and layout.engine != "deepspeed")
    equal = uniform(model) and divides and layout.has_equal_stages
    stages = equal and layout.schedule in CLOSED
    data = divides and layout.data_parallel != "hsdp"
    return Structure(model, training, layout, stages, layers=equal and (stages or varies), data=data, context=training.by_megatron)


def _layout(training: Training) -> Layout:
    assert training.layout is not None  # noqa: S101 - layouts are of a cluster
    return training.layout


def with_sizes(model: Model, training: Training, sizes: Mapping[str, Size]) -> tuple[Model, Training]:
    """Return a model and its training with other sizes."""
    of_layout, of_training = ({key: cast("Any", sizes[key]) for key in keys} for keys in (OF_LAYOUT, OF_TRAINING))
    layout = _layout(training)
    layout = replace(layout, cluster=replace(layout.cluster, devices=cast("int", sizes["devices"])), **of_layout)
    tokens = None if training.tokens is None else cast("int", sizes["tokens"])
    training = replace(training, layout=layout, tokens=tokens, **of_training)
    if sizes["n_layers"] != model.n_layers:
        count = cast("int", sizes["n_layers"])
        model = replace(model, n_layers=count, runs=(replace(model.runs[0], count=count),))
    return model, training


def kinds(structure: Structure, sizes: Sizes) -> list[NDArray[np.int64]]:
    """Return what the structure of layouts depends on: symbols only by whether they are one."""
    import numpy as np

    return [*(np.minimum(values, least) for values, least in structure.named(sizes).values()), *structure.exact(sizes)]
