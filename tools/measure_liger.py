"""Measure training steps of small models with the kernels of liger-kernel: writes tests/data/liger_steps.jsonl.

It needs liger-kernel and triton, which `make test` does not install; `pip install liger-kernel` installs both. The package's Python runs on
fake tensors of a simulated A100; its Triton kernels, which only fill tensors that Python allocates, do not start. The file's first line has
the versions and the shape of the steps; each other line a config.json, the arguments of ``apply_liger_kernel_to_...``, and steps as in
``tools/measure.py``. Saved bytes are without the gradients that a loss computes early, and FLOPs are without those of Triton kernels.
Names of types measure only these.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the package of this checkout

from planner.spec.liger import SWITCHES  # noqa: E402
from planner.spec.records import Training  # noqa: E402
from planner.trace.liger import MULTIPROCESSORS  # noqa: E402
from tools import measure  # noqa: E402

if TYPE_CHECKING:
    import torch

Switches = dict[str, bool]

TRUTH = ROOT / "tests" / "data" / "liger_steps.jsonl"
ALONE = ("bf16", "bf16-autocast")  # the precisions in which each switch is measured alone


def steps(names: set[str]) -> Iterator[tuple[measure.Config, Switches]]:
    """Yield small configs of the supported classes with the package's defaults, no arguments, and with each of its switches alone."""
    for config in measure.configs():
        kind = config["model_type"]
        if kind in SWITCHES and (not names or kind in names) and not measure.window_of(config):
            supported = sorted(SWITCHES[kind].supported)
            yield config, {}
            yield from ((config, {name: name == one for name in supported}) for one in supported)


@contextmanager
def simulated() -> Iterator[Any]:
    """Run liger-kernel on fake tensors; return its functions by type."""
    import torch
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    from planner.verify.allocations import OWN_FORMULAS

    aten = torch.ops.aten
    with mock.patch("torch.cuda.is_available", return_value=True):  # on import, it asks for the device
        from liger_kernel.ops import fused_moe
        from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

    route = fused_moe.compute_routing_metadata

    def balanced(chosen: torch.Tensor, experts: int) -> tuple[torch.Tensor, ...]:
        """Return the places of rows with tiles of a balanced load, which are data."""
        rows = -(-chosen.numel() // experts)
        tiles = experts * -(-rows // fused_moe.BLOCK_M_TOKEN)
        return (*route(chosen, experts)[:-2], *(torch.empty(tiles, dtype=torch.int32, device=chosen.device) for _ in range(2)))

    def addmm(_: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *__: object, **___: object) -> int:
        """FLOPs of a product with a dtype of its own, whose arguments torch.utils.flop_counter does not expect."""
        return 2 * a.shape[0] * a.shape[1] * b.shape[1]

    properties = SimpleNamespace(multi_processor_count=MULTIPROCESSORS["a100"], total_memory=80 << 30)
    with (
        mock.patch.object(JITFunction, "run", lambda *_, **__: None),  # noqa: PT008 - a Mock would hold the tensors
        mock.patch.object(Autotuner, "run", lambda *_, **__: None),  # noqa: PT008 - the same
        mock.patch("torch.cuda.get_device_properties", return_value=properties),
        mock.patch("torch.cuda.current_device", return_value=0),
        mock.patch("torch.cuda._exchange_device", return_value=0),
        mock.patch("torch.cuda._maybe_exchange_device", return_value=0),
        mock.patch("torch.equal", lambda *_: True),  # noqa: PT008 - the same; the gradient of the loss is one
        mock.patch.object(fused_moe, "compute_routing_metadata", balanced),
        mock.patch.dict(OWN_FORMULAS, {aten.addmm: addmm}),
    ):
        yield MODEL_TYPE_TO_APPLY_LIGER_FN


def run(config: measure.Config, switches: Switches) -> dict[str, list[int]]:
    """Measure the steps of a config in this process, which stays patched."""
    import torch
    import transformers

    from planner.verify.measured import CHECKPOINT
    from planner.verify.step import LOSS
    from planner.verify.step import measure as measured

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call] # untyped in transformers
    logging.disable()
    warnings.simplefilter("ignore")  # transformers' own
    attention = "sdpa" if measure.supports_sdpa(config) else "eager"
    found = {}
    with simulated() as apply:
        apply[config["model_type"]](**switches)
        for name, settings in measure.SETTINGS.items():
            if not name.startswith(attention) or (switches and name.removeprefix(f"{attention} ") not in ALONE):
                continue
            training = Training(**settings, gradient_dtype="bf16" if settings["precision"] == "bf16" else "fp32")
            its = measured(measure.EMPTY, training, partial(measure.make, config))
            fused = switches.get("fused_linear_cross_entropy", "fused_linear_cross_entropy" in SWITCHES[config["model_type"]].default)
            early = sum(one.bytes for one in its.kept if (one.path, one.function) == (LOSS, CHECKPOINT)) if fused else 0
            live = (its.start_bytes, its.after_forward_bytes, its.after_backward_bytes)
            found[name] = [its.params, its.saved_bytes - early, *live, its.flops_forward, its.flops_backward, its.peak_bytes]
    return found


def main(names: Iterable[str]) -> int:
    """Measure the steps of these types, or of all, and write the file."""
    wanted = list(steps(set(names)))
    with simulated(), get_context("fork").Pool(os.cpu_count(), maxtasksperchild=1) as pool:  # imports once, and patches for each
        results = pool.starmap(run, wanted, chunksize=1)
    head = {name: version(name).split("+")[0] for name in ("torch", "transformers", "liger_kernel", "triton")}
    rows = [{"config": config, "liger": switches, "steps": its} for (config, switches), its in zip(wanted, results, strict=True)]
    lines = [head | measure.SHAPE | {"figures": measure.FIGURES}, *rows]
    TRUTH.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
