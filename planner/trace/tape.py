"""The tape, which records a forward pass: its nodes, and the weights and buffers that they read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from planner.spec.precision import BYTES, Dtype
from planner.spec.records import Extra
from planner.trace import trained
from planner.trace.nodes import Boundary, Carry, Checkpoint, Flops, Node, Operation, Repeat, Saved, Sent, Unit
from planner.trace.packing import Packing
from planner.trace.setup import Setup, is_one
from planner.trace.sizes import Size, choose, product
from planner.trace.tensor import Storage, Tensor
from planner.trace.unsupported import UnsupportedError

DECLARED = "declared by the spec"
NO_FLOPS = Flops()


@dataclass(frozen=True, slots=True)
class Parameter:
    """A stored weight, ``copies`` of it."""

    name: str
    tensor: Tensor
    copies: Size
    component: str
    why: str
    active: Size  # elements of one copy that one token uses
    padding: Size  # elements of one copy in padding rows
    always_float32: bool  # whether its module requires float32 for any dtype of the model
    trains: bool  # whether it gets a gradient
    gradient: Size  # elements of its gradient: more if autograd makes that of a whole table for a device's part of it
    packing: Packing | None = None  # of its elements in few bits


@dataclass(frozen=True, slots=True)
class Buffer:
    """A stored tensor that is not a parameter, ``copies`` of it."""

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
    """A tensor to show, between ids and logits."""

    path: str
    what: str
    tensor: Tensor
    copies: Size


@dataclass(slots=True)
class Tape(Setup):
    """Records a forward pass of a model with an implementation.

    ``window`` is the number of keys that a query sees in the current attention, None for all; ``chunked``: only of its own chunk.
    """

    window: Size | None = None
    chunked: bool = False
    scans: bool = False
    nodes: list[Node] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)
    stacks: list[tuple[int, int, Size]] = field(default_factory=list)  # see Trace.stacks
    units: list[Unit] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    shapes: list[Shape] = field(default_factory=list)
    copies: Size = 1
    path: str = ""
    component: str = "other"
    notes: list[str] = field(default_factory=list)  # what the figures omit
    grad: bool = True  # False under torch.no_grad
    trains: bool = True  # whether the weights of the current module are trained
    context_rank: int = 0  # the device's number in context parallelism
    returned: list[Tensor] = field(default_factory=list)  # tensors that the current layer keeps alive until it ends
    prefixes: list[list[Tensor]] = field(default_factory=list)  # learned keys and values before those of the layers to come
    ahead: Size = 0  # tokens of such a prefix
    parts: list[Tensor] = field(default_factory=list)  # of heads, that the current attention keeps alive until it ends
    ends: tuple[bool, bool] = (True, True)  # whether a pipeline's stage has the token embedding, and the loss
    declared: dict[str, Extra] = field(default_factory=dict)  # by path: tensors that the spec declares and no operator has read yet
    unread: list[Storage] | None = None  # storages of the current module, if the loss does not depend on it
    outputs: list[Tensor] = field(default_factory=list)  # what the model returns besides logits
    encoded: Tensor | None = None  # the output of the encoder, which layers read
    places: Tensor | None = None  # the ids that the lookup of learned positions has read

    def __post_init__(self) -> None:
        Setup.__post_init__(self)
        self.grad = self.inference is None

    @contextmanager
    def at(self, name: str, component: str | None = None) -> Iterator[None]:
        """Set the path and the component of the operations inside."""
        path, owner = self.path, self.component
        self.path = f"{path}.{name}" if path and name else path or name
        self.component = component or owner
        yield
        self.path, self.component = path, owner

    @contextmanager
    def unit(self, name: str) -> Iterator[None]:
        """Record the operations inside as a unit whose weights devices share, if there are several devices."""
        first = len(self.parameters)
        self.boundary(name, starts=True)
        yield
        self.boundary(name, starts=False)
        self.units.append(Unit(name, first, len(self.parameters), self.copies))

    def boundary(self, unit: str, *, starts: bool) -> None:
        """Record the start or the end of a unit, if several devices share weights."""
        self.nodes += [Boundary(unit, starts)] if self.divided else []

    @contextmanager
    def without_autocast(self) -> Iterator[None]:
        """Disable autocast inside."""
        precision, self.precision = self.precision, replace(self.precision, autocast=None)
        yield
        self.precision = precision

    @contextmanager
    def without_gradients(self, *, trains: bool) -> Iterator[None]:
        """Save nothing for backward inside, as under torch.no_grad. ``trains``: another loss trains the weights inside."""
        before, self.grad, self.trains = self.grad, False, trains
        yield
        self.grad, self.trains = before, True

    @contextmanager
    def unread_by_loss(self) -> Iterator[None]:
        """Run no backward pass inside. What is saved for it lives as long as the model's output: until the forward pass ends."""
        self.unread, self.trains = [], False
        yield
        self.unread, self.trains = None, True

    @contextmanager
    def limited_to(self, window: Size | None, *, chunked: bool = False) -> Iterator[None]:
        """Count only the keys in each query's window inside."""
        self.window, self.chunked = window, chunked
        yield
        self.window, self.chunked = None, False

    @contextmanager
    def inside_scan(self) -> Iterator[None]:
        """Count FLOPs inside as executed, and not as the model's: a scan has none in any convention."""
        self.scans = True
        yield
        self.scans = False

    def tensor(self, shape: tuple[Size, ...], dtype: Dtype, *, needs_grad: bool = True) -> Tensor:
        """Return a tensor in a new storage."""
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
        trains: bool = True,
        gradient: Size | None = None,
        packing: Packing | None = None,
    ) -> Tensor:
        """Return a new parameter of the current module.

        One token uses ``active`` of its elements (default: all). ``padding`` of them are in padding rows. ``dtype`` overrides the model's.
        One that does not train has no gradient and no optimizer state. ``gradient``: elements of its gradient, if not as many.
        """
        trains = trains and trained.trains(self.training.train, self.path, self.component, name)
        made = self.tensor(shape, dtype or self.precision.weights, needs_grad=trains)
        made.storage.leaf = True
        used, always = product(shape) if active is None else active, dtype == "float32"
        grad, learns = product(shape) if gradient is None else gradient, trains and self.trains
        self.parameters.append(
            Parameter(f"{self.path}.{name}", made, self.copies, self.component, why, used, padding, always, learns, grad, packing)
        )
        return made

    def read(self, name: str, *dimensions: int) -> Extra | None:
        """Return what the spec declares under a name of the current module, for an operator of transformers that reads it.

        ``dimensions``: how many of them its shape may have.
        """
        key = f"{self.path}.{name}" if self.declared and self.training.implementation.startswith("transformers") else ""
        return self.declared.pop(key) if key in self.declared and len(self.declared[key].shape) in dimensions else None

    def declared_weight(self, name: str, dimensions: int = 1) -> Tensor | None:
        """Return a weight that the spec declares under a name of the current module, as ``read`` does."""
        item = self.read(name, dimensions)
        if item is None:
            return None
        with self.at("", item.component):
            return self.weight(name, item.shape, DECLARED)

    def buffer(self, name: str, shape: tuple[Size, ...], dtype: Dtype) -> None:
        """Store a tensor of the current module that is not a parameter."""
        self.buffers.append(Buffer(f"{self.path}.{name}", shape, dtype, self.copies, self.component))

    def record(
        self,
        name: str,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        saved: Sequence[Saved] = (),
        flops: Flops = NO_FLOPS,
        *,
        temporary: Size = 0,
        backward_temporary: Size = 0,
        passes_gradient: bool = False,
        elementwise: bool = False,
        views_gradient: bool = False,
        added: Tensor | None = None,
        accumulated: Tensor | None = None,
        by: Callable[..., object] | None = None,
        sends: Sequence[Sent] = (),
        stored_in: Literal["", "model", "module", "cache"] = "",
        of_graph: bool = False,
    ) -> tuple[Tensor, ...]:
        """Record an operator and return its outputs. If no input needs a gradient, no output does, and nothing is saved for backward."""
        flops = replace(flops, full=0, causal=0) if self.scans else flops
        if not self.grad or not any(tensor.needs_grad for tensor in inputs):
            saved, flops = (), replace(flops, backward=0)
            for tensor in outputs:
                tensor.needs_grad = False
        if self.unread is not None:
            self.unread += [tensor.storage for tensor in outputs]
            for storage in {one.tensor.storage for one in saved} & set(self.unread) if self.training.recompute != "full" else ():
                storage.until_forward_ends = True
            saved, flops = (), replace(flops, backward=0)
        made = Operation(
            name, self.path, self.component, tuple(inputs), tuple(outputs), tuple(saved), flops, temporary, backward_temporary,
            passes_gradient, elementwise, views_gradient, added, accumulated, by, tuple(sends), stored_in, of_graph,
        )  # fmt: skip
        self.nodes.append(made)
        return made.outputs

    def take_back(self, by: Callable[..., object], made: Tensor) -> Operation | None:
        """Remove the latest operation and return it, if ``by`` recorded it and it made the tensor: a fused kernel runs in its place."""
        for number in reversed(range(len(self.nodes))):
            node = self.nodes[number]
            if not isinstance(node, Operation) or node.outputs:
                return self.nodes.pop(number) if isinstance(node, Operation) and node.by is by and made in node.outputs else None  # type: ignore[return-value]
        return None

    def note(self, sentence: str) -> None:
        """Record once what the figures omit."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def show(self, what: str, tensor: Tensor) -> Tensor:
        """Add a tensor to the shapes to show."""
        self.shapes.append(Shape(self.path, what, tensor, self.copies))
        return tensor

    def repeat(self, count: Size, body: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Trace ``body`` once for ``count`` copies, where each copy's output is the next one's input; return the last output."""
        outer_nodes, outer_copies = self.nodes, self.copies
        inside = Tensor(x.shape, x.dtype, ((Storage(x.shape, x.dtype, self.path, self.component), 1),), needs_grad=x.needs_grad)
        self.nodes, self.copies = [], outer_copies * count
        first = len(self.parameters)
        made = body(inside)
        self.stacks.append((first, len(self.parameters), count))
        nodes, self.nodes, self.copies = self.nodes, outer_nodes, outer_copies
        if made.dtype != x.dtype and not choose(is_one, count):
            raise UnsupportedError(f"a layer turns {x.dtype} into {made.dtype}, so its copies are not equal")
        if made.needs_grad != x.needs_grad and not choose(is_one, count):
            raise UnsupportedError("only the first of equal layers reads a tensor without gradient, so its copies are not equal")
        last = self.tensor(made.shape, made.dtype, needs_grad=made.needs_grad)
        self.nodes.append(Repeat(count, tuple(nodes), Carry(x, inside, made, last)))
        return last

    def checkpoint(self, body: Callable[..., Tensor], *inputs: Tensor, whole: bool, selective: bool = False) -> Tensor:
        """Trace ``body`` as a checkpointed region that saves only ``inputs``. A region that saves nothing is not checkpointed.

        ``selective``: it also saves the outputs that the implementation selects.
        """
        outer, self.nodes = self.nodes, []
        result = body(*inputs)
        nodes, self.nodes = self.nodes, outer
        saves = any(node.saved_tensors for node in nodes)
        select = self.implementation.saved_outputs
        outputs = select(nodes) if selective and select else ()
        region = Checkpoint(inputs, tuple(nodes), self.path, self.component, whole, self.implementation.stops_early, outputs)
        self.nodes += [region] if saves else nodes
        return result
