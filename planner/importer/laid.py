"""What a configuration of another program states about several devices, in the words of a spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from planner.importer.named import AUTOCAST, DEVICES
from planner.importer.reader import Config, Imported, UnsupportedConfigError, show
from planner.importer.syntax import parsed
from planner.spec.problems import SpecError
from planner.spec.source import read_source

LEFT_OUT = "layout over devices"
_CONTEXT_KINDS = {"p2p": "ring", "alltoall": "ring", "allgather": "all_gather", "a2a": "ulysses"}  # of Megatron-LM and PyTorch


@dataclass(slots=True)
class Laid:
    """The cluster of an imported model, and how its configuration divides the model: settings with their keys there, and notes."""

    device: str
    devices: int
    width: int = 0  # d_model
    file: str = ""  # the configuration's, whose folder others are in
    settings: dict[str, tuple[Any, str]] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)  # in place of settings of one device
    notes: list[str] = field(default_factory=list)
    reduces_in_half: bool = False  # whether FSDP2 reduces gradients in 16 bits

    def put(self, setting: str, value: Any, origin: str) -> None:  # noqa: ANN401 - a spec's value
        """Write a setting."""
        self.settings[setting] = value, origin

    def degree(self, setting: str, config: Config, *names: str) -> int:
        """Write a degree above 1, and return it."""
        name = next((name for name in names if config.get(name) is not None), names[0])
        value = number(config, name, 1)
        if value > 1:
            self.put(setting, value, name)
        return value

    def context(self, kind: object, origin: str) -> None:
        """Write how attention reads keys of other devices, which may be a list of one kind."""
        name = str(kind[0] if isinstance(kind, list) and len(kind) == 1 else kind)
        self.put("context_kind", _CONTEXT_KINDS.get(name, name), origin)

    def train_on(self, sequences: object) -> None:
        """Write the sequences of a step on all devices."""
        if type(sequences) is int and sequences > 0:
            self.training["global_batch_size"] = sequences

    def on_devices(self, imported: Imported) -> Imported:
        """Return the import with the settings of several devices, without what one device leaves out."""
        counted = "global_batch_size" in self.training
        further = {key: value for key, value in imported.further.items() if key != "gradient_accumulation" or not counted}
        half, by_deepspeed = str(further.get("precision")), "engine" in self.settings
        gradients = half[:4] if by_deepspeed or self.reduces_in_half else "fp32"
        over_half = by_deepspeed or any(part.startswith(AUTOCAST) for part in imported.omits)  # then accelerate casts weights to float32
        on = half.endswith("-autocast") or (half in ("bf16", "fp16") and over_half)
        mixed = {"precision": f"{half[:4]}-master", "gradient_dtype": gradients} if on else {}
        shared = by_deepspeed or self.settings.get("data_parallel", ("",))[0] in ("fsdp", "hsdp")
        omits = tuple(part for part in imported.omits if not part.startswith((LEFT_OUT, DEVICES)))
        return replace(imported, further=further | (mixed if shared else {}) | self.training, omits=omits)

    def section(self, config: Config, name: str) -> Config:
        """Return a section of a configuration, or the file that it names, from the current folder or the configuration's."""
        given = config.get(name)
        if isinstance(given, Mapping) or given is None:
            return given or {}
        found = next((place for place in (Path(str(given)), Path(self.file).parent / str(given)) if place.is_file()), None)
        if found is None:
            raise UnsupportedConfigError(f"`{name}: {show(given)}` is not a file; give its text with --layout")
        try:
            return parsed(read_source(str(found)).text, found.name)
        except SpecError as error:
            raise UnsupportedConfigError(str(error)) from None

    def unsaid(self, config: Config, names: str) -> None:
        """Note keys that a layout cannot express."""
        self.notes += [
            f"`{name}: {show(config[name])}` has no key in a layout and is not planned" for name in names.split() if config.get(name)
        ]


def number(config: Config, name: str, default: int, least: int = 1) -> int:
    """Return a whole number of a configuration, a positive one unless ``least`` is 0."""
    value = config.get(name)
    if value is not None and (type(value) is not int or value < least):
        raise UnsupportedConfigError(f"`{name}: {show(value)}` is not {'a positive integer' if least else 'an integer from 0'}")
    return default if value is None else int(value)
