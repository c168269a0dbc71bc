"""Reads a configuration by the row of its type, and records the keys of each setting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

from planner.importer.keys import Source, alike, sources_of, uses_of
from planner.importer.layers import by_layer, with_layers, without_idle_window, without_unused_mixers
from planner.importer.neutral import COUNTED_WORDS, NEUTRAL, NEUTRAL_BEGINNINGS, NEUTRAL_ENDINGS, REFUSED_ANYWHERE
from planner.importer.reader import Config, Imported, SpecModel, UnsupportedConfigError, show, show_key

Settings = Mapping[str, Any]
_EXTRA = "layers.extra"  # declared tensors of every layer


@dataclass(frozen=True)
class Row:
    """The meaning of a type's keys.

    ``settings`` are the spec's, dotted, each a value or the source of one; None omits a setting. Names that begin with ``_`` are used by
    other settings only: ``_sparse`` lists which layers have experts. Values under ``layers`` are lists with the settings of each layer.
    """

    settings: Settings
    only: Mapping[str, Any]  # supported values of keys, which may be absent
    ignored: Mapping[str, str]  # keys that change no count, with the reason
    notes: tuple[str, ...] = ()

    @cached_property
    def known(self) -> frozenset[str]:
        """All known keys, dotted inside a section."""
        read = (name for name, _ in uses_of([self.settings, self.only]))
        return frozenset((*read, *self.only, *self.ignored, *REFUSED_ANYWHERE, "model_type"))

    @cached_property
    def single(self) -> Mapping[str, bool]:
        """The keys that are read, and whether their value is never a list or a mapping."""
        read = [(name, source.single) for source in sources_of([self.settings, self.only]) for name in source.names.split()]
        return {name: (name, False) not in read for name, _ in sorted(read)}


def row(
    *parts: Row | Settings,
    only: Mapping[str, Any] | None = None,
    ignored: Mapping[str, str] | None = None,
    notes: tuple[str, ...] = (),
) -> Row:
    """Return a row composed of rows and settings; later ones override. ``ignored`` has space-separated keys by reason."""
    rows = [part if isinstance(part, Row) else Row(part, {}, {}) for part in parts]
    reasons = {key: reason for reason, keys in (ignored or {}).items() for key in keys.split()}
    rows.append(Row({}, only or {}, reasons, notes))
    return Row(
        {setting: source for one in rows for setting, source in one.settings.items()},
        {key: allowed for one in rows for key, allowed in one.only.items()},
        {key: reason for one in rows for key, reason in one.ignored.items()},
        tuple(note for one in rows for note in one.notes),
    )


class Reading:
    """A configuration read by a row. A null key counts as absent."""

    def __init__(self, row: Row, config: Config, model_type: str) -> None:
        """Reject keys that no decoder has, unless the row reads them."""
        self.row, self.config, self.model_type = row, config, model_type
        self.origins: dict[str, dict[str, None]] = {}
        self.defaults: set[str] = set()
        self.notes = list(row.notes)
        self.omits: list[str] = []
        self._values: dict[str, Any] = {}
        self._setting: list[str] = [""]  # the settings being read, innermost last
        for key in REFUSED_ANYWHERE:
            if config.get(key) and key not in row.only:
                raise self.unsupported(key, config[key], ())

    def __getitem__(self, setting: str) -> Any:  # a value of a spec
        """Return the value of a setting, which is read once."""
        if setting not in self._values:
            self._setting.append(setting)
            self._values[setting] = self.of(self.row.settings[setting])
            self._setting.pop()
        return self._values[setting]

    def of(self, value: Any) -> Any:
        """Return the value of a source, a mapping with the values of its sources, or a plain value."""
        if isinstance(value, Source):
            return value.read(self)
        if isinstance(value, dict):
            read = {key: self.of(inner) for key, inner in value.items()}
            return {key: inner for key, inner in read.items() if inner is not None and inner != {}}
        return value

    def own(self, default: Any) -> Any:
        """Return a default of the type, and record that the setting uses it."""
        self.defaults.add(self._setting[-1])
        return default

    def at(self, key: str) -> Any:  # JSON
        """Return the value of a key, ``section.key`` inside a section, without recording it."""
        section, dot, inner = key.partition(".")
        value = self.config.get(section)
        if not dot or value is None:
            return value
        if not isinstance(value, Mapping):
            raise self.refusal(f"`{section}: {show(value)}` is not a mapping")
        return value.get(inner)

    def has(self, *names: str) -> bool:
        """Whether a key is present under one of its names, possibly null."""
        return any(name in dict(_flat(self.config, (name.partition(".")[0],) if "." in name else ())) for name in names)

    def found(self, *names: str) -> tuple[str, Any] | None:
        """Return a key's name in the configuration and its value, or None without it; reject names that disagree."""
        if undeclared := [name for name in names if name not in self.row.known]:
            raise LookupError(f"the row of {self.model_type} does not declare {', '.join(undeclared)}")
        found = {name: value for name in names if (value := self.at(name)) is not None}
        if len({repr(value) for value in found.values()}) > 1:
            raise self.refusal(f"{' and '.join(f'`{name}: {show(value)}`' for name, value in found.items())} disagree")
        self.origins.setdefault(self._setting[-1], {}).update(dict.fromkeys(found))
        return next(iter(found.items()), None)

    def value(self, *names: str) -> Any:  # JSON
        """Return the value of a key under any of its names, or None."""
        found = self.found(*names)
        return found[1] if found else None

    def refusal(self, reason: str) -> UnsupportedConfigError:
        """Return the error to raise."""
        return UnsupportedConfigError(f"{self.model_type} config: {reason}")

    def unsupported(self, name: str, value: object, supported: Iterable[object]) -> UnsupportedConfigError:
        """Return the error for a value."""
        others = ", ".join(one if isinstance(one, str) else repr(one) for one in supported)
        return self.refusal(f"`{name}: {show(value)}` is not supported{f'; supported: {others}' if others else ''}")

    def check_supported(self) -> None:
        """Reject unsupported values."""
        for name, allowed in self.row.only.items():
            if (value := self.at(name)) is not None:
                one = self.of(allowed)
                can = one if isinstance(one, tuple) else (one,)
                if not any(alike(value, one) for one in can):
                    raise self.unsupported(name, value, can)

    def check_single(self) -> None:
        """Reject values of the wrong kind, even where no setting depends on them."""
        for name, single in self.row.single.items():
            if (value := self.at(name)) == "" or (single and isinstance(value, (list, Mapping))):
                raise self.refusal(f"`{name}: {show(value)}` is not a single value")

    def unknown(self) -> tuple[str, ...]:
        """Return the unknown keys; reject one that may be a part of the model."""
        listed = []
        sections = {key.partition(".")[0] for key in self.row.known if "." in key}
        for key, value in _flat(self.config, sections):
            known = key in self.row.known and not ("." in key and key in self.config)  # a dot in the file's own key
            if known or _is_neutral(key, value):
                continue
            if suspect := _suspect(key, value):
                inner, given = suspect
                raise self.refusal(f"unsupported key `{show(inner)[1:-1]}: {show(given)}`, which may change the parameter count")
            listed.append(show_key(key))
        return tuple(listed)


def _is_neutral(key: str, value: object) -> bool:
    bare = key.rpartition(".")[2]
    return bare in NEUTRAL or not value or bare.endswith(NEUTRAL_ENDINGS) or bare.startswith(NEUTRAL_BEGINNINGS)


def _suspect(key: str, value: object) -> tuple[str, object] | None:
    """Return the first of a key and the keys inside its value that may change a count."""
    rest: list[tuple[str, object]] = [(key, value)]
    while rest:
        key, value = rest.pop()
        if _is_neutral(key, value):
            continue
        if any(word in key.rpartition(".")[2].lower() for word in COUNTED_WORDS):
            return key, value
        if isinstance(value, Mapping):
            rest += [(f"{key}.{inner}", one) for inner, one in value.items()]
        elif isinstance(value, list):
            rest += [(key, one) for one in value if isinstance(one, (Mapping, list))]
    return None


def _flat(config: Config, sections: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yield keys and values, dotted inside a section."""
    for key, value in config.items():
        if key in sections and isinstance(value, Mapping):
            yield from ((f"{key}.{inner}", one) for inner, one in value.items())
        elif isinstance(key, str):
            yield key, value


def values_of(c: Reading) -> dict[str, Any]:
    """Return the values of the row's settings. Raises UnsupportedConfigError."""
    c.check_supported()
    values = {setting: value for setting in c.row.settings if (value := c[setting]) is not None}
    c.check_single()
    return values


def read(row: Row, config: Config, model_type: str) -> Imported:
    """Read a configuration by a row. Raises UnsupportedConfigError, which names the key and the reason."""
    c = Reading(row, config, model_type)
    values = values_of(c)
    training = {setting.removeprefix("training."): value for setting, value in values.items() if setting.startswith("training.")}
    model = nested({setting: value for setting, value in values.items() if not setting.startswith(("training.", "layers.", "_"))})
    _check_experts(c, model)
    model = without_unused_mixers(with_layers(without_idle_window(model, model.get("context_length", inf)), _layers(values, model)))
    return Imported(
        model, model_type, _origins(c, model), frozenset(c.defaults), c.unknown(), tuple(c.notes), training, tuple(dict.fromkeys(c.omits))
    )


def nested(settings: Settings) -> SpecModel:
    """Return dotted settings as nested mappings."""
    whole: SpecModel = {}
    for setting, value in settings.items():
        *path, last = setting.split(".")
        part = whole
        for name in path:
            part = part.setdefault(name, {})
        part[last] = value
    return whole


def _check_experts(c: Reading, model: SpecModel) -> None:
    experts = model.get("experts")
    if experts and experts["top_k"] > experts["count"]:
        name = next((key for key in c.origins.get("experts.top_k", ()) if c.at(key) == experts["top_k"]), "top_k")
        raise c.refusal(f"`{name}: {experts['top_k']}` is more than the {experts['count']} experts")


def _layers(values: Settings, model: SpecModel) -> list[SpecModel]:
    """Return the settings of each layer; without a sparse layer, remove the model's experts."""
    parts: list[list[SpecModel]] = [value for setting, value in values.items() if setting.startswith("layers.") and setting != _EXTRA]
    if values.get(_EXTRA):
        parts.append([{"extra": values[_EXTRA]}] * model["n_layers"])
    sparse = values.get("_sparse")
    if sparse is not None and any(sparse):
        parts.insert(0, [{} if one else {"experts": "none"} for one in sparse])
    elif sparse is not None:
        del model["experts"]
    return by_layer(*parts)


def _origins(c: Reading, model: SpecModel) -> dict[str, tuple[str, ...]]:
    """Return the keys of each part of the model, and of each setting of training.

    Settings that all layers share are the model's attention or experts.
    """
    origins: dict[str, dict[str, None]] = {}
    for setting, keys in c.origins.items():
        if setting == "_unused":
            continue
        top = setting if setting.startswith("training.") else setting.partition(".")[0]
        if setting == "_experts" or (setting == "_sparse" and "layers" not in model):
            top = "experts"
        elif setting.startswith(("layers.", "_")):
            top = "layers" if "layers" in model else "attention"
        origins.setdefault(top, {}).update(keys)
    return {setting: tuple(keys) for setting, keys in origins.items()}
