"""Write the reference pages of docs/ and the numbers in the other pages: `make docs`."""

from __future__ import annotations

import inspect
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the package of this checkout, and the measured training steps of its tests

from planner import api, capacity, load  # noqa: E402
from planner.capacity.figures import Plan  # noqa: E402
from planner.capacity.flops import DESCRIPTIONS  # noqa: E402
from planner.capacity.symbols import symbolize  # noqa: E402
from planner.importer.layouts import TABLE  # noqa: E402
from planner.importer.types import SUPPORTED  # noqa: E402
from planner.report import units  # noqa: E402
from planner.report.columns import COLUMNS, FINE_TUNED, GROUPS, METHODS, ON_DEVICES, SERVED, ComponentRow  # noqa: E402
from planner.spec.language import inlined  # noqa: E402
from planner.spec.records import Spec  # noqa: E402
from planner.trace.decoder import trace  # noqa: E402
from planner.trace.nodes import Operation, operations  # noqa: E402
from planner.trace.sizes import text  # noqa: E402
from tools.classes import class_accuracy  # noqa: E402
from tools.finetuning import published  # noqa: E402
from tools.formats import format_reference, with_programs  # noqa: E402
from tools.megatron import runs  # noqa: E402
from tools.tables import WRITTEN, table  # noqa: E402

DOCS = ROOT / "docs"

AGREEMENTS = ("metric", "reference", "cases", "agreement")
NAMES_OF_LAYOUTS = re.compile(r"(?<=<!-- names -->\n).*?(?=<!-- /names -->)", re.DOTALL)
ACCURACY = re.compile(r"(?<=<!-- accuracy -->\n).*?(?=<!-- /accuracy -->)", re.DOTALL)

ABOUT_SPECS = """\
A spec is YAML 1.2. Required keys are marked; all others are optional. Numbers are exact: `300e9` is an integer, and so is
`300_000_000_000`. Editors that support the comment `# yaml-language-server: $schema=…` show these descriptions while you type.
`planner schema` prints the JSON Schema. `planner show SPEC --settings` prints every setting and marks the defaults."""
ABOUT_COLUMNS = """\
UTF-8, commas, LF, integers only. New columns are appended at the end. Text that a spreadsheet would read as a formula is prefixed with an
apostrophe. `datapackage.json` describes the columns for programs; `planner schema csv` prints it. The method version increases when a
formula change alters results, so it is never mistaken for a model change."""
ABOUT_DEVICES = """\
If a spec in the file has a `cluster`, these columns follow; they are empty for the other specs. Figures are those of the device with the
largest peak. `planner diff` compares them, and budgets, `expect` and `planner sweep --figure` accept them."""
ABOUT_TUNED = """\
If a spec in the file freezes weights (`training.train`), these columns follow."""
ABOUT_SERVING = """\
It also has the model, its spec, and the settings of the section. Cells of figures that an engine's result lacks are empty. The
figures are also in capacity.json, and budgets, `expect` and `planner diff` use them."""
ABOUT_OPERATORS = """\
A model is one forward pass of these operators. Parameters, activations, FLOPs and peaks are sums and maxima over them. Totals are never
computed by a separate formula. Sources are named below: PyTorch 2.13's `derivatives.yaml` and `autocast_mode.h`, and the modules of
transformers 5.24 and Megatron-LM. `planner show SPEC --explain` prints the same for your model, with its numbers."""
ABOUT_FORMULAS = """\
1 multiply-add (MAC) is 2 FLOPs; only matrix products count. A tensor saved by an operator stays allocated from the forward to the backward
pass; if several operators save it, it counts once. In the formulas, B is the batch size and n the sequence length."""
ABOUT_TRUST = """\
Each metric was checked against an independent reference: published parameter counts, and training steps run by PyTorch 2.13 on fake tensors
of a simulated A100- or H100-class GPU, or on a CPU. The tests repeat every comparison below."""
EQUAL = """\
*Equal* means that parameters, saved bytes, allocated bytes at the start and after each pass, and FLOPs of both passes are all equal. The
peak comes from a liveness walk over the trace. It can differ slightly, because the order in which kernels free memory is not fully known;
the largest difference is listed."""
ABOUT_PYTHON = """\
The functions have the names of the commands and return records. The examples on this page are run by the tests, in a checkout."""
UNKNOWN = """\
- The first of several accumulated passes: bytes between the phases are those of the last one of a step, in which all gradients exist.
- Linears in float8: what they save is read from the sources of torchao and Transformer Engine. Compiled graphs may save 8-bit casts
  instead.
- Temporary memory of the updates of torchao's optimizers, whose kernels torch.compile builds.
- Inside SOAP's bases, copies and workspaces of cuSOLVER. The rest of its update equals pytorch_optimizer 4.1, run on fake tensors
  (`tests/data/optimizer_steps.jsonl`). Shampoo is not available: implementations differ in blocks, merged dimensions and grafting, and so
  several times in their state, and Meta's, the most used one, is not a released package.
- Paged optimizer state of bitsandbytes, which is in unified memory: in the model states, but not in the peak.
- torchtitan itself. `implementation: torchtitan` equals Llama 3's modules built again from the source of torchtitan 0.2.2 and run on fake
  tensors (`tests/verify/test_torchtitan.py`). Its compiled blocks and FSDP were not measured.
- `implementation: megatron-core` beyond three of Megatron-LM's own runs, GPT with 12 layers on A100 and H100: their recorded peaks are
  equal (`tests/trace/test_megatron_core.py`). Other parts are modeled from the source.
- The Triton kernels of liger-kernel, which write to tensors that its Python code allocates. That code of 0.8.5 was measured on fake tensors
  of a simulated A100 for 23 classes, with all switches and with each alone (`tools/measure_liger.py`): parameters, saved and allocated
  bytes, and FLOPs of PyTorch's operators are equal in 348 steps, peaks in 337; the largest difference of a peak is 1.2 %.
- The kernels of mamba_ssm, causal_conv1d and fla-core with `mixer_kernels: fused`. Their Python was measured in this way for 12 classes
  (`tools/measure_mixers.py`), with allocations of two C++ extensions read from their source: parameters, saved and allocated bytes are
  equal in 48 steps, and peaks within 0.7 %. FLOPs inside kernels are those of their products, read from the source.
- Other kernels, drivers and releases. `planner verify SPEC --all` measures your installed PyTorch.
- Model quality."""


def python_reference() -> Iterator[str]:
    """Describe the functions of the Python API by their docstrings, in the order of the code."""
    yield from ("# The Python API", "", WRITTEN, "", *ABOUT_PYTHON.splitlines(), "", *_plain(api).splitlines()[2:], "")
    for function in (one for name, one in vars(api).items() if name in api.__all__ and inspect.isfunction(one)):
        words, example, code = _plain(function).partition(">>> ")
        yield from (f"## {function.__name__}", "", "```python", *_signature(function), "```", "", *words.strip().splitlines(), "")
        yield from ("```pycon", *(example + code).splitlines(), "```", "") if example else ()


def _plain(documented: object) -> str:
    return (inspect.getdoc(documented) or "").replace("``", "`")


def _signature(function: Callable[..., object]) -> Iterator[str]:
    """Write a call with a line for each argument."""
    signature, star = inspect.signature(function), ["    *,"]
    yield f"planner.{function.__name__}("
    for one in signature.parameters.values():
        if one.kind in (one.VAR_POSITIONAL, one.KEYWORD_ONLY):
            yield from star if one.kind is one.KEYWORD_ONLY else ()
            star = []
        stars = "**" if one.kind is one.VAR_KEYWORD else "*" * (one.kind is one.VAR_POSITIONAL)
        yield f"    {stars}{one.name}: {one.annotation}{'' if one.default is one.empty else f' = {one.default!r}'},"
    yield f") -> {signature.return_annotation}"


def spec_reference() -> Iterator[str]:
    """Describe every key of a spec: values, default, meaning."""
    schema = inlined()
    yield from ("# The spec language", "", WRITTEN, "")
    yield from ABOUT_SPECS.splitlines()
    yield ""
    yield from _section("a spec", schema, 2)


def _section(name: str, schema: Mapping[str, Any], level: int, above: Mapping[str, Any] | None = None) -> Iterator[str]:
    """Describe a mapping's keys, then the mappings in it; ``above`` are the model's keys, which its layers share."""
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
    """Return the schema of a mapping, of the value itself or of its elements."""
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
    """Describe every column of the CSV files."""
    yield from ("# Columns of the CSV files", "", WRITTEN, "")
    yield from ABOUT_COLUMNS.splitlines()
    yield from ("", "## capacity.csv: one row per model and scenario", "")
    for columns, about in ((COLUMNS, ABOUT_DEVICES), (ON_DEVICES, ABOUT_TUNED), (FINE_TUNED, "")):
        rows = ((f"`{one.name}`", one.kind, one.unit, one.description, METHODS.get(one.name, "")) for one in columns)
        yield from (*table(("column", "type", "unit", "meaning", "method"), rows), "")
        yield from (*about.splitlines(), "") if about else ()
    yield from ("## serving.csv: one row per model with a section serving", "", *ABOUT_SERVING.splitlines(), "")
    figures = ((f"`{one.name}`", one.unit, one.description, METHODS.get(one.name, "")) for one in SERVED)
    yield from (*table(("column", "unit", "meaning", "method"), figures), "")
    yield from ("## components.csv: one row per model, scenario, group and component", "")
    yield f"Columns: {', '.join(f'`{name}`' for name in ComponentRow._fields)}. Groups:"
    yield ""
    yield from table(("group", "unit", "meaning"), ((f"`{one.name}`", one.unit, one.description) for one in GROUPS))


def operator_reference() -> Iterator[str]:
    """Describe every operator that the models of the catalog run, with an example from one of them."""
    found: dict[tuple[str, str], tuple[Callable[..., object], str, Operation]] = {}
    weights: dict[str, str] = {}
    for spec in sorted(_catalogue(), key=lambda spec: sum(len(run.layers) for run in spec.model.runs)):  # examples from uniform models
        names = symbolize(spec.model, spec.scenarios[0].training)
        forward = trace(names.model, names.training)
        for operation, _ in operations(forward.nodes):
            if operation.by is not None:
                by = operation.by
                key = (by.__module__.removeprefix("planner."), by.__name__)
                told = found.get(key)
                if told is None or (not told[2].flops.why and operation.flops.why) or (not told[2].saved and operation.saved):
                    found[key] = (by, spec.name, operation)
        for parameter in forward.parameters:
            weights.setdefault(parameter.why, f"`{parameter.name}` of {spec.name}")
    yield from ("# Operators and their formulas", "", WRITTEN, "")
    yield from ABOUT_OPERATORS.splitlines()
    yield ""
    yield from ABOUT_FORMULAS.splitlines()
    yield ""
    for module in dict.fromkeys(module for module, _ in sorted(found)):
        yield from (f"## {module}", "")
        for (where, name), (by, model, operation) in sorted(found.items()):
            if where == module:
                yield from _operator(name, by, model, operation)
    yield from ("## FLOPs conventions", "")
    yield from (f"- `{name}`: {what}" for name, what in DESCRIPTIONS.items())
    yield from ("", "## Formulas of weights", "")
    yield from table(("formula", "example"), sorted(weights.items()))


def _operator(name: str, by: Callable[..., object], model: str, operation: Operation) -> Iterator[str]:
    yield f"**`{name}`**. {' '.join((inspect.getdoc(by) or '').split())}".replace("<", "&lt;")
    example = []
    if operation.flops.why:
        example.append(f"forward `{text(operation.flops.full)}` FLOPs ({operation.flops.why})")
    if operation.saved:
        saved = (f"{one.what} `[{', '.join(map(text, one.tensor.shape))}]` {one.tensor.dtype}" for one in operation.saved)
        example.append(f"saves {', '.join(saved)}")
    if example:
        yield f"Example, `{operation.path or 'model'}` of {model}: {'; '.join(example)}."
    yield ""


def _catalogue() -> list[Spec]:
    return [load(path) for path in [*sorted((ROOT / "specs").glob("*.yaml")), *sorted((ROOT / "specs" / "catalog").glob("*/*.yaml"))]]


def trust() -> Iterator[str]:
    """Report the accuracy of each metric, from the measurements and published counts in the tests."""
    yield from ("# Accuracy of each metric", "", WRITTEN, "")
    yield from ABOUT_TRUST.splitlines()
    yield ""
    yield from table(AGREEMENTS, _agreements().values(), "llrl")
    yield from ("", "## Training steps, by model", "")
    yield f"`tests/data/training_steps.csv` has {len(_measured())} training steps. They vary precision, kernels, recomputation, loss,"
    yield "optimizer, batch size and sequence length."
    yield from EQUAL.splitlines()
    yield ""
    yield from table(("model", "steps", "equal", "peak equal", "largest difference of a peak"), _by_family(), "lrrrr")
    yield from class_accuracy()
    yield from runs()
    yield from published()
    yield from ("", "## Published models", "")
    equal, total = _published()
    yield f"{equal} of {total} specs in `specs/` have exactly as many parameters as were published or as the released weights hold. Each"
    yield "names its source, and `planner run` checks them every time."
    yield from ("", "## Published reference values", "")
    yield "`tests/test_known_values.py` has closed forms and tables from papers and textbooks, with their arithmetic:"
    yield ""
    tests = re.findall(r"^def test_(\w+)", (ROOT / "tests" / "test_known_values.py").read_text(encoding="utf-8"), flags=re.MULTILINE)
    yield from (f"- {name.replace('_', ' ')}" for name in tests)
    yield from ("", "## Not modeled", "")
    notes = dict.fromkeys(note for _, plan in _measured() for note in plan.not_counted)
    yield from (f"- {note[0].upper()}{note[1:]}." for note in notes)
    yield from UNKNOWN.splitlines()


@cache
def _published() -> tuple[int, int]:
    """Return the number of specs with exactly the published parameters, and of all specs with a published count."""
    expected = [(spec, claim) for spec in _catalogue() for claim in spec.claims if claim.figure == "params_total"]
    return sum(capacity.plan(spec, spec.scenarios[0]).parameters.total == claim.value for spec, claim in expected), len(expected)


@cache
def _measured() -> list[tuple[Mapping[str, str], Plan]]:
    """Return the measured training steps and their plans."""
    from tests.capacity.training_steps import CASES, planned

    return [(case, planned(number)) for number, case in enumerate(CASES)]


def _compared(case: Mapping[str, str], plan: Plan) -> dict[str, tuple[int, int]]:
    """Return each metric of a measured step: planned and measured."""
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


def _agreements() -> dict[str, tuple[str, ...]]:
    """Return the rows of the table of agreements, by the column of the measurements."""
    allocations = "PyTorch storages, tracked after each operator"
    counter = "`torch.utils.flop_counter`, plus operators that it omits"
    metrics = {
        "params": ("parameters", "the PyTorch module"),
        "saved_bytes": ("activations saved for backward", "storages saved by autograd"),
        "start_bytes": ("allocated memory before forward: model states", allocations),
        "after_fwd_bytes": ("allocated memory after forward", allocations),
        "after_bwd_bytes": ("allocated memory after backward", allocations),
        "flops_fwd_all": ("forward FLOPs, convention `hardware`", counter),
        "flops_bwd_all": ("backward FLOPs, convention `hardware`", counter),
        "peak_bytes": ("peak memory from the second step on", allocations),
        "peak1_bytes": ("peak memory of the first step", allocations),
    }
    compared = [_compared(case, plan) for case, plan in _measured()]
    return {
        name: (metric, reference, f"{len(compared)} training steps", _agreement([each[name] for each in compared]))
        for name, (metric, reference) in metrics.items()
    }


def _agreement(pairs: Sequence[tuple[int, int]]) -> str:
    equal = sum(ours == theirs for ours, theirs in pairs)
    return "all equal" if equal == len(pairs) else f"{equal} equal, largest difference {_off(pairs)}"


def _off(pairs: Iterable[tuple[int, int]]) -> str:
    ours, theirs = max(pairs, key=lambda pair: abs(pair[0] - pair[1]) / pair[1])
    return units.share(abs(ours - theirs), theirs)


def _by_family() -> Iterator[tuple[str, ...]]:
    names = {"nano": "GPT-2 as in nanoGPT"}
    groups: dict[str, list[dict[str, tuple[int, int]]]] = defaultdict(list)
    for case, plan in _measured():
        groups[case["family"]].append(_compared(case, plan))
    for family, members in groups.items():
        peaks = [[each.pop("peak_bytes"), each.pop("peak1_bytes")] for each in members]
        equal = Counter(all(ours == theirs for ours, theirs in each.values()) for each in members)[True]
        flat = [pair for both in peaks for pair in both]
        exact = sum(ours == theirs for ours, theirs in flat)
        name = names.get(family, f"transformers' {family}")
        yield (name, str(len(members)), str(equal), f"{exact} of {len(flat)}", _off(flat))


def accuracy() -> Iterator[str]:
    """Return the table of agreements for README.md."""
    equal, total = _published()
    parameters = ("parameters", "published weights, transformers", f"{total} specs", "all equal" if equal == total else f"{equal} equal")
    agreements = _agreements()
    measured = (agreements[name] for name in ("saved_bytes", "flops_fwd_all", "flops_bwd_all", "peak_bytes"))
    yield from table(AGREEMENTS, (parameters, *measured), "llrl")


def names_of_layouts() -> Iterator[str]:
    """Return the table of the keys of a layout in other programs for docs/devices.md."""

    def code(name: str) -> str:
        term, _, more = name.partition(" (")
        terms = ", ".join(f"`{one}`" for one in term.split(", "))
        return name if not term or term.startswith("(") else terms + (f" ({more}" if more else "")

    rows = ((f"`{one.key}`", *map(code, (one.megatron, one.torchtitan, one.deepspeed, one.accelerate))) for one in TABLE)
    yield from table(("key", "Megatron-LM", "torchtitan", "DeepSpeed", "accelerate"), rows)


def counted(page: str) -> str:
    """Return the page with the current number before each of these words."""
    numbers = {
        "example specs": len(list((ROOT / "specs").glob("*.yaml"))),
        "published models": len(list((ROOT / "specs" / "catalog").glob("*/*.yaml"))),
        "model types": len(SUPPORTED),
        "training steps": len(_measured()),
    }
    return re.sub(rf"\b\d+ ({'|'.join(numbers)})\b", lambda match: f"{numbers[match[1]]} {match[1]}", page)


def pages() -> dict[Path, str]:
    """Return the up-to-date text of every page."""
    generated = {
        "python.md": python_reference,
        "spec.md": spec_reference,
        "columns.md": column_reference,
        "operators.md": operator_reference,
        "trust.md": trust,
        "formats.md": format_reference,
    }
    made = {DOCS / name: "\n".join(lines()).rstrip() + "\n" for name, lines in generated.items()}
    for page in (ROOT / "README.md", ROOT / "CHANGELOG.md", DOCS / "models.md"):
        made[page] = ACCURACY.sub("\n".join([*accuracy(), ""]), counted(page.read_text(encoding="utf-8")))
    made[DOCS / "devices.md"] = NAMES_OF_LAYOUTS.sub(
        lambda _: "\n".join([*names_of_layouts(), ""]), (DOCS / "devices.md").read_text(encoding="utf-8")
    )
    for page in (ROOT / "README.md", DOCS / "models.md", ROOT / "planner" / "cli" / "import_.py"):
        made[page] = with_programs(made.get(page) or page.read_text(encoding="utf-8"))
    return made


def outdated() -> dict[Path, str]:
    """Return the text of the pages that are not up to date."""
    return {path: text for path, text in pages().items() if not path.exists() or path.read_text(encoding="utf-8") != text}


def main() -> None:
    """Update the pages."""
    for path, page in outdated().items():
        path.write_text(page, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
