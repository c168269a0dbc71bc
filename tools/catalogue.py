"""Write the catalog: `make catalogue`. With --check, only report outdated files.

tests/data/published.jsonl has the published models: name on the Hugging Face Hub, config.json (of the text part alone where
"omits" names the others), exact parameter counts. Each supported one
becomes specs/catalog/FAMILY/NAME.yaml; specs/catalog/README.md lists them all; the coverage table of docs/models.md counts them by
architecture.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.importer.formats.huggingface import read_huggingface
from planner.importer.reader import Imported, UnsupportedConfigError
from planner.importer.types import REFUSED
from planner.importer.write import spec_text

ROOT = Path(__file__).parent.parent
PUBLISHED = ROOT / "tests" / "data" / "published.jsonl"
CATALOG = ROOT / "specs" / "catalog"
MODELS = ROOT / "docs" / "models.md"
TABLE = re.compile(r"(?<=<!-- coverage -->\n).*?(?=<!-- /coverage -->)", re.DOTALL)
SCHEMA = "../../../planner/spec/schema/spec.schema.json"
TOKENS = 4096  # of a training sequence, or the context length if that is shorter

Row = Mapping[str, Any]

# Published settings that published.jsonl omits because no count depends on them: the context length, and that later Mistrals have no
# window, where their class defaults to one. Where neither gives a context length, the spec marks it as a default.
CONTEXTS = {
    2048: (
        "TinyLlama-1.1B-Chat-v1.0", "SmolLM-1.7B", "open_llama_3b", "open_llama_13b", "llama-7b", "llama-30b", "llama-65b", "phi-1",
        "phi-2",
    ),
    4096: (
        "EXAONE-3.0-7.8B-Instruct", "stablelm-base-alpha-7b", "Sheared-LLaMA-2.7B", "Yi-6B", "Llama-2-7b-hf", "deepseek-llm-7b-base",
        "deepseek-moe-16b-base", "Yi-1.5-9B", "SOLAR-10.7B-v1.0", "Llama-2-13b-hf", "Yi-34B", "Llama-2-70b-hf", "MiniCPM-2B-sft-bf16",
        "OLMo-2-0425-1B", "Phi-3-medium-4k-instruct",
    ),
    8192: ("falcon-11B", "SmolLM2-135M", "SmolLM2-360M", "Meta-Llama-3-8B", "Meta-Llama-3-70B", "Qwen1.5-MoE-A2.7B"),
    16384: ("deepseek-coder-1.3b-base", "deepseek-coder-33b-base"),
    32768: (
        "EXAONE-3.5-2.4B-Instruct", "EXAONE-3.5-32B-Instruct", "gemma-3-270m", "gemma-3-1b-pt", "internlm2-1_8b", "internlm2-7b",
        "internlm2-20b", "Mistral-7B-v0.1", "Mistral-7B-v0.3", "Mathstral-7B-v0.1", "Mistral-Small-24B-Base-2501", "Mixtral-8x7B-v0.1",
    ),
    40960: ("Qwen3-235B-A22B",),
    65536: ("Mixtral-8x22B-v0.1", "Mixtral-8x22B-Instruct-v0.1", "SmolLM3-3B"),
    131072: (
        "c4ai-command-r-08-2024", "Kimi-K2-Instruct", "Llama-3.2-1B", "Llama-3.2-3B", "Llama-3.1-70B", "Llama-3.3-70B-Instruct",
        "Llama-3.1-405B", "Mistral-Nemo-Base-2407", "Mistral-Large-Instruct-2407", "Phi-3.5-mini-instruct", "Phi-4-mini-instruct",
        "DeepSeek-R1-Distill-Qwen-1.5B", "Qwen2-7B", "Qwen2.5-7B", "Qwen2.5-32B", "Qwen2.5-72B",
    ),
    262144: ("K-EXAONE-236B-A23B",),
}  # fmt: skip
WITHOUT_WINDOW = (
    "Mistral-7B-v0.3", "Mathstral-7B-v0.1", "Mistral-Nemo-Base-2407", "Mistral-Small-24B-Base-2501", "Mistral-Large-Instruct-2407",
)  # fmt: skip


def published() -> list[Row]:
    """Return the published models."""
    return [json.loads(line) for line in PUBLISHED.read_text(encoding="utf-8").splitlines()]


def config(row: Row) -> dict[str, Any]:
    """Return a model's configuration with the omitted settings."""
    bare = row["name"].rpartition("/")[2]
    context = next((context for context, names in CONTEXTS.items() if bare in names), None)
    made: dict[str, Any] = {"max_position_embeddings": context} if context else {}
    if bare in WITHOUT_WINDOW:
        made["sliding_window"] = None
    made.update(row["hf_config"])
    return made


def slug(name: str) -> str:
    """Return a model's name in the catalog: its repository without owner and without suffixes of a conversion."""
    bare = re.sub(r" \(.*\)$", "", name.rpartition("/")[2]).lower()
    return bare.removeprefix("meta-").removesuffix("-hf")


def title(name: str) -> str:
    """Return a model's name on the Hub."""
    return re.sub(r" \((?!text).*\)$", "", name)


def files() -> dict[Path, str]:
    """Return all files of the catalog by their path."""
    made: dict[Path, str] = {}
    lines: list[str] = []
    for row in sorted(published(), key=lambda row: (row["family"], row["params_total"], row["name"])):
        counts = f"{row['params_total']:,} | {row['params_active']:,}"
        try:
            imported = read_huggingface(config(row))
        except UnsupportedConfigError:
            lines.append(f"| {row['name']} | {counts} | not supported: {REFUSED[row['hf_config']['model_type']]} |")
            continue
        path = CATALOG / row["family"] / f"{slug(row['name'])}.yaml"
        if path in made:
            sys.exit(f"two models have the path {path}")
        made[path] = text(row, imported)
        lines.append(f"| [{row['name']}]({path.relative_to(CATALOG).as_posix()}) | {counts} | `catalog/{path.stem}` |")
    head = "# Catalog\n\nWritten by `tools/catalogue.py` from the published configurations. Every run checks the counts.\n\n"
    table = "| model | parameters | active per token | `extends:` |\n|---|---:|---:|---|\n"
    made[CATALOG / "README.md"] = head + table + "\n".join(lines) + "\n"
    made[MODELS] = TABLE.sub(lambda _: coverage(), MODELS.read_text(encoding="utf-8"))
    return made


def text(row: Row, imported: Imported) -> str:
    """Return a model's spec."""
    repository = re.sub(r" \(.*\)$", "", row["name"])
    same = row.get("also", ())
    further = {"sequence_length": min(TOKENS, imported.model["context_length"]), "precision": "bf16-master"}
    return spec_text(
        replace(imported, further=further, omits=(*row.get("omits", ()), *imported.omits)),
        title(row["name"]),
        source=(f"https://huggingface.co/{repository}/blob/main/config.json", *(f"https://huggingface.co/{name}" for name in same)),
        schema=SCHEMA,
        expect={"params_total": row["params_total"], "params_active": row["params_active"]},
    )


def kinds(model: Mapping[str, Any]) -> Iterator[str]:
    """Yield the rows of the coverage table that count a model."""
    layers = [model, *(layer for run in model.get("layers", []) for layer in (run, *run.get("layers", [])))]
    mixers = {mixer for layer in layers for mixer in _listed(layer.get("mixer", "attention"))}
    others = mixers - {"attention", "latent_attention", "none"}
    if others and mixers & {"attention", "latent_attention"}:
        yield "hybrid: attention plus state-space, linear-attention or convolution layers"
    elif others:
        yield "attention-free"
    if "latent_attention" in mixers:
        yield "multi-head latent attention (MLA)"
    if isinstance(model.get("experts"), dict):
        yield "mixture of experts"
    if not model.get("causal", True):
        yield "encoder"
    elif model.get("encoder"):
        yield "encoder-decoder"
    elif not others and "latent_attention" not in mixers and not isinstance(model.get("experts"), dict):
        yield "dense"


def _listed(value: str | list[str]) -> list[str]:
    return value if isinstance(value, list) else [value]


def coverage() -> str:
    """Return the coverage table."""
    supported: dict[str, list[Row]] = defaultdict(list)
    every: list[Row] = []
    unsupported: list[Row] = []
    for row in published():
        try:
            model = read_huggingface(config(row)).model
        except UnsupportedConfigError:
            unsupported.append(row)
            continue
        every.append(row)
        for kind in kinds(model):
            supported[kind].append(row)
    lines = [_counted(kind, rows, _types(rows)) for kind, rows in sorted(supported.items(), key=lambda one: -len(one[1]))]
    lines.append(_counted("all", every, [f"{len(_types(every))} types"]))
    lines.append(_counted("not supported", unsupported, _types(unsupported)))
    return "\n".join(["| architecture | models | `model_type` |", "|---|---:|---|", *lines]) + "\n"


def _types(rows: list[Row]) -> list[str]:
    return sorted({row["family"] for row in rows})


def _counted(kind: str, rows: list[Row], types: list[str]) -> str:
    return f"| {kind} | {len(rows)} | {', '.join(types)} |"


def main() -> int:
    """Write the catalog, or check it."""
    wanted = files()
    stale = [path for path in CATALOG.rglob("*") if path.is_file() and path not in wanted]
    changed = [path for path, content in wanted.items() if not path.is_file() or path.read_text(encoding="utf-8") != content]
    if "--check" in sys.argv[1:]:
        for path in (*stale, *changed):
            print(f"{path.relative_to(ROOT).as_posix()} is out of date")
        return int(bool(stale or changed))
    for path in stale:
        path.unlink()
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path], encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
