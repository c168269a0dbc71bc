"""The command ``planner``. It joins the rooms and does no arithmetic; each import waits for the subcommand that needs it."""

from __future__ import annotations

import argparse
import io
import os
import shutil
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import planner

if TYPE_CHECKING:
    from planner.spec.problems import Problem
    from planner.spec.records import Spec
    from planner.verify.records import Check, Row

FINE, FINDING, FAILURE, INTERRUPTED, CLOSED_PIPE = 0, 1, 2, 130, 141

_FORMATS = ("csv", "md", "json")
_NOT_READ = ("folder", "no-specs", "not-found", "unreadable")  # problems of the command line, not of a spec

_EPILOG = """\
examples:
  planner run specs/*.yaml                      plan every spec, write reports/, print a table
  planner run specs --format csv,md,json        folders too; capacity.json as well
  planner run specs/*.yaml --check              in CI: are the committed reports up to date?
  planner validate specs/*.yaml                 check specs, compute nothing
  planner show specs/gpt2-small.yaml --explain  one model, and where its figures come from
  planner show specs/gpt2-small.yaml --set training.batch_size=16
  planner verify specs/*.yaml                   does PyTorch count the same parameters?
  planner verify specs/gpt2-small.yaml --all    and keep, compute and hold the same?
  planner schema > spec.schema.json             the JSON Schema, for editors

exit codes:
  0    fine
  1    a finding: an invalid spec, a claim under expect that fails, a stale report, a difference from PyTorch
  2    the tool could not do its job: a usage error, no such spec, a file that cannot be written
  130  interrupted; 141: the reader of standard output went away

Data goes to standard output, all else to standard error. Colors are for terminals, and none under NO_COLOR.
"""

_RUN = """\
Check all specs, plan every scenario, write the reports, and print a table. All errors of all specs are told, and with any of them, or
with a claim under expect that fails, nothing is written. Reports are written whole or not at all, their rows sorted by model.
Under --set, claims under expect are not checked: they are about the spec as it stands.
"""

_VERIFY = """\
Build the model from the spec as PyTorch modules and compare what PyTorch says: parameters name by name, always, and what the options ask
for. Needs the extra torch, and no GPU: --kept, --flops and --step run at full size on a GPU of the A100's class that is made up, without
data. --optimizer and --loss run a small twin of the model on the CPU. What cannot be built is named, and is never a pass: exit code 2.
"""

_CHECKS: dict[Check, str] = {
    "kept": "bytes kept for the backward pass, module by module",
    "flops": "FLOPs of the forward and the backward pass",
    "step": "the peak of a training step, by phase",
    "optimizer": "bytes that the optimizer of a small twin holds after a step",
    "loss": "the logits' shape and the first loss of a small twin",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default the program's, and return its exit code."""
    _settle_streams()
    try:
        code = _dispatch(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains when it flushes at exit
        return CLOSED_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except Exception:  # noqa: BLE001 - Python's own exit code for a bug would be 1, a finding
        traceback.print_exc()
        return _fail("this is a bug in planner, not in the spec; please report it with the lines above")
    return code


def _settle_streams() -> None:
    """Let a name that the terminal's encoding lacks, or a stream that the caller closed, be no reason to fail."""
    sys.stdout = sys.stdout or io.StringIO()
    sys.stderr = sys.stderr or io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _dispatch(argv: Sequence[str] | None) -> int:
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as exit_:  # after --help, --version or a usage error
        return exit_.code if isinstance(exit_.code, int) else FAILURE
    code: int = arguments.command(arguments)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="planner",
        description="What a transformer language model takes: parameters, memory and FLOPs, exact, from a YAML spec.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"planner {planner.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    run = commands.add_parser("run", help="plan specs and write reports", description=_RUN, allow_abbrev=False)
    _add_specs(run)
    run.add_argument("--output", metavar="DIR", type=Path, default=Path("reports"), help="where reports go (default: reports)")
    run.add_argument(
        "--format",
        metavar="FORMATS",
        type=_formats,
        default=("csv", "md"),
        help="of csv (capacity.csv, components.csv), md (capacity.md), json (capacity.json), with commas between (default: csv,md)",
    )
    run.add_argument("--check", action="store_true", help="write nothing; exit 1 when a report on disk is missing or stale, and name it")
    _add_set(run)
    run.set_defaults(command=_run)

    validate = commands.add_parser("validate", help="check specs, compute nothing", description="Check specs.", allow_abbrev=False)
    _add_specs(validate)
    validate.set_defaults(command=_validate)

    show = commands.add_parser(
        "show", help="one model's breakdown", description="Print one model's breakdown as a tree.", allow_abbrev=False
    )
    show.add_argument("spec", metavar="SPEC", help="a spec file, or - for standard input")
    show.add_argument("--scenario", metavar="NAME", default="base", help="which of the spec's scenarios (default: base)")
    show.add_argument("--explain", action="store_true", help="each figure's formula, the numbers put in, and its source")
    show.add_argument("--shapes", action="store_true", help="the shape of every tensor from token ids to logits")
    show.add_argument("--tensors", action="store_true", help="every stored tensor")
    _add_set(show)
    show.set_defaults(command=_show)

    verify = commands.add_parser("verify", help="compare with PyTorch", description=_VERIFY, allow_abbrev=False)
    _add_specs(verify)
    for check, what in _CHECKS.items():
        verify.add_argument(f"--{check}", action="append_const", const=check, dest="checks", help=what)
    verify.add_argument("--all", action="store_true", help="all of these")
    verify.add_argument("--format", choices=("text", "md", "json"), default="text", help="of what is printed (default: text)")
    _add_set(verify)
    verify.set_defaults(command=_verify)

    schema = commands.add_parser("schema", help="print the JSON Schema of a spec", description="Print the JSON Schema.", allow_abbrev=False)
    schema.set_defaults(command=_schema)
    return parser


def _add_specs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("specs", metavar="SPEC", nargs="+", help="files, folders, globs, or - for standard input")


def _add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="a value on top of the spec, as training.batch_size=16; repeatable"
    )


def _formats(text: str) -> tuple[str, ...]:
    named = text.split(",")
    unknown = [name for name in named if name not in _FORMATS]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no format {unknown[0]!r}; there are {', '.join(_FORMATS)}")
    return tuple(name for name in _FORMATS if name in named)


def _run(arguments: argparse.Namespace) -> int:
    from planner import capacity
    from planner.report import claims, terminal
    from planner.report.files import files
    from planner.report.records import Planned
    from planner.report.write import outdated, write

    specs, code = _read(arguments.specs, arguments.set)
    if code:
        return code
    models = [Planned(spec, capacity.plans(spec)) for spec in sorted(specs, key=lambda spec: spec.name)]
    if arguments.set:
        _say("claims under expect are not checked under --set")
    elif broken := [problem for model in models for problem in claims.broken(model)]:
        return _tell(broken)
    reports = files(models, arguments.format)
    if arguments.check:
        wrong = outdated(arguments.output, reports)
        for path, how in wrong.items():
            _say(f"{path.as_posix()} is {how}; planner run writes it")
        return FINDING if wrong else FINE
    try:
        write(arguments.output, reports)
    except OSError as error:
        return _fail(f"cannot write {arguments.output.as_posix()}, nothing there has changed: {error.strerror or error}")
    _say(f"wrote {', '.join((arguments.output / name).as_posix() for name in reports)}")
    plans = [plan for model in models for plan in model.plans]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    sys.stdout.write(terminal.overview(plans, terminal.style(sys.stdout), width))
    return FINE


def _validate(arguments: argparse.Namespace) -> int:
    specs, code = _read(arguments.specs)
    if not code:
        _say(f"{len(specs)} {'spec is' if len(specs) == 1 else 'specs are'} valid")
    return code


def _show(arguments: argparse.Namespace) -> int:
    from planner import capacity
    from planner.report import breakdown, show, terminal

    specs, code = _read([arguments.spec], arguments.set)
    if code:
        return code
    if len(specs) > 1:
        return _fail(f"show takes one spec, {arguments.spec} has {len(specs)}")
    (spec,) = specs
    scenario = next((one for one in spec.scenarios if one.name == arguments.scenario), None)
    if scenario is None:
        return _fail(f"{spec.name} has no scenario {arguments.scenario!r}; it has {', '.join(one.name for one in spec.scenarios)}")
    plan = capacity.plan(spec, scenario)
    extra = [section(plan) for section, wanted in ((breakdown.shapes, arguments.shapes), (breakdown.tensors, arguments.tensors)) if wanted]
    style = terminal.style(sys.stdout)
    sys.stdout.write(show.tree(spec, plan, extra, style))
    if arguments.explain:
        sys.stdout.write("\n" + show.explanations(capacity.explain(spec, scenario), style))
    return FINE


def _verify(arguments: argparse.Namespace) -> int:
    from planner import verify
    from planner.report import terminal
    from planner.verify import table

    specs, code = _read(arguments.specs, arguments.set)
    if code:
        return code
    if problem := verify.torch_problem():
        return _fail(f"verify: {problem}")
    asked: tuple[Check, ...] = tuple(_CHECKS) if arguments.all else tuple(arguments.checks or ())
    rows: list[Row] = []
    for done, spec in enumerate(specs):
        for scenario in spec.scenarios if asked else spec.scenarios[:1]:
            checks: tuple[Check, ...] = (
                asked if scenario.name != "base" else ("parameters", *asked)
            )  # the model is the same in all scenarios
            _progress(f"{done + 1} of {len(specs)}: {spec.name} · {scenario.name}")
            try:
                rows += verify.compare(spec, scenario, checks)
            except verify.CannotMeasureError as error:
                _progress("")
                code = _fail(f"{spec.path}, scenario {scenario.name}, cannot be measured: {error}")
    _progress("")
    if arguments.format == "text":
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        sys.stdout.write(table.text(rows, terminal.style(sys.stdout), width))
    else:
        sys.stdout.write(table.markdown(rows) if arguments.format == "md" else table.as_json(rows))
    return code or (FINE if all(row.agrees for row in rows) else FINDING)


def _progress(text: str) -> None:
    """Show on a terminal what is being done, in place of what was shown before."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def _schema(_: argparse.Namespace) -> int:
    import json

    from planner import spec

    sys.stdout.write(json.dumps(spec.schema(), indent=2, ensure_ascii=False) + "\n")
    return FINE


def _read(paths: Sequence[str], overrides: Sequence[str] = ()) -> tuple[Sequence[Spec], int]:
    """Read the specs; with any problem, tell all of them and give the exit code that they call for."""
    from planner import spec

    specs, problems = spec.read(paths, overrides)
    return specs, _tell(problems)


def _tell(problems: Sequence[Problem]) -> int:
    from planner.report.terminal import style
    from planner.spec.problems import render

    if not problems:
        return FINE
    sys.stderr.write(render(problems, color=style(sys.stderr).color) + "\n")
    return FAILURE if any(problem.code in _NOT_READ or problem.place.file.startswith("--set ") for problem in problems) else FINDING


def _say(text: str) -> None:
    sys.stderr.write(f"planner: {text}\n")


def _fail(text: str) -> int:
    _say(text)
    return FAILURE
