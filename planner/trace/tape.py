"""The tape: what a forward pass does, in order, as a tree of operations.

Equal layers are traced once (``Repeat``), and a recomputed stretch is a node of its own (``Checkpoint``), so that every reading of the
trace is one walk over a small tree, whatever the depth of the model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from planner.spec.precision import BYTES, RECIPES, Dtype, Recipe
from planner.spec.records import Model, Training
from planner.trace.implementation import Implementation
from planner.trace.refusal import NotModelledError
from planner.trace.sizes import Size, product
from planner.trace.tensor import Storage, Tensor


@dataclass(frozen=True, slots=True)
class Flops:
    """FLOPs of one operator, a multiply-add being 2.

    ``forward`` and ``backward`` are what runs, as PyTorch's counter sees it; ``causal`` counts only the pairs (query, key) that the mask
    lets through, and ``full`` twice those pairs: the square that a causal mask halves, or what a window leaves of it.
    """

    forward: Size = 0
    full: Size = 0
    causal: Size = 0
    backward: Size = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Saved:
    """A tensor that an operator keeps for its derivative."""

    tensor: Tensor
    what: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One operator of the forward pass. One that costs FLOPs multiplies its first two inputs.

    ``temporary`` and ``backward_temporary`` are bytes that live only while its kernels run. ``passes_gradient``: its inputs' gradients are
    its output's, not new tensors (a sum, a view). ``elementwise``: they have its output's shape and dtype, until they are summed over what
    was broadcast and cast to what they are gradients of. ``added`` is an input that is added to every row: its gradient is the output's,
    summed. ``views_gradient``: they are views of what its kernels make, to which the
    engine adds nothing in place. ``by`` is the function that states all this: its docstring gives the formula's source.
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
    by: Callable[..., object] | None = None

    @property
    def held(self) -> tuple[Tensor, ...]:
        """The tensors that stay for the backward pass because of this."""
        return tuple(saved.tensor for saved in self.saved)


@dataclass(frozen=True, slots=True)
class Carry:
    """What goes from one copy of a repeated stretch to the next.

    ``first`` enters it, ``inside`` stands for it inside, ``made`` comes out of each copy, ``last`` stands for what the last one makes.
    """

    first: Tensor
    inside: Tensor
    made: Tensor
    last: Tensor


@dataclass(frozen=True, slots=True)
class Repeat:
    """The same operations ``count`` times over, each time on what the time before made."""

    count: Size
    body: tuple[Node, ...]
    carry: Carry

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What enters the first copy, and what enters each other one."""
        return (self.carry.first, self.carry.made)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The stand-ins for what enters a copy and for what the last one makes."""
        return (self.carry.inside, self.carry.last)

    @property
    def held(self) -> tuple[Tensor, ...]:
        """The tensors that stay for the backward pass because of one copy."""
        return tuple(tensor for node in self.body for tensor in node.held)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Operations whose kept tensors are dropped and computed again in the backward pass, from ``inputs``.

    ``whole``: all of them run again, before any of them runs backward, as in Megatron-LM (core/tensor_parallel/random.py) and PyTorch's
    reentrant checkpoint. Else PyTorch's other one, which starts when the first kept tensor is wanted and stops once the last is there.
    """

    inputs: tuple[Tensor, ...]
    body: tuple[Node, ...]
    path: str
    component: str
    whole: bool
    outputs: tuple[Tensor, ...] = ()  # those of its body are what it makes

    @property
    def held(self) -> tuple[Tensor, ...]:
        """The tensors that stay for the backward pass because of this."""
        return self.inputs

    @property
    def again(self) -> tuple[Node, ...]:
        """What the backward pass runs again: all, or with PyTorch's early stop what leads to the last kept tensor.

        An operator that keeps only its inputs hands them over before its kernel runs, so that the last one's kernel is spared.
        """
        if self.whole:
            return self.body
        last = max(number for number, node in enumerate(self.body) if node.held)
        made = {storage for tensor in self.body[last].outputs for storage, _ in tensor.parts}
        keeps_output = any(storage in made for tensor in self.body[last].held for storage, _ in tensor.parts)
        return self.body[: last + keeps_output]


Node: TypeAlias = "Operation | Repeat | Checkpoint"


def visit(nodes: Iterable[Node], copies: Size = 1) -> Iterator[tuple[Node, Size]]:
    """Yield every node of a trace in order, each before what it holds, with the number of times that the forward pass runs it."""
    for node in nodes:
        yield node, copies
        if not isinstance(node, Operation):
            yield from visit(node.body, copies * node.count if isinstance(node, Repeat) else copies)


def operations(nodes: Iterable[Node]) -> Iterator[tuple[Operation, Size]]:
    """Yield every operator of a trace in order, with the number of times that the forward pass runs it."""
    return ((node, copies) for node, copies in visit(nodes) if isinstance(node, Operation))


class Visitor(ABC):
    """Does something at each node of a trace, and itself decides when to go on to what a node holds."""

    def go(self, nodes: Iterable[Node]) -> None:
        """Do it at each of the nodes, in their order."""
        for node in nodes:
            match node:
                case Operation():
                    self.operation(node)
                case Repeat():
                    self.repeat(node)
                case Checkpoint():
                    self.checkpoint(node)

    @abstractmethod
    def operation(self, node: Operation) -> None:
        """Do it at an operator."""

    @abstractmethod
    def repeat(self, node: Repeat) -> None:
        """Do it at equal layers."""

    @abstractmethod
    def checkpoint(self, node: Checkpoint) -> None:
        """Do it at a recomputed stretch."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A stored weight, ``copies`` of it."""

    name: str
    tensor: Tensor
    copies: Size
    component: str
    why: str
    active: Size  # elements of one copy that one token uses
    padding: Size  # elements of one copy in rows that stand for no token
    always_float32: bool  # whether its module insists on it, whatever the model's dtype


@dataclass(frozen=True, slots=True)
class Buffer:
    """A stored tensor that is no parameter, ``copies`` of it."""

    name: str
    shape: tuple[Size, ...]
    dtype: Dtype
    copies: Size
    component: str

    @property
    def bytes(self) -> Size:
        """Bytes of all copies."""
        return product(self.shape) * BYTES[self.dtype] * self.copies


@dataclass(frozen=True, slots=True)
class Shape:
    """A tensor worth showing on the way from ids to logits."""

    path: str
    what: str
    tensor: Tensor
    copies: Size


@dataclass(slots=True)
class Tape:
    """Records a forward pass of a model as an implementation runs it.

    ``window`` is the number of keys that a query of the attention now traced sees, None for all; ``chunked``: of its own chunk only.
    """

    implementation: Implementation
    model: Model
    training: Training
    window: Size | None = None
    chunked: bool = False
    nodes: list[Node] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)
    stacks: list[tuple[int, int, Size]] = field(default_factory=list)  # of equal layers: its parameters' first and next place, and count
    buffers: list[Buffer] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)
    copies: Size = 1
    path: str = ""
    component: str = "other"
    notes: list[str] = field(default_factory=list)  # what the figures leave out
    grad: bool = True  # whether what is traced may be run backward
    returned: list[Tensor] = field(default_factory=list)  # what a layer's function names until it ends, beside the layer's own tensors
    precision: Recipe = field(init=False)

    def __post_init__(self) -> None:
        self.precision = RECIPES[self.training.precision]

    @property
    def device(self) -> Literal["cuda", "cpu"]:
        """Whose kernels run."""
        return "cpu" if self.training.device == "cpu" else "cuda"

    @contextmanager
    def at(self, name: str, component: str | None = None) -> Iterator[None]:
        """Name where the operations inside stand, and which component they belong to."""
        path, owner = self.path, self.component
        self.path = f"{path}.{name}" if path and name else path or name
        self.component = component or owner
        yield
        self.path, self.component = path, owner

    @contextmanager
    def without_autocast(self) -> Iterator[None]:
        """Leave dtypes inside as they are."""
        precision, self.precision = self.precision, replace(self.precision, autocast=None)
        yield
        self.precision = precision

    @contextmanager
    def without_gradients(self) -> Iterator[None]:
        """Keep nothing for backward of what is traced inside, as under torch.no_grad."""
        self.grad = False
        yield
        self.grad = True

    @contextmanager
    def limited_to(self, window: Size | None, *, chunked: bool = False) -> Iterator[None]:
        """Count only pairs of a query and the keys in its window in what is traced inside."""
        self.window, self.chunked = window, chunked
        yield
        self.window, self.chunked = None, False

    def tensor(self, shape: tuple[Size, ...], dtype: Dtype, *, needs_grad: bool = True) -> Tensor:
        """Return a tensor in a storage of its own."""
        return Tensor(shape, dtype, ((Storage(shape, dtype, self.path, self.component, self.copies), 1),), needs_grad=needs_grad)

    def weight(
        self,
        name: str,
        shape: tuple[Size, ...],
        why: str,
        *,
        active: Size | None = None,
        padding: Size = 0,
        dtype: Dtype | None = None,
    ) -> Tensor:
        """Return a new parameter of the module that the tape stands in.

        ``active`` of its elements serve one token, all if not said; ``padding`` of them are in rows that stand for no token; ``dtype``
        where the module insists on one whatever the model's.
        """
        made = self.tensor(shape, dtype or self.precision.weights)
        made.parts[0][0].leaf = True
        elements = product(shape) if active is None else active
        always = dtype == "float32"
        self.parameters.append(Parameter(f"{self.path}.{name}", made, self.copies, self.component, why, elements, padding, always))
        return made

    def buffer(self, name: str, shape: tuple[Size, ...], dtype: Dtype) -> None:
        """Store a tensor of the module that the tape stands in which is no parameter."""
        self.buffers.append(Buffer(f"{self.path}.{name}", shape, dtype, self.copies, self.component))

    def record(
        self,
        name: str,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        saved: Sequence[Saved] = (),
        flops: Flops = Flops(),
        *,
        temporary: Size = 0,
        backward_temporary: Size = 0,
        passes_gradient: bool = False,
        elementwise: bool = False,
        views_gradient: bool = False,
        added: Tensor | None = None,
        by: Callable[..., object] | None = None,
    ) -> None:
        """Write down one operator. Where none of its inputs needs a gradient, nor do its outputs, and it keeps nothing for backward."""
        if not self.grad or not any(tensor.needs_grad for tensor in inputs):
            saved, flops = (), replace(flops, backward=0)
            for tensor in outputs:
                tensor.needs_grad = False
        self.nodes.append(
            Operation(
                name, self.path, self.component, tuple(inputs), tuple(outputs), tuple(saved), flops,
                temporary, backward_temporary, passes_gradient, elementwise, views_gradient, added, by,
            )
        )  # fmt: skip

    def note(self, sentence: str) -> None:
        """Say what the figures leave out, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def show(self, what: str, tensor: Tensor) -> Tensor:
        """Put a tensor on the list of shapes worth showing."""
        self.shapes.append(Shape(self.path, what, tensor, self.copies))
        return tensor

    def repeat(self, count: Size, body: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Trace ``body`` once for ``count`` copies of it, the output of each being the input of the next; return the last output."""
        outer_nodes, outer_copies = self.nodes, self.copies
        inside = Tensor(x.shape, x.dtype, ((Storage(x.shape, x.dtype, self.path, self.component), 1),), needs_grad=x.needs_grad)
        self.nodes, self.copies = [], outer_copies * count
        first = len(self.parameters)
        made = body(inside)
        self.stacks.append((first, len(self.parameters), count))
        nodes, self.nodes, self.copies = self.nodes, outer_nodes, outer_copies
        if made.dtype != x.dtype:
            raise NotModelledError(f"a layer turns {x.dtype} into {made.dtype}, so that its copies are not equal")
        if made.needs_grad != x.needs_grad:
            raise NotModelledError("only the first of equal layers reads what needs no gradient, so that its copies are not equal")
        last = self.tensor(made.shape, made.dtype, needs_grad=made.needs_grad)
        self.nodes.append(Repeat(count, tuple(nodes), Carry(x, inside, made, last)))
        return last

    def checkpoint(self, body: Callable[..., Tensor], *inputs: Tensor, whole: bool) -> Tensor:
        """Trace ``body`` of ``inputs`` as a stretch that keeps only them and runs again in the backward pass, as a whole or in part.

        A stretch that would keep nothing has nothing to run again for: its inputs are not kept either.
        """
        outer, self.nodes = self.nodes, []
        result = body(*inputs)
        nodes, self.nodes = self.nodes, outer
        keeps = any(node.held for node in nodes)
        self.nodes += [Checkpoint(inputs, tuple(nodes), self.path, self.component, whole)] if keeps else nodes
        return result
