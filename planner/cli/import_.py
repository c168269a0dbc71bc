"""Convert a config of another program to a spec.

Accepts a Hugging Face config.json (for multimodal models, the text part), and the configurations of trainers: YAML, JSON, TOML, Python
assignments, a shell script, a command line, or a list of arguments. docs/formats.md describes each.

Programs: Hugging Face, Megatron-LM, torchtitan, nanotron, levanter, OLMo-core, OLMo, axolotl, torchtune, LLaMA-Factory, TRL, peft,
DeepSeek, Meta and Mistral, GPT-NeoX, LitGPT and nanoGPT.

Unrecognized keys are listed. An unsupported setting that could change the counts is an error (exit code 1); the importer never guesses.
If model.safetensors.index.json is in the same folder, its total size is compared with the imported parameters, and a difference exits
with 1. Commands that accept a spec also accept such a file directly.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from planner.cli.command import FINDING, FINE
from planner.cli.specs import report
from planner.cli.streams import fail, note

if TYPE_CHECKING:
    from planner.importer.laid import Laid
    from planner.importer.reader import Imported

EXAMPLES = (
    ("planner import config.json -o specs/mine.yaml", "convert a config of another program"),
    ("planner import config.json --cluster 8xH100-80GB-SXM --layout ds_config.json", "divide a model among devices as DeepSpeed does"),
    ("planner import train.sh --set vocab_size=128256", "convert a Megatron-LM script that leaves the vocabulary to its tokenizer"),
    ("planner import --keys qwen3", "print which keys of a config.json are read, and for which settings"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", nargs="?", help="file, folder with a config.json, or - for standard input")
    parser.add_argument("-o", "--output", metavar="SPEC", type=Path, help="spec file to write (default: standard output)")
    parser.add_argument("--name", metavar="NAME", help="model name (default: from the file or folder)")
    parser.add_argument("--source", metavar="URL", help="URL to record as the source (default: taken from the config)")
    parser.add_argument("--force", action="store_true", help="overwrite an existing spec")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="set a key of the configuration, e.g. vocab_size=32000 (repeatable)"
    )
    parser.add_argument(
        "--cluster",
        metavar="DEVICES",
        help="also convert how the configuration divides the model among these devices, e.g. 64xH100-80GB-SXM",
    )
    parser.add_argument(
        "--layout",
        metavar="FILE",
        help="configuration of DeepSpeed, accelerate or transformers' Trainer that divides the model among --cluster (default: CONFIG)",
    )
    parser.add_argument("--keys", metavar="TYPE", help="print the keys that a model_type or trainer knows (all: print the types)")


def run(arguments: argparse.Namespace) -> int:
    if arguments.keys is not None:
        return _print_keys(arguments)
    if arguments.config is None:
        return fail("missing CONFIG; give a file, a folder or -, or --keys TYPE")
    return _convert(arguments)


def _print_keys(arguments: argparse.Namespace) -> int:
    from planner.importer.listing import keys_text
    from planner.importer.reader import UnsupportedConfigError

    if arguments.config is not None:
        return fail("--keys takes no CONFIG")
    try:
        sys.stdout.write(keys_text(arguments.keys))
    except UnsupportedConfigError as error:
        return fail(str(error))
    return FINE


def _convert(arguments: argparse.Namespace) -> int:
    from planner.importer.files import first_problem, import_file, locate, name_of
    from planner.importer.reader import UnsupportedConfigError
    from planner.importer.write import spec_text
    from planner.report.write import write
    from planner.spec.problems import SpecError

    output: Path | None = arguments.output
    if arguments.layout and not arguments.cluster:
        return fail("--layout requires --cluster, e.g. --cluster 8xH100-80GB-SXM")
    if output and output.exists() and not arguments.force:
        return fail(f"{output.as_posix()} already exists; use --force to overwrite")
    try:
        file = locate(arguments.config)
        imported, address = import_file(file, arguments.set)
        name = arguments.name or name_of(file, output.name if output else None)
        laid = _layout(arguments, file, imported)
        imported = laid.on_devices(imported) if laid else imported
        text = spec_text(imported, name, source=arguments.source or address, laid=laid)
        if wrong := first_problem(text):
            raise UnsupportedConfigError(wrong)  # noqa: TRY301 - reported like any unsupported configuration
    except SpecError as error:
        return report(error.problems)
    except UnsupportedConfigError as error:
        note(f"{'standard input' if arguments.config == '-' else arguments.config}: {error}")
        return FINDING
    for remark in imported.remarks:
        note(remark)
    for text_of_note in laid.notes if laid else ():
        note(f"note: {text_of_note}")
    for part in imported.omits:
        note(f"not counted: {part}")
    code = _weigh(file)
    if output is None:
        sys.stdout.write(text)
        return code
    write(output.parent, {output.name: text.encode()})
    note(f"wrote {output.as_posix()}")
    return code


def _layout(arguments: argparse.Namespace, file: str, imported: Imported) -> Laid | None:
    """Return the layout of the configuration, or of the file that divides the model. Raises SpecError, UnsupportedConfigError."""
    from planner.importer.files import import_layout

    if not arguments.cluster:
        return None
    if arguments.layout:
        return import_layout(arguments.layout, (), imported, arguments.cluster)
    return import_layout(file, arguments.set, imported, arguments.cluster)


def _weigh(file: str) -> int:
    """Compare the imported model with the index of the weights in the same folder, if there is one, and return the exit code."""
    from planner import capacity, load
    from planner.verify import CannotMeasureError
    from planner.verify.weight_index import NAME, check

    index = Path(file).with_name(NAME)
    if Path(file).name != "config.json" or not index.is_file():
        return FINE
    spec = load(file)
    try:
        found = check(capacity.plan(spec, spec.scenarios[0]), index)
    except CannotMeasureError as error:
        note(str(error))
        return FINE
    note(f"{index.as_posix()}: {found.text}")
    return FINDING if found.agrees is False else FINE
