"""Write the pages of docs/ that the code can tell: `make docs`. With --check, only say whether they are up to date.

docs/tutorial.md is written by hand; its commands are run one after the other in one folder, and what they print is brought up to date.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the package of this checkout, and the measured training steps of its tests

from planner import capacity, load  # noqa: E402
from planner.capacity.flops import DESCRIPTIONS  # noqa: E402
from planner.capacity.records import Plan  # noqa: E402
from planner.capacity.symbols import named  # noqa: E402
from planner.report import units  # noqa: E402
from planner.report.columns import COLUMNS, GROUPS, METHODS, ComponentRow  # noqa: E402
from planner.spec.language import inlined  # noqa: E402
from planner.spec.records import Scenario, Spec  # noqa: E402
from planner.trace.decoder import trace  # noqa: E402
from planner.trace.sizes import text  # noqa: E402
from planner.trace.tape import Node, Operation  # noqa: E402
from tools.readme import BLOCK, command_and_lines, refreshed  # noqa: E402

DOCS = ROOT / "docs"
DAY = "2026-01-01T00:00:00Z"  # of the tutorial's commits
WRITTEN = "<!-- Written by tools/docs.py from the code: change it there, then `make docs`. -->"

ABOUT_SPECS = """\
A spec is YAML 1.2. Required keys are marked, every other one may be left out. Numbers are exact: `300e9` is an integer, and so is
`300_000_000_000`. Editors that read the line `# yaml-language-server: $schema=…` show all this while you type; `planner schema` prints
the schema, and `planner show SPEC` every setting with the defaults marked."""
ABOUT_COLUMNS = """\
UTF-8, commas, LF, integers only. Columns are only ever appended. An apostrophe stands before text that a spreadsheet would take for a
formula. `datapackage.json` says the same for programs, and so does `planner schema csv`. The method is raised when the same spec comes
out otherwise, so that a change of a formula never looks like a change of a model."""
ABOUT_OPERATORS = """\
A model is one forward pass of these operators. Parameters, kept activations, FLOPs and peaks are sums and maxima over them; no total has
a formula of its own. Sources are in the sentences below: PyTorch 2.13's `derivatives.yaml` and `autocast_mode.h`, and the modules of
transformers 5.24 and Megatron-LM where they are named. `planner show SPEC --explain` prints the same for your model, with its numbers."""
ABOUT_FORMULAS = """\
A multiply-add is 2 FLOPs; only matrix products count. What an operator keeps stays alive from the forward to the backward pass; what
several operators keep is counted once. Formulas are those of the model named, in which B is the batch size and n the sequence length."""
ABOUT_TRUST = """\
Each figure was compared with something that is not this project: counts that were published, and training steps that PyTorch 2.13 ran, on
fake tensors of a made-up GPU of the A100's or H100's class or on a CPU. The tests hold every comparison below."""
EQUAL = """\
*Equal* means parameters, kept bytes, live bytes at the start and after each pass, and FLOPs of both passes, all to the last one. The peak
is a walk along the trace, which does not know every order in which kernels let go: it is told with its largest difference."""
UNKNOWN = """\
- What the updates of Adafactor, Muon and 8-bit AdamW need beside their state while they run: every result that leaves it out says so.
  The peak may then be too low where the optimizer's phase is the largest, as with a small batch.
- Lion's update in the first step: it is counted with all of Lion's state there, of which a first step still lacks some.
- What a kernel, a driver or a release other than these would do. `planner verify SPEC --all` asks the PyTorch that you have.
- Whether the model learns."""


def row(cells: Iterable[str]) -> str:
    """Write a line of a table."""
    return f"| {' | '.join(cell.replace('|', '&#124;').replace('<', '&lt;') for cell in cells)} |"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> Iterator[str]:
    """Write a table; align has r for each column of numbers."""
    yield row(headings)
    yield f"|{'|'.join('---:' if side == 'r' else '---' for side in align.ljust(len(headings), 'l'))}|"
    yield from map(row, rows)


def spec_reference() -> Iterator[str]:
    """Tell every key of a spec: what it may be, its default, and what it means."""
    schema = inlined()
    yield from ("# The spec language", "", WRITTEN, "")
    yield from ABOUT_SPECS.splitlines()
    yield ""
    yield from _section("a spec", schema, 2)


def _section(name: str, schema: Mapping[str, Any], level: int, above: Mapping[str, Any] | None = None) -> Iterator[str]:
    """Tell a mapping's keys, then the mappings in it; ``above`` are the model's keys, which its layers have too."""
    required = schema.get("required", [])
    yield f"{'#' * level} {name}"
    yield ""
    if name != "a spec":
        yield from (str(schema["description"]), "")
    rows = []
    inner: list[tuple[str, Mapping[str, Any]]] = []
    for key, value in schema["properties"].items():
        default = "**required**" if key in required else f"`{_yaml(value['default'])}`" if "default" in value else ""
        meaning = str(value.get("description", ""))
        if inside := _inside(value):
            if above is not None and key in above:
                meaning += f" As under `model.{key}`."
            else:
                meaning += " See below."
                inner.append((key, {**inside, "description": value.get("description", inside.get("description", ""))}))
        rows.append((f"`{key}`", _kinds(value), default, meaning))
    yield from (*table(("key", "value", "default", "meaning"), rows), "")
    for key, inside in inner:
        title = f"`{key}`" if name == "a spec" else f"{name[:-1]}.{key}`"
        yield from _section(title, inside, min(level + 1, 4), schema["properties"] if key == "layers" else above)


def _inside(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the mapping that a value is, or that each of its elements is; layers of layers are as layers are."""
    for one in (value, value.get("items", {}), *value.get("anyOf", ()), *value.get("oneOf", ())):
        if isinstance(one, dict) and "properties" in one:
            return one
    return None


def _kinds(value: Mapping[str, Any]) -> str:
    if "enum" in value:
        return ", ".join(f"`{_yaml(one)}`" for one in value["enum"])
    if "const" in value:
        return f"`{_yaml(value['const'])}`"
    alternatives = value.get("anyOf") or value.get("oneOf")
    if alternatives and "type" not in value:
        return ", or ".join(dict.fromkeys(_kinds(one) for one in alternatives if one.keys() & {"enum", "const", "type", "anyOf", "oneOf"}))
    kinds = value.get("type", "mapping" if "properties" in value else "value")
    names = [kinds] if isinstance(kinds, str) else kinds
    words = {"object": "mapping", "array": "list", "string": "text", "boolean": "`true` or `false`"}
    least = f" from {value['minimum']}" if value.get("minimum") not in (None, 0) else ""
    return ", or ".join(words.get(name, name) for name in names) + least


def _yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else '""' if value == "" else str(value)


def column_reference() -> Iterator[str]:
    """Tell every column of the CSV files."""
    yield from ("# The columns of the CSV files", "", WRITTEN, "")
    yield from ABOUT_COLUMNS.splitlines()
    yield from ("", "## capacity.csv, a row per model and scenario", "")
    rows = ((f"`{one.name}`", one.kind, one.unit, one.description, METHODS.get(one.name, "")) for one in COLUMNS)
    yield from (*table(("column", "type", "unit", "meaning", "method"), rows), "")
    yield from ("## components.csv, a row per model, scenario, group and component", "")
    yield f"Its columns are {', '.join(f'`{name}`' for name in ComponentRow._fields)}. The groups are:"
    yield ""
    yield from table(("group", "unit", "meaning"), ((f"`{one.name}`", one.unit, one.description) for one in GROUPS))


def operator_reference() -> Iterator[str]:
    """Tell every operator that the models of the catalogue run: what it states, and what that gives in one of them."""
    found: dict[tuple[str, str], tuple[Callable[..., object], str, Operation]] = {}
    weights: dict[str, str] = {}
    for spec in _catalogue():
        names = named(spec.model, spec.scenarios[0].training)
        forward = trace(names.model, names.training)
        for operation in _operations(forward.nodes):
            if operation.by is not None:
                by = operation.by
                key = (by.__module__.removeprefix("planner."), by.__name__)
                told = found.get(key)
                if told is None or (not told[2].flops.why and operation.flops.why) or (not told[2].saved and operation.saved):
                    found[key] = (by, spec.name, operation)
        for parameter in forward.parameters:
            weights.setdefault(parameter.why, f"`{parameter.name}` of {spec.name}")
    yield from ("# The formulas of every operator", "", WRITTEN, "")
    yield from ABOUT_OPERATORS.splitlines()
    yield ""
    yield from ABOUT_FORMULAS.splitlines()
    yield ""
    for module in dict.fromkeys(module for module, _ in sorted(found)):
        yield from (f"## {module}", "")
        for (where, name), (by, model, operation) in sorted(found.items()):
            if where == module:
                yield from _operator(name, by, model, operation)
    yield from ("## Conventions of FLOPs", "")
    yield from (f"- `{name}`: {what}" for name, what in DESCRIPTIONS.items())
    yield from ("", "## What weights are", "")
    yield from table(("formula", "for example"), sorted(weights.items()))


def _operations(nodes: Iterable[Node]) -> Iterator[Operation]:
    for node in nodes:
        if isinstance(node, Operation):
            yield node
        else:
            yield from _operations(node.body)


def _operator(name: str, by: Callable[..., object], model: str, operation: Operation) -> Iterator[str]:
    yield f"**`{name}`**. {' '.join((inspect.getdoc(by) or '').split())}".replace("<", "&lt;")
    example = []
    if operation.flops.why:
        example.append(f"forward `{text(operation.flops.full)}` FLOPs ({operation.flops.why})")
    if operation.saved:
        kept = (f"{one.what} `[{', '.join(map(text, one.tensor.shape))}]` {one.tensor.dtype}" for one in operation.saved)
        example.append(f"keeps {', '.join(kept)}")
    if example:
        yield f"For example `{operation.path or 'model'}` of {model}: {'; '.join(example)}."
    yield ""


def _catalogue() -> list[Spec]:
    return [load(path) for path in [*sorted((ROOT / "specs").glob("*.yaml")), *sorted((ROOT / "specs" / "catalog").glob("*/*.yaml"))]]


def trust() -> Iterator[str]:
    """Tell how far to trust each figure, from the measurements and published counts that the tests hold."""
    from tests.capacity.training_steps import cases

    rows = cases()
    planned = [(case, _planned(case)) for case in rows]
    yield from ("# How far to trust each figure", "", WRITTEN, "")
    yield from ABOUT_TRUST.splitlines()
    yield from ("", "| figure | against | cases | agreement |", "|---|---|---:|---|")
    yield from (row(cells) for cells in _agreements(planned))
    yield from ("", "## Training steps, by model", "")
    yield f"{len(rows)} steps of `tests/data/training_steps.csv`, over precisions, kernels, recomputation, losses, optimizers, B and n."
    yield from EQUAL.splitlines()
    yield ""
    yield from table(("model", "steps", "equal", "peak exact", "peak, at most off"), _by_family(planned), "lrrrr")
    yield from ("", "## Published models", "")
    claimed = [(spec, claim) for spec in _catalogue() for claim in spec.claims if claim.figure == "params_total"]
    equal = sum(capacity.plan(spec, spec.scenarios[0]).parameters.total == claim.value for spec, claim in claimed)
    yield f"{equal} of {len(claimed)} specs of `specs/` count exactly the parameters that were published or that the released weights hold,"
    yield "each with its source beside it. `planner run` checks them every time."
    yield from ("", "## What papers and textbooks print", "")
    yield "Their closed forms and tables are in `tests/test_known_values.py`, with the arithmetic beside each; it holds that"
    yield ""
    printed = re.findall(r"^def test_(\w+)", (ROOT / "tests" / "test_known_values.py").read_text(encoding="utf-8"), flags=re.MULTILINE)
    yield from (f"- {name.replace('_', ' ')}" for name in printed)
    yield from ("", "## What no figure knows", "")
    notes = dict.fromkeys(note for _, plan in planned for note in plan.not_counted)
    yield from (f"- {note}." for note in notes)
    yield from UNKNOWN.splitlines()


def _planned(case: Mapping[str, str]) -> Plan:
    from tests.capacity.training_steps import model, training

    scenario = Scenario("base", training(dict(case)))
    return capacity.plan(Spec(case["case"], case["case"], model(dict(case)), (scenario,)), scenario)


def _compared(case: Mapping[str, str], plan: Plan) -> dict[str, tuple[int, int]]:
    """Return each figure of a measured step: ours, and what was measured."""
    memory = plan.memory
    hardware = next(count for count in plan.flops.by_convention if count.convention == "hardware")
    ours = {
        "params": plan.parameters.total,
        "saved_bytes": memory.activations_bytes,
        "start_bytes": memory.live.start,
        "after_fwd_bytes": memory.live.after_forward,
        "after_bwd_bytes": memory.live.after_backward,
        "flops_fwd_all": hardware.forward_per_step,
        "flops_bwd_all": hardware.train_per_step - hardware.forward_per_step,
        "peak_bytes": memory.peak_bytes,
        "peak1_bytes": memory.first_step_peak_bytes,
    }
    return {name: (value, int(case[name])) for name, value in ours.items()}


def _agreements(planned: Sequence[tuple[Mapping[str, str], Plan]]) -> Iterator[tuple[str, ...]]:
    live, counter = "storages alive, operator by operator", "`torch.utils.flop_counter`, and by hand what it leaves out"
    said = {
        "params": ("parameters", "the module's own"),
        "saved_bytes": ("activations kept for backward", "storages that autograd holds"),
        "start_bytes": ("live bytes at the start of a step: model states", live),
        "after_fwd_bytes": ("live bytes after the forward pass", live),
        "after_bwd_bytes": ("live bytes after the backward pass", live),
        "flops_fwd_all": ("FLOPs of the forward pass, convention `hardware`", counter),
        "flops_bwd_all": ("FLOPs of the backward pass, convention `hardware`", counter),
        "peak_bytes": ("peak of every step after the first", live),
        "peak1_bytes": ("peak of the first step", live),
    }
    compared = [_compared(case, plan) for case, plan in planned]
    for name, (what, against) in said.items():
        yield (what, against, str(len(compared)), _agreement([each[name] for each in compared]))


def _agreement(pairs: Sequence[tuple[int, int]]) -> str:
    equal = sum(ours == theirs for ours, theirs in pairs)
    if equal == len(pairs):
        return "all equal to the last one"
    return f"{equal} equal, the largest difference {_off(pairs)}"


def _off(pairs: Iterable[tuple[int, int]]) -> str:
    ours, theirs = max(pairs, key=lambda pair: abs(pair[0] - pair[1]) / pair[1])
    return units.share(abs(ours - theirs), theirs)


def _by_family(planned: Sequence[tuple[Mapping[str, str], Plan]]) -> Iterator[tuple[str, ...]]:
    names = {"nano": "GPT-2 as in nanoGPT"}
    groups: dict[str, list[dict[str, tuple[int, int]]]] = defaultdict(list)
    for case, plan in planned:
        groups[case["family"]].append(_compared(case, plan))
    for family, members in groups.items():
        peaks = [[each.pop("peak_bytes"), each.pop("peak1_bytes")] for each in members]
        equal = Counter(all(ours == theirs for ours, theirs in each.values()) for each in members)[True]
        flat = [pair for both in peaks for pair in both]
        exact = sum(ours == theirs for ours, theirs in flat)
        name = names.get(family, f"transformers' {family}")
        yield (name, str(len(members)), str(equal), f"{exact} of {len(flat)}", _off(flat))


def tutorial(old: str) -> str:
    """Run the tutorial's commands one after the other in an empty folder, and show what they print."""
    with tempfile.TemporaryDirectory() as folder:
        nobody = {
            f"GIT_{role}_{what}": value
            for role in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", "you"), ("EMAIL", "you@here"), ("DATE", DAY))
        }
        settled = {
            "NO_COLOR": "1",
            "PYTHONPATH": str(ROOT),
            "PYTHON": sys.executable,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | nobody | settled

        def refresh(match: re.Match[str]) -> str:
            command, shown = command_and_lines(match[1])
            script = f'planner() {{ "$PYTHON" -m planner "$@"; }}\n{command}'
            run = subprocess.run(
                ["bash", "-c", f"({script}\n) 2>&1"], stdout=subprocess.PIPE, encoding="utf-8", cwd=folder, env=environment, check=False
            )
            return "\n".join([f"$ {command}", *refreshed(shown, run.stdout.splitlines())]) + "\n"

        return BLOCK.sub(refresh, old)


def pages() -> dict[Path, str]:
    """Return every page as it should be."""
    made = {"spec.md": spec_reference, "columns.md": column_reference, "operators.md": operator_reference, "trust.md": trust}
    written = {DOCS / name: "\n".join(make()).rstrip() + "\n" for name, make in made.items()}
    by_hand = DOCS / "tutorial.md"
    return written | {by_hand: tutorial(by_hand.read_text(encoding="utf-8"))}


def main() -> int:
    """Write the pages, or check them."""
    stale = {path: text for path, text in pages().items() if not path.exists() or path.read_text(encoding="utf-8") != text}
    if "--check" in sys.argv[1:]:
        sys.stderr.writelines(f"{path.relative_to(ROOT).as_posix()} is stale\n" for path in stale)
        return int(bool(stale))
    for path, page in stale.items():
        path.write_text(page, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
