"""The command ``planner``. It joins the rooms and does no arithmetic; each import waits for the subcommand that needs it."""

from __future__ import annotations

import argparse
import io
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import planner

if TYPE_CHECKING:
    from datetime import date

    from planner.report.records import Planned
    from planner.review.records import Review
    from planner.spec.problems import Problem
    from planner.spec.records import Spec
    from planner.verify.records import Check, Row

FINE, FINDING, FAILURE, INTERRUPTED, CLOSED_PIPE = 0, 1, 2, 130, 141

_FORMATS = ("csv", "md", "json", "xlsx", "html")
_GATES = ("github", "sarif", "junit")
_REVIEW_FORMATS = ("text", "md", "json", *_GATES)
_NOT_READ = ("folder", "no-specs", "not-found", "unreadable")  # problems of the command line, not of a spec

_EPILOG = """\
examples:
  planner run specs/*.yaml                      plan every spec, write reports/, print a table
  planner run specs --format csv,md,json        folders too; capacity.json as well
  planner run specs --format html               one page with pictures, reports/capacity.html
  planner run specs/*.yaml --check              in CI: are the committed reports up to date?
  planner validate specs/*.yaml                 check specs, compute nothing
  planner show specs/gpt2-small.yaml --explain  one model, and where its figures come from
  planner show specs/gpt2-small.yaml --set training.batch_size=16
  planner verify specs/*.yaml                   does PyTorch count the same parameters?
  planner verify specs/gpt2-small.yaml --all    and keep, compute and hold the same?
  planner diff --base origin/main               what a change of specs costs, why, and whether it is allowed
  planner import config.json -o specs/mine.yaml a Hugging Face, Megatron-LM, LitGPT or nanoGPT configuration as a spec
  planner list llama                            the published models of the catalogue; extends: catalog/NAME starts from one
  planner init my-model --from llama            a first spec, budgets, hooks; --ci github: a workflow that reviews
  planner sweep specs/gpt2-small.yaml --set training.batch_size=1..64 --set training.precision=fp32,bf16
  planner fit specs/gpt2-small.yaml --memory 80GiB     the largest batch, sequence, depth and width that fit
  planner compare specs/gpt2-*.yaml             candidates side by side, and the tokens that suit them
  planner size --params 7e9 --like llama        shapes of about seven billion parameters
  planner schema > spec.schema.json             the JSON Schema, for editors

exit codes:
  0    fine
  1    a finding: an invalid spec, a claim under expect that fails, a broken budget, a stale report, a difference from PyTorch
  2    the tool could not do its job: a usage error, no such spec, a file that cannot be written
  130  interrupted; 141: the reader of standard output went away

Data goes to standard output, all else to standard error. Colors are for terminals, and none under NO_COLOR.
"""

_RUN = """\
Check all specs, plan every scenario, write the reports, and print a table. All errors of all specs are told, and with any of them, or
with a claim under expect that fails, nothing is written. Reports are written whole or not at all, their rows sorted by model.
Under --set, claims under expect are not checked: they are about the spec as it stands. Budgets of planner.yaml are told in the end.
"""

_DIFF = """\
Compare the specs of the work tree with those of a git revision, computed anew by today's formulas: what changed, which line moved it, and
whether budgets, claims and names still hold. Without SPEC, what planner.yaml names under specs, or the folder specs. The base is the merge
base with the main branch; --base REF is that revision, --base REF... the merge base with it. Models are matched by name. Nothing in the
work tree or the repository changes. Exit code 1: a finding that is more than a warning.
"""

_INIT = """\
Write a commented spec, planner.yaml, hooks for pre-commit, and the schemas for editors; with --ci github a workflow that reviews pull
requests. What stands there already is left as it is, unless --force says otherwise.
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

_IMPORT = """\
Say somebody's configuration as a spec: a Hugging Face config.json (a composite one by its text part), Megatron-LM's arguments (YAML, a
command line, or as it prints them), a LitGPT model_config.yaml, nanoGPT's settings. Every key that was not understood is listed. What
changes the counts and is not known is refused, with exit code 1 and one line that names it; nothing is read as the nearest known type.
planner run, show and validate take a config.json as it is, too.
"""
_SWEEP = """\
Evaluate the base scenario over a grid of settings, exactly: every combination of the values that --set names. Values have commas between
them; a..b is all whole numbers from a to b, a..b..c those in steps of c. Writes sweep.csv (a row for each point), sweep.md (a pivot) and
sweep.svg (a chart), and prints the pivot.
"""
_FIT = "Solve for the largest value of a setting with which the peak of a training step stays within the memory, and say what limits it."
_COMPARE = """\
Put specs side by side: what they take, how much more or less than the first one, the settings in which they differ, and the training tokens
that are compute-optimal for their parameters. All scenarios of each spec, or the one named.
"""
_SIZE = """\
Propose shapes like a model's that come closest to a number of parameters, or of training FLOPs: d_model and d_ff multiples of 128, heads as
wide as the model's that divide, as many heads to a key head, and 32 to 256 of d_model for each layer. LIKE is gpt2, llama, a spec, or a
model of the catalogue. FLOPs are those of 20 tokens for each parameter, unless --tokens says otherwise.
"""
_COMPLETION = "Print a script that lets a shell complete commands, options and their choices."

_LIST = "List the models of the catalogue by name, with their parameters: planner run takes them by path, extends by this name."


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
    except Exception as error:  # noqa: BLE001 - Python's own exit code for a bug would be 1, a finding
        from planner.trace.refusal import NotModelledError

        if isinstance(error, NotModelledError):
            return _fail(str(error))
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
        help="of csv (capacity.csv, components.csv, datapackage.json), md (capacity.md), json (capacity.json), xlsx (capacity.xlsx), "
        "html (capacity.html), with commas between (default: csv,md)",
    )
    run.add_argument("--check", action="store_true", help="write nothing; exit 1 when a report on disk is missing or stale, and name it")
    _add_set(run)
    run.set_defaults(command=_run)

    validate = commands.add_parser("validate", help="check specs, compute nothing", description="Check specs.", allow_abbrev=False)
    _add_specs(validate)
    _add_format(validate, *_GATES)
    validate.set_defaults(command=_validate)

    show = commands.add_parser(
        "show", help="one model's breakdown", description="Print one model's breakdown as a tree.", allow_abbrev=False
    )
    show.add_argument("spec", metavar="SPEC", help="a spec file, or - for standard input")
    show.add_argument("--scenario", metavar="NAME", default="base", help="which of the spec's scenarios (default: base)")
    show.add_argument("--explain", action="store_true", help="each figure's formula, the numbers put in, and its source")
    show.add_argument("--shapes", action="store_true", help="the shape of every tensor from token ids to logits")
    show.add_argument("--tensors", action="store_true", help="every stored tensor")
    show.add_argument("--kept", action="store_true", help="every tensor kept for backward, with its shape, dtype, bytes and keeper")
    _add_format(show)
    _add_set(show)
    show.set_defaults(command=_show)

    verify = commands.add_parser("verify", help="compare with PyTorch", description=_VERIFY, allow_abbrev=False)
    _add_specs(verify)
    for check, what in _CHECKS.items():
        verify.add_argument(f"--{check}", action="append_const", const=check, dest="checks", help=what)
    verify.add_argument("--all", action="store_true", help="all of these")
    verify.add_argument("--device", choices=("cuda",), help="the peak of a real training step on the GPU in this machine, too")
    statement = verify.add_mutually_exclusive_group()
    statement.add_argument(
        "--config", metavar="FILE", type=Path, help="the parameters of the class that transformers builds from this config.json, instead"
    )
    statement.add_argument(
        "--against", choices=("transformers",), help="the parameters of the transformers class that says the same model, too"
    )
    _add_format(verify, "md")
    _add_set(verify)
    verify.set_defaults(command=_verify)

    diff = commands.add_parser("diff", help="review what a change costs", description=_DIFF, allow_abbrev=False)
    _add_diff(diff)
    diff.set_defaults(command=_diff)

    init = commands.add_parser("init", help="begin: a spec, budgets, hooks, a workflow", description=_INIT, allow_abbrev=False)
    _add_init(init)
    init.set_defaults(command=_init)

    _add_catalogue(commands)
    _add_explore(commands)
    _add_help(commands)
    return parser


def _add_catalogue(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    import_ = commands.add_parser(
        "import",
        help="read somebody's configuration",
        description=_IMPORT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_import(import_)
    import_.set_defaults(command=_import)

    list_ = commands.add_parser("list", help="find a published model", description=_LIST, allow_abbrev=False)
    list_.add_argument("pattern", metavar="PATTERN", nargs="?", default="", help="part of a name or of a family (default: all)")
    _add_format(list_)
    list_.set_defaults(command=_list)


def _add_help(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    schema = commands.add_parser("schema", help="print a JSON Schema", description="Print a JSON Schema.", allow_abbrev=False)
    schema.add_argument(
        "of",
        choices=("spec", "policy", "csv"),
        nargs="?",
        default="spec",
        help="of a spec, of planner.yaml, or the Table Schemas of the CSV files, datapackage.json (default: spec)",
    )
    schema.set_defaults(command=_schema)

    completion = commands.add_parser("completion", help="complete in a shell", description=_COMPLETION, allow_abbrev=False)
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="whose script")
    completion.set_defaults(command=_completion)


def _add_explore(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    sweep = commands.add_parser("sweep", help="figures over a grid of settings", description=_SWEEP, allow_abbrev=False)
    sweep.add_argument("spec", metavar="SPEC", help="a spec file")
    sweep.add_argument(
        "--set",
        metavar="KEY=VALUES",
        action="append",
        required=True,
        help="a setting and its values, as training.batch_size=1..64; repeatable",
    )
    sweep.add_argument("--figure", metavar="FIGURE", default="peak_bytes", help="what the pivot and the chart show (default: peak_bytes)")
    sweep.add_argument("--output", metavar="DIR", type=Path, default=Path("reports"), help="where the files go (default: reports)")
    _add_format(sweep, "md")
    sweep.set_defaults(command=_sweep)

    fit = commands.add_parser("fit", help="the largest that fits into memory", description=_FIT, allow_abbrev=False)
    fit.add_argument("spec", metavar="SPEC", help="a spec file")
    fit.add_argument("--memory", metavar="BYTES", required=True, help="of the device, as 80GiB or 80GB")
    fit.add_argument(
        "--for",
        dest="settings",
        choices=("batch_size", "sequence_length", "n_layers", "d_model"),
        action="append",
        help="a setting to solve for; repeatable (default: all)",
    )
    fit.add_argument("--scenario", metavar="NAME", default="base", help="which of the spec's scenarios (default: base)")
    _add_format(fit)
    _add_set(fit)
    fit.set_defaults(command=_fit)

    compare = commands.add_parser("compare", help="candidates side by side", description=_COMPARE, allow_abbrev=False)
    _add_specs(compare)
    compare.add_argument("--scenario", metavar="NAME", help="the scenario of each spec (default: all)")
    _add_format(compare, "md")
    _add_set(compare)
    compare.set_defaults(command=_compare)

    size = commands.add_parser("size", help="shapes of a size", description=_SIZE, allow_abbrev=False)
    target = size.add_mutually_exclusive_group(required=True)
    target.add_argument("--params", metavar="N", help="parameters, as 7e9 or 7B")
    target.add_argument("--flops", metavar="C", help="FLOPs of the whole training, as 1e21 or 1ZFLOP")
    size.add_argument("--like", metavar="LIKE", default="llama", help="whose proportions and parts (default: llama)")
    size.add_argument("--tokens", metavar="D", help="of the whole training, as 300e9 (default: 20 for each parameter)")
    _add_format(size)
    size.set_defaults(command=_size)


def _add_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="a file, a folder with a config.json, or - for standard input")
    parser.add_argument("-o", "--output", metavar="SPEC", type=Path, help="the spec to write (default: standard output)")
    parser.add_argument("--name", metavar="NAME", help="of the model (default: the file's or the folder's)")
    parser.add_argument("--source", metavar="URL", help="where the configuration comes from (default: what it says itself)")
    parser.add_argument("--force", action="store_true", help="replace a spec that is there already")


def _add_specs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("specs", metavar="SPEC", nargs="+", help="files, folders, globs, or - for standard input")


def _add_format(parser: argparse.ArgumentParser, *more: str) -> None:
    parser.add_argument("--format", choices=("text", *more, "json"), default="text", help="of what is printed (default: text)")


def _add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="a value on top of the spec, as training.batch_size=16; repeatable"
    )


def _add_diff(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("specs", metavar="SPEC", nargs="*", help="files, folders or globs (default: what planner.yaml names)")
    base = parser.add_mutually_exclusive_group()
    base.add_argument("--base", metavar="REF", help="a git revision; REF... is the merge base with it (default: that with the main branch)")
    base.add_argument("--base-report", metavar="FILE", type=Path, help="compare with a saved capacity.json instead")
    parser.add_argument("--format", choices=_REVIEW_FORMATS, default="text", help="of what is printed (default: text)")
    parser.add_argument(
        "--output", metavar="FORMAT=FILE", type=_output, action="append", default=[], help="write a file in a format as well; repeatable"
    )
    parser.add_argument("--links", metavar="URL", default="", help="where the files are on the web; makes places in Markdown links")
    parser.add_argument("--today", metavar="DATE", type=_date, help="the day on which waivers are in force (default: today, UTC)")
    codes = parser.add_mutually_exclusive_group()
    codes.add_argument("--exit-code", action="store_true", help="exit 1 on any change")
    codes.add_argument("--exit-zero", action="store_true", help="exit 0 whatever is found")


def _add_init(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", default="my-model", help="of the model and its file (default: my-model)")
    parser.add_argument("--from", metavar="ORIGIN", dest="origin", default="gpt2", help="gpt2, llama, or a config.json (default: gpt2)")
    parser.add_argument("--ci", choices=("github",), help="write a workflow too")
    parser.add_argument("--action", metavar="USES", default="OWNER/modelplan@v0.1.0", help="where the workflow's action is")
    parser.add_argument("--force", action="store_true", help="replace what stands there")


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
    from planner.review import standing

    specs, code = _read(arguments.specs, arguments.set)
    if code:
        return code
    models = [Planned(spec, capacity.plans(spec)) for spec in sorted(specs, key=lambda spec: spec.name)]
    if arguments.set:
        _say("claims under expect are not checked under --set")
    elif broken := [problem for model in models for problem in claims.broken(model)]:
        return _tell(broken)
    if "xlsx" in arguments.format:
        from planner.report import workbook

        if problem := workbook.problem():
            return _fail(f"run: {problem}")
    if {"xlsx", "html"} & set(arguments.format):
        models = standing.with_budgets(models, Path.cwd())
    reports = files(models, arguments.format)
    if arguments.check:
        wrong = outdated(arguments.output, reports)
        for path, how in wrong.items():
            _say(f"{path.as_posix()} is {how}; planner run writes it")
        return max(FINDING if wrong else FINE, _tell_standing(models))
    try:
        write(arguments.output, reports)
    except OSError as error:
        return _fail(f"cannot write {arguments.output.as_posix()}, nothing there has changed: {error.strerror or error}")
    _say(f"wrote {', '.join((arguments.output / name).as_posix() for name in reports)}")
    plans = [plan for model in models for plan in model.plans]
    sys.stdout.write(terminal.overview(plans, terminal.style(sys.stdout), _width()))
    return _tell_standing(models)


def _tell_standing(models: Sequence[Planned]) -> int:
    """Tell what planner.yaml does not allow, and give the exit code that it calls for."""
    from planner.report.terminal import printable

    if not any((folder / "planner.yaml").is_file() for folder in (Path.cwd(), *Path.cwd().parents)):
        return FINE  # the rules need not be imported
    from planner.review import standing, telling

    found = standing.findings(models, Path.cwd(), _today())
    for finding in found:
        sys.stderr.write(f"{printable(telling.line(finding))}\n")
    return FINDING if any(finding.severity == "error" for finding in found) else FINE


def _diff(arguments: argparse.Namespace) -> int:
    from functools import partial

    from planner.report import terminal
    from planner.report.write import write
    from planner.review.diff import Request, ReviewError, review
    from planner.review.formats import FORMATS
    from planner.review.markdown import markdown
    from planner.review.text import text

    request = Request(tuple(arguments.specs), arguments.base, arguments.base_report, arguments.today or _today())
    try:
        told = review(request, Path.cwd())
    except ReviewError as error:
        return _fail(f"diff: {error}")
    formats: dict[str, Callable[[Review], str]] = {**FORMATS, "md": partial(markdown, blob=arguments.links)}
    for form, path in arguments.output:
        write(path.parent, {path.name: formats[form](told).encode(errors="backslashreplace")})
    printed = text(told, terminal.style(sys.stdout)) if arguments.format == "text" else formats[arguments.format](told)
    sys.stdout.write(printed)
    if arguments.exit_zero:
        return FINE
    return FINDING if told.failed or (arguments.exit_code and told.changed) else FINE


def _output(text: str) -> tuple[str, Path]:
    form, _, path = text.partition("=")
    if form not in _REVIEW_FORMATS or not path:
        raise argparse.ArgumentTypeError(f"{text!r} is not FORMAT=FILE with a format of {', '.join(_REVIEW_FORMATS)}")
    return form, Path(path)


def _date(text: str) -> date:
    from datetime import date

    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no day as year-month-day") from None


def _today() -> date:
    from datetime import UTC, datetime

    return datetime.now(UTC).date()


def _init(arguments: argparse.Namespace) -> int:
    from planner.review import init

    folder = Path.cwd()
    try:
        files = init.files(arguments.name, arguments.origin, arguments.ci, arguments.action)
    except init.InitError as error:
        return _fail(f"init: {error}")
    kept = [] if arguments.force else init.standing(folder, files)
    if init.spec_file(arguments.name) in kept:
        return _fail(f"init: {init.spec_file(arguments.name)} is there already, so nothing is written; --force replaces it")
    init.write(folder, {name: text for name, text in files.items() if name not in kept})
    _say(f"wrote {', '.join(name for name in files if name not in kept)}")
    if kept:
        _say(f"left as they are: {', '.join(kept)}; --force replaces them")
    if arguments.ci and arguments.action.startswith("OWNER/"):
        _say("in the workflow, replace OWNER/modelplan by the repository that has the action")
    return FINE


def _validate(arguments: argparse.Namespace) -> int:
    if arguments.format == "json":
        return _validate_as_json(arguments.specs)
    if arguments.format != "text":
        return _validate_for_gate(arguments.specs, arguments.format)
    specs, code = _read(arguments.specs)
    if not code:
        _say(f"{len(specs)} {'spec is' if len(specs) == 1 else 'specs are'} valid")
    return code


def _validate_for_gate(paths: Sequence[str], form: str) -> int:
    from planner import spec
    from planner.review.formats import FORMATS
    from planner.review.standing import validation

    specs, problems = spec.read(paths)
    sys.stdout.write(FORMATS[form](validation(specs, problems, Path.cwd())))
    return _code(problems)


def _validate_as_json(paths: Sequence[str]) -> int:
    import json

    from planner import spec

    specs, problems = spec.read(paths)
    told = [
        {
            "file": problem.place.file,
            "line": problem.place.line,
            "column": problem.place.column,
            "code": problem.code,
            "message": problem.message,
            "hint": problem.hint,
        }
        for problem in problems
    ]
    sys.stdout.write(json.dumps({"valid": [one.path for one in specs], "problems": told}, ensure_ascii=False, indent=2) + "\n")
    return _code(problems)


def _show(arguments: argparse.Namespace) -> int:
    from planner import capacity
    from planner.report import breakdown, show, terminal
    from planner.report import json as as_json

    spec, code = _read_one(arguments, "show")
    if spec is None:
        return code
    scenario = next(one for one in spec.scenarios if one.name == arguments.scenario)
    plan = capacity.plan(spec, scenario)
    if arguments.format == "json":
        sys.stdout.write(as_json.report([plan], [spec], capacity.explain(spec, scenario) if arguments.explain else None))
        return FINE
    wanted = {breakdown.shapes: arguments.shapes, breakdown.tensors: arguments.tensors, breakdown.kept: arguments.kept}
    extra = [section(plan) for section, asked in wanted.items() if asked]
    style = terminal.style(sys.stdout)
    sys.stdout.write(show.tree(spec, plan, extra, style, _width()))
    if arguments.explain:
        sys.stdout.write("\n" + show.explanations(capacity.explain(spec, scenario), style))
    return FINE


def _verify(arguments: argparse.Namespace) -> int:
    from planner import verify
    from planner.report import terminal
    from planner.trace.refusal import NotModelledError
    from planner.verify import table

    specs, code = _read(arguments.specs, arguments.set)
    if code:
        return code
    if problem := verify.torch_problem():
        return _fail(f"verify: {problem}")
    asked: tuple[Check, ...] = tuple(_CHECKS) if arguments.all else tuple(arguments.checks or ())
    asked = (*asked, "device") if arguments.device else asked
    rows: list[Row] = []
    for done, spec in enumerate(specs):
        config = arguments.config or (Path(spec.path) if spec.path.endswith(".json") and not arguments.against else None)
        for scenario in spec.scenarios if asked else spec.scenarios[:1]:
            # Scenarios share the model, and so its parameters.
            parts = [(check,) for check in _of_the_model(arguments, config)] if scenario.name == "base" else []
            for checks in (*parts, asked):
                _progress(f"{done + 1} of {len(specs)}: {spec.name} · {scenario.name}")
                try:
                    rows += verify.compare(spec, scenario, checks, config)
                except (verify.CannotMeasureError, NotModelledError) as error:
                    _progress("")
                    code = _fail(f"{spec.path}, scenario {scenario.name}, {', '.join(checks)} cannot be measured: {error}")
    _progress("")
    if arguments.format == "text":
        sys.stdout.write(table.text(rows, terminal.style(sys.stdout), _width()))
    else:
        sys.stdout.write(table.markdown(rows) if arguments.format == "md" else table.as_json(rows))
    return code or (FINE if all(row.agrees for row in rows) else FINDING)


def _of_the_model(arguments: argparse.Namespace, config: Path | None) -> tuple[Check, ...]:
    """Return how parameters are held to account: by a given config.json's own class, which says any model, or by modules built anew."""
    if config:
        return ("config",)
    return ("parameters", "transformers") if arguments.against else ("parameters",)


def _progress(text: str) -> None:
    """Show on a terminal what is being done, in place of what was shown before."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def _import(arguments: argparse.Namespace) -> int:
    from planner.report.write import write
    from planner.spec import importer
    from planner.spec.problems import SpecError

    output: Path | None = arguments.output
    if output and output.exists() and not arguments.force:
        return _fail(f"{output.as_posix()} is there already, so nothing is written; --force replaces it")
    try:
        file = importer.locate(arguments.config)
        imported, address = importer.import_file(file)
        name = arguments.name or importer.name_of(file, output.name if output else None)
        text = importer.spec_text(imported, name, source=arguments.source or address)
        if wrong := importer.first_problem(text):
            raise importer.UnsupportedConfigError(wrong)  # noqa: TRY301 - told as any other refusal
    except SpecError as error:
        return _tell(error.problems)
    except importer.UnsupportedConfigError as error:
        _say(f"{'standard input' if arguments.config == '-' else arguments.config}: {error}")
        return FINDING
    for note in imported.notes:
        _say(f"note: {note}")
    if imported.not_understood:
        _say(f"not understood, and not taken to be about the model: {', '.join(imported.not_understood)}")
    if output is None:
        sys.stdout.write(text)
        return FINE
    write(output.parent, {output.name: text.encode()})
    _say(f"wrote {output.as_posix()}")
    return FINE


def _list(arguments: argparse.Namespace) -> int:
    import json

    from planner.report import terminal, units
    from planner.spec import catalogue

    found = catalogue.entries(arguments.pattern)
    if not found:
        near = catalogue.nearest(arguments.pattern)
        _say(f"the catalogue has no {arguments.pattern!r}" + (f"; the nearest names are {', '.join(near)}" if near else ""))
        return FINDING
    if arguments.format == "json":
        told = [
            {"name": f"catalog/{one.name}", "params_total": one.params_total, "params_active": one.params_active, "model": one.title}
            for one in found
        ]
        sys.stdout.write(json.dumps(told, ensure_ascii=False, indent=2) + "\n")
        return FINE
    rows = [(f"catalog/{one.name}", units.count(one.params_total), units.count(one.params_active), one.title) for one in found]
    width = _width()
    for line in terminal.table(("name", "params", "active", "model"), "lrrl", rows):
        sys.stdout.write(f"{line if width is None else terminal.shorten(line, width)}\n")
    return FINE


def _sweep(arguments: argparse.Namespace) -> int:
    from planner.explore import axes, sweep, view
    from planner.report import terminal
    from planner.report.write import write

    if arguments.figure not in sweep.FIGURES:
        return _fail(f"sweep: there is no figure {arguments.figure!r}; there are {', '.join(sweep.FIGURES)}")
    try:
        made, problems = sweep.sweep(arguments.spec, [axes.parse(one) for one in arguments.set], _Bar())
    except (ValueError, sweep.SweepError) as error:
        return _fail(f"sweep: {error}")
    finally:
        _progress("")
    if made is None:
        return _tell(problems)
    figure = arguments.figure
    files = {
        "sweep.csv": "".join(sweep.csv(made)).encode(),
        "sweep.md": view.as_markdown(made, figure).encode(),
        "sweep.svg": view.chart(made, figure).encode(),
    }
    write(arguments.output, files)
    _say(f"wrote {', '.join((arguments.output / name).as_posix() for name in files)}")
    if arguments.format == "text":
        sys.stdout.write(view.text(made, figure, terminal.style(sys.stdout)))
    else:
        sys.stdout.write(view.as_markdown(made, figure) if arguments.format == "md" else view.as_json(made))
    return FINE


class _Bar:
    """Show how much is done, once it has taken a second."""

    def __init__(self) -> None:
        self.start = time.monotonic()

    def __call__(self, done: int, of: int) -> None:
        if time.monotonic() - self.start > 1:
            filled = 40 * done // of
            _progress(f"[{'#' * filled}{' ' * (40 - filled)}] {done:,} of {of:,}")


def _fit(arguments: argparse.Namespace) -> int:
    from planner import capacity
    from planner.explore import fit
    from planner.report import terminal
    from planner.review import quantity

    try:
        memory = int(quantity.parse(arguments.memory, "bytes", bare=False).value)
    except ValueError as error:
        return _fail(f"fit: --memory cannot be {arguments.memory!r}; {error}")
    spec, code = _read_one(arguments, "fit")
    if spec is None:
        return code
    capacity.plan(spec, next(one for one in spec.scenarios if one.name == arguments.scenario))  # or it is refused here, with the reason
    found = fit.fits(spec, arguments.scenario, memory, arguments.settings or fit.SETTINGS)
    if not found:
        return _fail(f"fit: {spec.name} has its layers in several runs, so that n_layers is not one setting")
    if arguments.format == "json":
        sys.stdout.write(fit.as_json(spec, arguments.scenario, memory, found))
    else:
        sys.stdout.write(fit.text(spec, arguments.scenario, memory, found, terminal.style(sys.stdout)))
    return FINE if all(one.largest for one in found) else FINDING


def _compare(arguments: argparse.Namespace) -> int:
    from planner import capacity
    from planner.explore import compare
    from planner.report import terminal

    specs, code = _read(arguments.specs, arguments.set)
    if code:
        return code
    meant = [(spec, one) for spec in specs for one in spec.scenarios if arguments.scenario in (None, one.name)]
    if not meant:
        return _fail(f"compare: no spec has a scenario {arguments.scenario!r}")
    plans = [capacity.plan(spec, one) for spec, one in meant]
    if arguments.format == "text":
        sys.stdout.write(compare.text(plans, terminal.style(sys.stdout), _width() or 80))
    else:
        sys.stdout.write(compare.as_markdown(plans) if arguments.format == "md" else compare.as_json(plans))
    return FINE


def _size(arguments: argparse.Namespace) -> int:
    from planner.explore import size
    from planner.report import terminal
    from planner.review import quantity

    of = "params" if arguments.params else "flops"
    try:
        target = int(quantity.parse(getattr(arguments, of), {"params": "parameters", "flops": "FLOP"}[of]).value)
        tokens = int(quantity.parse(arguments.tokens, "tokens").value) if arguments.tokens else None
        path = size.path_of(arguments.like)
    except (ValueError, size.SizeError) as error:
        return _fail(f"size: {error}")
    specs, code = _read([path])
    if code:
        return code
    try:
        found = size.shapes(specs[0], target, of=of, tokens=tokens)
    except size.SizeError as error:
        return _fail(f"size: {error}")
    sys.stdout.write(size.as_json(found) if arguments.format == "json" else size.text(found, target, terminal.style(sys.stdout)))
    return FINE


def _completion(arguments: argparse.Namespace) -> int:
    from planner import completion

    sys.stdout.write(completion.script(arguments.shell, _parser()))
    return FINE


def _schema(arguments: argparse.Namespace) -> int:
    import json

    from planner import spec
    from planner.report.datapackage import datapackage

    if arguments.of == "csv":
        sys.stdout.write(datapackage())
        return FINE
    sys.stdout.write(json.dumps(spec.schema(arguments.of), indent=2, ensure_ascii=False) + "\n")
    return FINE


def _read(paths: Sequence[str], overrides: Sequence[str] = ()) -> tuple[Sequence[Spec], int]:
    """Read the specs; with any problem, tell all of them and give the exit code that they call for."""
    from planner import spec

    specs, problems = spec.read(paths, overrides)
    return specs, _tell(problems)


def _read_one(arguments: argparse.Namespace, command: str) -> tuple[Spec | None, int]:
    """Read the one spec of a command, which has the scenario asked for; else tell why not and give the exit code."""
    specs, code = _read([arguments.spec], arguments.set)
    if code:
        return None, code
    if len(specs) > 1:
        return None, _fail(f"{command} takes one spec, {arguments.spec} has {len(specs)}")
    (spec,) = specs
    if all(one.name != arguments.scenario for one in spec.scenarios):
        names = ", ".join(one.name for one in spec.scenarios)
        return None, _fail(f"{spec.name} has no scenario {arguments.scenario!r}; it has {names}")
    return spec, FINE


def _tell(problems: Sequence[Problem]) -> int:
    from planner.report.terminal import style
    from planner.spec.problems import render

    if problems:
        sys.stderr.write(render(problems, color=style(sys.stderr).color) + "\n")
    return _code(problems)


def _code(problems: Sequence[Problem]) -> int:
    """Give the exit code that problems call for."""
    if not problems:
        return FINE
    return FAILURE if any(problem.code in _NOT_READ or problem.place.file.startswith("--set ") for problem in problems) else FINDING


def _width() -> int | None:
    """Return the cells of the terminal's lines; None where nobody's terminal reads."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _say(text: str) -> None:
    sys.stderr.write(f"planner: {text}\n")


def _fail(text: str) -> int:
    _say(text)
    return FAILURE
