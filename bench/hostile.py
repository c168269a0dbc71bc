"""Run commands on mutated specs, configurations, scripts, policies and arguments: `make hostile`.

Each case runs in a forked process in a folder of its own. Reported are tracebacks, exit codes other than 0, 1 and 2, exit code 2 without a
message, more than 2 s of CPU time or 200 MB of memory, raw control characters or commands of CI systems in messages, and reports that a
failed run left behind. Case N of a seed is always the same, so `bench/hostile.py --seed S --case N` repeats one and prints its output.
Exit code 1: something was found.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import re
import resource
import shlex
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from planner.cli import main as planner  # noqa: E402 - of this checkout
from planner.cli.command import FAILURE  # noqa: E402
from planner.cli.commands import COMMANDS  # noqa: E402
from tests import trainer_configs  # noqa: E402
from tests.hostile_words import WORDS  # noqa: E402

SECONDS, KILLED_AFTER, BYTES = 2, 10, 200 << 20  # of CPU time and of memory
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
COMMAND = re.compile(r"^\s*::|##\[|##vso\[|##teamcity\[", re.MULTILINE)

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 3, 7, 2**31, 2**53, 2**63, 10**30, 10**400, 1.0, 1.5, -0.0, 1e308, 1e-300),
    *(float("inf"), float("nan"), "", " ", "0", "-1", "1e9", "12GB", "gelu", "full", "model", "[", "a" * 5000, [], [[]], [0], [None, "a"]),
    *([1] * 3000, {}, {"": 1}, {"a": {"b": [{}]}}, {"name": "x"}),
)
POLICY = """\
specs: [specs]
budgets:
  - {name: one-gpu, figure: peak_bytes, max: 80GiB, tags: [a], models: ["t*"], severity: warning, message: ask}
  - {name: growth, figure: params_total, max_increase: 5%, scenarios: [base]}
size_label: {tolerance: 10%, severity: warning}
"""
SPEC = """\
name: tiny-7b
model: {vocab_size: 200, context_length: 32, d_model: 64, n_layers: 2, n_heads: 4}
training: {batch_size: 3, sequence_length: 10, tokens: 1e6, precision: fp32}
scenarios: [{name: full, recompute: full}]
expect: {params_total: 114944}
"""
SCRIPT = """\
#!/bin/bash
SIZE=(--num-layers 2 --hidden-size 64)
torchrun pretrain_gpt.py ${SIZE[@]} --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 \\
  --micro-batch-size 2 --global-batch-size 8 --train-iters 10 --bf16 --vocab-size 200 "$@"
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A command line, and the files in its folder."""

    kind: str
    arguments: Sequence[str]
    files: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a case did."""

    code: int
    out: str
    err: str
    made: tuple[str, ...]  # files
    seconds: float  # of CPU time
    memory: int  # bytes, beyond those of this process


def mutated_text(text: str, rng: random.Random) -> bytes:
    """Change the text of a file in one to three places."""
    lines = text.splitlines(keepends=True)
    for _ in range(rng.randint(1, 3)):
        at, word = rng.randrange(len(lines)), rng.choice((*VALUES, *WORDS))
        new = word if isinstance(word, str) else json.dumps(word)
        scalars = [*re.finditer(r"(?<=[:=,\[ ])[^\s:,\[\]{}#]+", lines[at])] or [*re.finditer(r"$", lines[at])]
        start, end = rng.choice(scalars).span()
        replaced = lines[at][:start] + new + lines[at][end:]
        without = lines[at].replace(rng.choice(":,{}[]-'\" "), "", 1)
        lines[at : at + 1] = rng.choice(([replaced], [replaced], [replaced], [new, lines[at]], [lines[at]] * 2, [without], [""]))
    data = bytearray("".join(lines).encode(errors="surrogatepass"))
    if rng.randrange(5) == 0:
        at = rng.randrange(len(data) + 1)
        data[at : at + rng.randrange(9)] = rng.randbytes(rng.randrange(4))
    return bytes(data)


def mutated_config(config: dict[str, Any], rng: random.Random) -> bytes:
    """Change one or two keys of a configuration, or of a mapping in it."""
    changed: dict[str, Any] = json.loads(json.dumps(config))
    for _ in range(rng.randint(1, 2)):
        inner = rng.choice([changed, *(value for value in changed.values() if isinstance(value, dict) and value)])
        inner[rng.choice([*inner, *inner, rng.choice(WORDS)])] = rng.choice((*VALUES, *WORDS))
        if rng.randrange(5) == 0:
            del inner[rng.choice([*inner])]
    return json.dumps(changed).encode()


def of_spec(rng: random.Random) -> Case:
    """Return a command on a mutated spec."""
    text = rng.choice((SPEC, rng.choice(SPECS).read_text(encoding="utf-8")))
    every = ("run", "a.yaml", "--output", "out", "--format", "csv,md,json,html,xlsx")
    commands = (
        every,
        ("validate", "a.yaml"),
        ("show", "a.yaml", "--explain"),
        ("fit", "a.yaml", "--memory", "1GiB"),
        ("compare", "a.yaml"),
    )
    return Case("spec", rng.choice((every, *commands)), {"a.yaml": mutated_text(text, rng)})


def of_config(rng: random.Random) -> Case:
    """Return the import of a mutated configuration or script."""
    trainers = [value for value in vars(trainer_configs).values() if isinstance(value, dict) and value and "__name__" not in value]
    config = rng.choice((json.loads(rng.choice(TWINS)), json.loads(rng.choice(TWINS)), rng.choice(trainers)))
    name, data = rng.choice((("config.json", mutated_config(config, rng)),) * 4 + (("train.sh", mutated_text(SCRIPT, rng)),))
    return Case("config", rng.choice((("import", name), ("run", name, "--output", "out"), ("validate", name))), {name: data})


def of_policy(rng: random.Random) -> Case:
    """Return a run under a mutated policy."""
    files = {"planner.yaml": mutated_text(POLICY, rng), "specs/a.yaml": SPEC.encode()}
    return Case("policy", ("run", "specs", "--output", "out"), files)


def of_arguments(rng: random.Random) -> Case:
    """Return a command with options and words drawn from its own parser."""
    name = rng.choice([*COMMANDS])
    command = argparse.ArgumentParser()
    COMMANDS[name].add_arguments(command)
    words = (*WORDS, *("a.yaml", "config.json", "training.batch_size=1,2", "training.batch_size=1,999999999999999999", "llama", "1", "-1"))
    arguments = [name]
    for action in rng.sample(command._actions, rng.randint(0, min(4, len(command._actions)))):  # noqa: SLF001 - no other list of options
        values = [rng.choice((*(map(str, action.choices or ())), *words)) for _ in range(0 if action.nargs == 0 else 1)]
        arguments += [*action.option_strings[-1:], *values]
    files = {"a.yaml": SPEC.encode(), "config.json": rng.choice(TWINS).encode()}
    return Case("arguments", [one.replace("\0", "") for one in arguments], files)


KINDS: tuple[Callable[[random.Random], Case], ...] = (of_spec, of_config, of_arguments, of_policy, of_config)
SPECS = sorted((ROOT / "specs").rglob("*.yaml"))
TWINS = (ROOT / "tests" / "data" / "twins.jsonl").read_text(encoding="utf-8").splitlines()


def case(seed: int, number: int) -> Case:
    """Return case ``number`` of a seed."""
    return KINDS[number % len(KINDS)](random.Random(f"{seed} {number}"))  # noqa: S311 - no secret


def run(one: Case) -> Outcome:
    """Run a case in a forked process."""
    folder = Path(tempfile.mkdtemp(prefix="hostile-"))
    for name, content in one.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    streams = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115 - read after the process
    if (process := os.fork()) == 0:
        _child(one, folder, [stream.fileno() for stream in streams])
    _, status, usage = os.wait4(process, 0)
    for stream in streams:
        stream.seek(0)
    out, err = (stream.read().decode(errors="replace") for stream in streams)
    made = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} - {*one.files}
    shutil.rmtree(folder)
    memory = (usage.ru_maxrss << 10) - (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
    return Outcome(os.waitstatus_to_exitcode(status), out, err, tuple(sorted(made)), usage.ru_utime + usage.ru_stime, memory)


def _child(one: Case, folder: Path, streams: Sequence[int]) -> None:
    """Run the command in this process and leave it."""
    code = 99
    try:
        os.chdir(folder)
        for number, stream in enumerate((os.open(os.devnull, os.O_RDONLY), *streams)):
            os.dup2(stream, number)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8") for number in (1, 2))
        resource.setrlimit(resource.RLIMIT_CPU, (KILLED_AFTER, KILLED_AFTER))
        code = planner(one.arguments)
    except BaseException:  # noqa: BLE001 - it is what is looked for
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def judge(one: Case, outcome: Outcome) -> list[str]:
    """Return what is wrong."""
    command = one.arguments[0]
    plain = outcome.out if command != "completion" else ""  # which prints code
    limited = command != "verify"  # it loads PyTorch, which takes as long
    checks = {
        "traceback": "Traceback (most recent call last)" in outcome.err or "this is a bug in planner" in outcome.err,
        f"exit code {outcome.code}": outcome.code not in (0, 1, 2, -signal.SIGXCPU, -signal.SIGKILL),
        "no message": outcome.code == FAILURE and not (outcome.err + plain).strip(),
        "slow": limited and outcome.seconds > SECONDS,
        "memory": limited and outcome.memory > BYTES,
        "raw control character": bool(CONTROL.search(plain) or CONTROL.search(outcome.err)),
        "command of a CI": bool(COMMAND.search(outcome.err)),
        "left behind": any((command in ("run", "sweep") and outcome.code == FAILURE) or ".planner-" in name for name in outcome.made),
    }
    return [name for name, wrong in checks.items() if wrong]


def main() -> int:
    """Run the cases and print what was found."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--cases", type=int, default=400)
    options.add_argument("--case", type=int, help="run one case and print its output")
    arguments = options.parse_args()
    import pandas  # noqa: F401, ICN001 - once, before the forks

    found: collections.Counter[str] = collections.Counter()
    for number in range(arguments.cases) if arguments.case is None else [arguments.case]:
        one = case(arguments.seed, number)
        outcome = run(one)
        found.update(wrong := judge(one, outcome))
        if wrong:
            line = ascii(shlex.join(["planner", *one.arguments]))[:160]
            print(f"case {number}, {one.kind}: {', '.join(wrong)}: {line}, {outcome.seconds:.1f} s, {outcome.memory >> 20} MB", flush=True)
        if arguments.case is not None:
            print(*(f"{name}\n{content!r}" for name, content in one.files.items()), ascii(one.arguments), outcome, sep="\n\n")
    print(f"{arguments.cases} cases of seed {arguments.seed}:", ", ".join(f"{n} {what}" for what, n in found.items()) or "nothing found")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
