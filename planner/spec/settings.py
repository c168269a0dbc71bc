"""The sections of a spec, each a set of settings to read: what is written, else the default."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from planner.spec.language import leaves
from planner.spec.nodes import UNREADABLE, Node, merge

if TYPE_CHECKING:
    from planner.spec.problems import Problem


class Unresolved(Exception):  # noqa: N818 - no error of its own: what it rests on is reported already
    """A setting rests on a value that is missing or wrong."""


@dataclass(frozen=True)
class Settings:
    """One section's settings, by dotted key within the section: ``attention.bias.q``."""

    node: Node
    section: str
    defaulted: set[str] = field(default_factory=set)  # collects the dotted keys of the defaults that were read

    def written(self, key: str) -> Node | None:
        """Return what is written for a key, or for a shorthand above it."""
        node: Node | None = self.node
        for step in key.split("."):
            node = node and node.get(step)
        return node

    def get(self, key: str, default: object = None) -> Any:  # noqa: ANN401 - the schema has checked what type it is
        """Return a setting, or its default: the given one, else the schema's. Raises Unresolved where there is neither."""
        node = self.written(key)
        if node is not None:
            if node.value is UNREADABLE:
                raise Unresolved(key)
            return node.value
        dotted = f"{self.section}.{key}"
        if default is None:
            default = leaves()[dotted].get("default")
        if default is None:
            raise Unresolved(key)
        self.defaulted.add(dotted)
        return default

    def size(self, key: str, default: int | None = None) -> int:
        """Return a setting that is a whole number, as ``get`` does."""
        value: int = self.get(key, default)
        return value

    def get_or_none(self, key: str) -> Any:  # noqa: ANN401
        """Return a setting, None where it is ``none``."""
        value = self.get(key)
        return None if value == "none" else value

    def on(self, group: str) -> bool:
        """Return whether a group is written and is not ``none``. Raises Unresolved."""
        node = self.written(group)
        if node is not None and node.value is UNREADABLE:
            raise Unresolved(group)
        return node is not None and node.value != "none"

    def problem(self, key: str, code: str, message: str, hint: str = "") -> Problem:
        """Return a problem at the value of a key, or at what is written of the way there."""
        mark, node = self.node.mark, self.node
        for step in key.split("."):
            inner = node.get(step)
            if inner is None:
                break
            mark, node = inner.mark, inner
        return mark.problem(code, message, hint)


@dataclass(frozen=True)
class Group:
    """Layers that follow one another, all of them ``count`` times over."""

    node: Node | None  # the run as written; None: the model has no runs
    layers: tuple[Settings, ...]
    times: int = 1  # equal runs that follow one another are one group

    @property
    def count(self) -> int:
        """How often. Raises Unresolved."""
        if self.node is None:
            count: int = self.layers[0].get("n_layers")
            return count
        written = self.node.get("count")
        if written is None:
            return self.times
        if not isinstance(written.value, int):
            raise Unresolved("count")
        return self.times * written.value


class Document:
    """A whole spec, with what it extends and overrides merged."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self.defaulted: set[str] = set()

    @cached_property
    def model(self) -> Settings:
        """The model's settings."""
        return Settings(self._section("model"), "model", self.defaulted)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The model's layers, first to last."""
        layers = self.model.written("layers")
        shared = self._shared
        if layers is None:
            return (Group(None, (shared,)),)
        groups: list[Group] = []
        before: object = None
        for run in layers.elements() or [layers]:  # an unreadable list counts as one unreadable element
            written = run.plain()
            if groups and written == before:
                groups[-1] = replace(groups[-1], times=groups[-1].times + 1)
                continue
            before = written
            own = self._on_top(shared, run)
            group = run.items().get("layers")
            inner = (own,) if group is None else tuple(self._on_top(own, layer) for layer in group.elements() or [group])
            groups.append(Group(run, inner))
        return tuple(groups)

    @property
    def _shared(self) -> Settings:
        """The model's settings as layers have them: its extra tensors are there once."""
        node = self.model.node
        if "extra" not in node.items():
            return self.model
        return replace(self.model, node=replace(node, value={key: inner for key, inner in node.items().items() if key != "extra"}))

    @cached_property
    def scenarios(self) -> tuple[tuple[str, Settings], ...]:
        """The ways of training by name, the base scenario first."""
        base = Settings(self._section("training"), "training", self.defaulted)
        written = self.root.items().get("scenarios")
        further = written.elements() if written else []
        return ("base", base), *((_name(node), Settings(merge(base.node, node), "training")) for node in further)

    @cached_property
    def cluster(self) -> Settings | None:
        """The settings of the cluster, None if there is none."""
        return self._optional("cluster", self.root.items().get("cluster"))

    @cached_property
    def serving(self) -> Settings | None:
        """The settings of serving, None if there are none."""
        return self._optional("serving", self.root.items().get("serving"))

    @cached_property
    def on_devices(self) -> tuple[tuple[Settings, Settings | None], ...]:
        """The training of each scenario and its layout, None without one; a scenario's own keys override the spec's."""
        base = self.root.items().get("layout")
        written = self.root.items().get("scenarios")
        own = [None, *(node.items().get("layout") for node in (written.elements() if written else []))]
        laid = [base if one is None else one if base is None else merge(base, one) for one in own]
        return tuple((settings, self._optional("layout", one)) for (_, settings), one in zip(self.scenarios, laid, strict=True))

    def _optional(self, key: str, node: Node | None) -> Settings | None:
        return None if node is None or node.value == "none" else Settings(node, key, self.defaulted)

    def _section(self, key: str) -> Node:
        return self.root.items().get(key) or Node(self.root.mark, {})

    def _on_top(self, settings: Settings, node: Node) -> Settings:
        return Settings(merge(settings.node, node), settings.section, self.defaulted)


def _name(scenario: Node) -> str:
    name = scenario.items().get("name")
    return name.value if name and isinstance(name.value, str) else ""
