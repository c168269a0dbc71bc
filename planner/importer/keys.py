"""Sources: how a setting of a spec is read from keys of the configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from planner.importer.reader import show

if TYPE_CHECKING:
    from planner.importer.engine import Reading

    Check = Callable[[Reading, str, Any], Any]

MAX_LAYERS = 10_000

# ACT2FN of transformers. "gelu_new" and "gelu_fast" are the tanh approximation written out operator by operator.
ACTIVATIONS = {
    "gelu": "gelu", "gelu_fast": "gelu_new", "gelu_new": "gelu_new", "gelu_pytorch_tanh": "gelu_tanh", "quick_gelu": "quick_gelu",
    "relu": "relu",
    "relu2": "relu_squared", "silu": "silu", "swish": "silu",
}  # fmt: skip
# Former names of kinds of layers in transformers.
_OLDER_LAYER_TYPES = {
    "attention": "full_attention", "linear": "linear_attention", "mamba": "linear_attention",
    "deepseek_sparse_attention": "indexed_attention",
}  # fmt: skip
REQUIRED, SAME = object(), object()  # the default of a required key; null counts as absent


@dataclass(frozen=True, slots=True)
class Source:
    """A value read from a configuration."""

    read: Callable[[Reading], Any]
    names: str = ""  # its own keys, space-separated
    inner: tuple[Any, ...] = ()  # its sources
    absent: str = ""  # the meaning of their absence
    text: str = "computed"  # its text as the default of another source
    single: bool = False  # whether its keys are numbers, flags or names, not lists or mappings


def sources_of(value: object) -> Iterator[Source]:
    """Yield all sources inside a value of a row."""
    if isinstance(value, Source):
        yield value
        yield from sources_of(value.inner)
    elif isinstance(value, Mapping):
        yield from sources_of(tuple(value.values()))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from sources_of(inner)


def uses_of(value: object) -> Iterator[tuple[str, str]]:
    """Yield the keys of all sources inside a value of a row, and the meaning of their absence."""
    yield from ((name, source.absent) for source in sources_of(value) for name in source.names.split())


def key(names: str, check: Check, default: Any = REQUIRED, null: Any = SAME) -> Source:  # values or sources
    """Return the value of a key under any of its names, the class's first; ``null`` is the meaning of an explicit null."""
    first, *others = every_name = names.split()

    def read(c: Reading) -> Any:
        if found := c.found(*every_name):
            return check(c, *found)
        meant = null if null is not SAME and c.has(*every_name) else default
        if meant is REQUIRED:
            raise c.refusal(f"`{first}` is missing")
        return c.of(meant) if isinstance(meant, Source) else c.own(meant)

    absent = "required" if default is REQUIRED else f"default {_text(default)}"
    absent += "" if null is SAME else f", null means {_text(null)}"
    single = check is not _numbers
    aliases = (Source(read, other, absent=f"another name of {first}", single=single) for other in others)
    return Source(read, first, (*aliases, default, null), absent, first, single)


def _text(default: object) -> str:
    return default.text if isinstance(default, Source) else "none" if default is None else json.dumps(default).strip('"')


def code(make: Callable[[Reading], Any], *of: str | Source) -> Source:
    """Return the result of a function of the reading, which may read only these keys and sources."""
    return Source(make, " ".join(one for one in of if isinstance(one, str)), tuple(one for one in of if isinstance(one, Source)))


def apply(function: Callable[..., Any], *of: Any) -> Source:  # sources or values
    """Return the result of a function of the sources' values."""
    return Source(lambda c: function(*map(c.of, of)), inner=of)


def same(setting: str, factor: int = 1) -> Source:
    """Return another setting, or a multiple of it."""
    text = setting if factor == 1 else f"{factor} · {setting}"
    return Source(lambda c: c[setting] if factor == 1 else factor * c[setting], text=text)


def when(condition: Source, yes: Any, no: Any = None) -> Source:
    """Return one value or another."""
    return Source(lambda c: c.of(yes if c.of(condition) else no), inner=(condition, yes, no))


def times(*factors: Source) -> Source:
    """Return a product."""
    return apply(lambda *numbers: prod(numbers), *factors)


def each(name: str, kinds: Sequence[Any] | Mapping[Any, Any], default: Any = REQUIRED) -> Source:
    """Return a list with a known kind for each layer; a mapping gives the meaning of each kind."""

    def read(c: Reading) -> list[Any]:
        n, value = c["n_layers"], c.value(name)
        if value is not None:
            return entries(c, name, value, kinds, n)
        if default is REQUIRED:
            raise c.refusal(f"`{name}` is missing")
        meant = c.of(default)
        return meant if isinstance(meant, list) else [meant] * n

    return Source(read, name, (default,), "required" if default is REQUIRED else f"default {_text(default)}", name)


def entries(c: Reading, name: str, value: Any, kinds: Sequence[Any] | Mapping[Any, Any], n: int) -> list[Any]:
    """Return the meanings of a list's entries, with the current names of kinds in transformers."""
    if not isinstance(value, list) or len(value) < n:
        raise c.refusal(f"`{name}` must be a list with an entry for each of {n} layers")
    made = []
    for given in value[:n]:
        entry = _OLDER_LAYER_TYPES.get(given, given) if isinstance(given, str) else given
        kind = next((kind for kind in kinds if alike(entry, kind)), None)
        if kind is None:
            raise c.refusal(f"`{name}` contains {show(entry)}; supported: {', '.join(map(str, kinds))}")
        made.append(kinds[kind] if isinstance(kinds, Mapping) else kind)
    return made


def by_number(c: Reading, name: str, n: int) -> Mapping[int, Mapping[str, Any]] | None:
    """Return the settings of layers, whose numbers are the keys of a mapping: "05" is layer 5. Without the key, return None."""
    value = c.value(name)
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(isinstance(own, Mapping) for own in value.values()):
        raise c.refusal(f"`{name}: {show(value)}` is not a mapping of layer numbers to settings")
    made = {int(layer): own for layer, own in value.items() if re.fullmatch("[0-9]{1,9}", str(layer), re.ASCII)}
    if len(made) < len(value) or any(layer >= n for layer in made):
        raise c.refusal(f"the keys of `{name}` must be distinct layer numbers from 0 to {n - 1}, got {show(list(value))}")
    return made


def alike(value: object, other: object) -> bool:
    """Whether two values are equal and of one type: 1 is not true."""
    return value == other and type(value) is type(other)


def positive(c: Reading, name: str, value: Any) -> int:
    """Return a positive integer."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise c.refusal(f"`{name}: {show(value)}` is not a positive integer")
    if value >= 2**53:  # above the sizes of a spec
        raise c.refusal(f"`{name}: {show(value)}` exceeds 2^53 - 1")
    return value


def _layers(c: Reading, name: str, value: Any) -> int:
    if isinstance(value, int) and value > MAX_LAYERS:
        raise c.refusal(f"`{name}: {show(value)}` exceeds {MAX_LAYERS:,} layers")
    return positive(c, name, value)


def _count(c: Reading, name: str, value: Any) -> int:
    return 0 if alike(value, 0) or alike(value, 0.0) else positive(c, name, value)


def _flag(c: Reading, name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise c.refusal(f"`{name}: {show(value)}` is neither true nor false")
    return value


def _number(c: Reading, name: str, value: Any, most: float = 2**53, what: str = "positive number") -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= most:
        raise c.refusal(f"`{name}: {show(value)}` is not a {what}")
    return value


def fraction(c: Reading, name: str, value: Any) -> float:
    """Return a number above 0 and at most 1."""
    return _number(c, name, value, 1, "number above 0 and at most 1")


def _activation(c: Reading, name: str, value: Any) -> str:
    if not isinstance(value, str) or value not in ACTIVATIONS:
        raise c.unsupported(name, value, ACTIVATIONS)
    return ACTIVATIONS[value]


def _numbers(c: Reading, name: str, value: Any) -> list[int]:
    if not isinstance(value, list) or any(not isinstance(number, int) for number in value):
        raise c.refusal(f"`{name}` must be a list of layer numbers")
    return value


def size(names: str, default: Any = REQUIRED, null: Any = SAME) -> Source:  # a size or a source of one
    """Return a positive integer."""
    return key(names, positive, default, null)


def layers(names: str, default: Any = REQUIRED) -> Source:
    """Return the number of layers, at most MAX_LAYERS."""
    return key(names, _layers, default)


def count(names: str, default: int = 0) -> Source:
    """Return an integer that may be 0."""
    return key(names, _count, default)


def flag(names: str, default: bool | Source = False) -> Source:  # the key's own default
    """Return true or false; null is false, as in Python."""
    return key(names, _flag, default, SAME if default is False else False)


def number(names: str, default: float | None = None, null: Any = SAME) -> Source:
    """Return a positive number."""
    return key(names, _number, default, null)


def activation(names: str, default: str | Source) -> Source:
    """Return an activation; the default is a name of the spec language."""
    return key(names, _activation, default)


def layer_numbers(name: str, default: list[int] | None) -> Source:
    """Return a list of the numbers of layers."""
    return key(name, _numbers, default)


def choice(name: str, meanings: Mapping[Any, Any], default: Any) -> Source:
    """Return the meaning of a value from a fixed set."""

    def meaning(c: Reading, name: str, value: Any) -> Any:
        for one, meant in meanings.items():
            if alike(one, value):
                return meant
        raise c.unsupported(name, value, meanings)

    return key(name, meaning, default)
