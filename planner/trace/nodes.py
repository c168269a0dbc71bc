"""The nodes of a trace: the operations of a forward pass, in order, as a tree.

Equal layers are traced once (``Repeat``) and a checkpointed region is one node (``Checkpoint``), so the tree stays small for deep models.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from planner.trace.sizes import Size
from planner.trace.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Flops:
    """FLOPs of one operator; 1 multiply-add (MAC) is 2 FLOPs.

    ``forward`` and ``backward`` are executed FLOPs, as PyTorch counts them. ``causal`` counts only the pairs (query, key) that the mask
    allows. ``full`` counts twice those pairs: full n × n attention, or its part inside a window.
    """

    forward: Size = 0
    full: Size = 0
    causal: Size = 0
    backward: Size = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Saved:
    """A tensor that an operator saves for backward."""

    tensor: Tensor
    what: str


@dataclass(frozen=True, slots=True)
class Sent:
    """Bytes of the whole tensor of a collective: in each forward or backward pass of a microbatch, or once per step.

    ``group``: the devices that communicate.
    """

    collective: str
    bytes: Size
    when: Literal["forward", "backward", "step"]
    group: Literal["tensor", "context", "experts", "stages", "ends"] = "tensor"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operator of the forward pass. If it has FLOPs, it multiplies its first two inputs.

    ``temporary`` and ``backward_temporary`` are bytes allocated only while its kernels run. ``passes_gradient``: its inputs share its
    output's gradient (a sum, a view). ``elementwise``: its inputs' gradients first have its output's shape and dtype, and are then summed
    over broadcast dimensions and cast. ``added``: an input that is added to every row; its gradient is the sum of the output's.
    ``views_gradient``: its inputs' gradients are views, to which the engine adds nothing in place. ``accumulated``: a weight whose gradient
    its backward kernel adds to the preallocated one. ``by``: the function that defines the operator; its docstring gives the formula's
    source. ``sends``: what it communicates. ``stored_in``: it stores its inputs outside a checkpointed region: in the model until all
    regions have run backward, or in a module, which has a buffer for them, until the next forward pass. ``cache``: it frees its inputs,
    which a cache had from the start. ``of_graph``: only a graph keeps its inputs until here, and a checkpointed region has none when it
    first runs.
    """

    name: str
    path: str
    component: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    saved: tuple[Saved, ...] = ()
    flops: Flops = Flops()
    temporary: Size = 0
    backward_temporary: Size = 0
    passes_gradient: bool = False
    elementwise: bool = False
    views_gradient: bool = False
    added: Tensor | None = None
    accumulated: Tensor | None = None
    by: Callable[..., object] | None = None
    sends: tuple[Sent, ...] = ()
    stored_in: Literal["", "model", "module", "cache"] = ""
    of_graph: bool = False

    @property
    def saved_tensors(self) -> tuple[Tensor, ...]:
        """The tensors that it saves for backward."""
        return tuple(saved.tensor for saved in self.saved)


@dataclass(frozen=True, slots=True)
class Carry:
    """The tensors passed between the copies of a ``Repeat``.

    ``first``: input of the first copy. ``inside``: placeholder for the input of any copy. ``made``: output of any copy. ``last``:
    placeholder for the output of the last copy.
    """

    first: Tensor
    inside: Tensor
    made: Tensor
    last: Tensor


@dataclass(frozen=True, slots=True)
class Repeat:
    """The same operations ``count`` times, each time on the previous output."""

    count: Size
    body: tuple[Node, ...]
    carry: Carry

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The inputs of the first copy and of all others."""
        return (self.carry.first, self.carry.made)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The placeholders for the input of a copy and the output of the last."""
        return (self.carry.inside, self.carry.last)

    @property
    def saved_tensors(self) -> tuple[Tensor, ...]:
        """The tensors that one copy saves for backward."""
        return tuple(tensor for node in self.body for tensor in node.saved_tensors)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpointed region: it saves only ``inputs``, and the backward pass recomputes its operations from them.

    ``whole``: all operations are recomputed before any of them runs backward, as in Megatron-LM (core/tensor_parallel/random.py) and
    PyTorch's reentrant checkpoint. Otherwise as in PyTorch's non-reentrant one, which starts when the first saved tensor is read and, if it
    ``stops_early``, stops as soon as the last one is recomputed. ``outputs_saved`` are outputs of operators inside that it saves too, so
    that these operators are not recomputed (create_selective_checkpoint_contexts).
    """

    inputs: tuple[Tensor, ...]
    body: tuple[Node, ...]
    path: str
    component: str
    whole: bool
    stops_early: bool = True
    outputs_saved: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()  # its body has them

    @property
    def saved_tensors(self) -> tuple[Tensor, ...]:
        """The tensors that it saves for backward."""
        return (*self.inputs, *self.outputs_saved)

    @property
    def again(self) -> tuple[Node, ...]:
        """The operations that the backward pass recomputes or reads: all, or with PyTorch's early stop those up to the last saved tensor.

        Operators pack saved inputs before their kernel runs, so the last kernel is skipped if it saves only inputs.
        """
        if self.whole or not self.stops_early:
            return self.body
        last = max(number for number, node in enumerate(self.body) if node.saved_tensors)
        made = {storage for tensor in self.body[last].outputs for storage, _ in tensor.parts}
        saves_output = any(storage in made for tensor in self.body[last].saved_tensors for storage, _ in tensor.parts)
        return self.body[: last + saves_output]

    @property
    def recomputed(self) -> tuple[Node, ...]:
        """The operations that run once more in the backward pass."""
        return tuple(node for node in self.again if not set(node.outputs) & set(self.outputs_saved))


@dataclass(frozen=True, slots=True)
class Boundary:
    """The start or the end of a part of the model whose weights devices share as a unit. It runs nothing."""

    unit: str
    starts: bool
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    saved_tensors: tuple[Tensor, ...] = ()
    body: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Unit:
    """A part of the model between two boundaries: the indices of its first parameter and after its last one, and its copies."""

    name: str
    first: int
    end: int
    copies: Size


Node: TypeAlias = "Operation | Repeat | Checkpoint | Boundary"


def visit(nodes: Iterable[Node], copies: Size = 1) -> Iterator[tuple[Node, Size]]:
    """Yield every node of a trace in order, parents before children, and how many times the forward pass runs it."""
    for node in nodes:
        yield node, copies
        if not isinstance(node, Operation):
            yield from visit(node.body, copies * node.count if isinstance(node, Repeat) else copies)


def operations(nodes: Iterable[Node]) -> Iterator[tuple[Operation, Size]]:
    """Yield every operator of a trace in order, and how many times the forward pass runs it."""
    return ((node, copies) for node, copies in visit(nodes) if isinstance(node, Operation))


class Visitor(ABC):
    """Visits the nodes of a trace; each method decides when to visit a node's body."""

    def go(self, nodes: Iterable[Node]) -> None:
        """Visit the nodes in order."""
        for node in nodes:
            match node:
                case Operation():
                    self.operation(node)
                case Repeat():
                    self.repeat(node)
                case Checkpoint():
                    self.checkpoint(node)
                case Boundary():
                    self.boundary(node)

    @abstractmethod
    def operation(self, node: Operation) -> None:
        """Visit an operator."""

    @abstractmethod
    def repeat(self, node: Repeat) -> None:
        """Visit equal layers."""

    @abstractmethod
    def checkpoint(self, node: Checkpoint) -> None:
        """Visit a checkpointed region."""

    @abstractmethod
    def boundary(self, node: Boundary) -> None:
        """Visit the start or the end of a unit."""
