"""Measure training steps of small models whose mixers run the kernels of their authors: writes tests/data/mixer_steps.jsonl.

It needs fla-core, einops and triton, and the sources of mamba_ssm and causal_conv1d on the path, none of which `make test` installs. Their
Python runs on fake tensors of a simulated A100. Triton kernels, which only fill tensors that Python allocates, do not start; the two C++
extensions are replaced by functions that allocate what they do. FLOPs are without those of these kernels. The file's first line has the
versions and the shape of the steps; each other line a config.json and its steps as in ``tools/measure.py``.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the package of this checkout

from planner.spec.records import Training  # noqa: E402
from planner.trace.mixers.fused_mamba import TOKENS_PER_STATE  # noqa: E402
from planner.trace.mixers.fused_mamba2 import MULTIPROCESSORS  # noqa: E402
from tools import measure  # noqa: E402

if TYPE_CHECKING:
    import torch

TRUTH = ROOT / "tests" / "data" / "mixer_steps.jsonl"
VERSIONS = {"mamba_ssm": "2.3.2", "causal_conv1d": "1.6.1", "fla_core": "0.6.0"}
# Types by keys that their kernels need: channels of Mamba-2's convolution are a multiple of 8.
TYPES: dict[str, dict[str, int]] = {
    "mamba": {}, "falcon_mamba": {}, "jamba": {}, "mamba2": {"state_size": 8, "chunk_size": 16},
    "falcon_h1": {"mamba_d_state": 8}, "granitemoehybrid": {"mamba_d_state": 8}, "nemotron_h": {"ssm_state_size": 8},
    "qwen3_next": {}, "qwen3_5_text": {}, "olmo_hybrid": {}, "lfm2": {}, "kimi_linear": {},
}  # fmt: skip
NAMES = ("bf16", "bf16-autocast", "fp32", "bf16 full")
FUNCTIONS = (
    ("mamba_ssm.ops.selective_scan_interface", "MambaInnerFn"),
    ("mamba_ssm.ops.selective_scan_interface", "SelectiveScanFn"),
    ("mamba_ssm.ops.triton.ssd_combined", "MambaSplitConv1dScanCombinedFn"),
    ("causal_conv1d.causal_conv1d_interface", "CausalConv1dFn"),
)


def scan_forward(*inputs: Any) -> list[torch.Tensor]:  # noqa: ANN401 - tensors and options of an extension
    """Allocate what selective_scan_fwd does (csrc/selective_scan/selective_scan.cpp)."""
    import torch

    u, delta, rate, _, _, _, z, *_ = inputs
    batch, channels, tokens = u.shape
    gated = [] if z is None else [torch.empty_like(z)]
    out, parts = torch.empty_like(delta), -(-tokens // TOKENS_PER_STATE)
    return [out, torch.empty((batch, channels, parts, 2 * rate.shape[1]), dtype=rate.dtype, device=u.device), *gated]


def scan_backward(*inputs: Any) -> list[torch.Tensor]:  # noqa: ANN401 - the same
    """Allocate what selective_scan_bwd does."""
    import torch

    u, delta, rate, b, c, skip, z, shift, _, _, out, given, _, recomputes = inputs
    gate = [] if z is None else [torch.empty_like(z) if given is None else given]
    again = [torch.empty_like(out)] if recomputes else []
    made = [torch.empty_like(u), torch.empty_like(delta), torch.zeros_like(rate)]
    wide = [torch.zeros_like(one, dtype=torch.float32) for one in (b, c)]
    vectors = [torch.zeros_like(skip), torch.zeros_like(shift)]
    return [*made, wide[0].to(b.dtype), wide[1].to(c.dtype), *vectors, *gate, *again]


def without_gaps(function: Any) -> None:  # noqa: ANN401 - a class of autograd
    """Return gradients of tensors only, as PyTorch's engine reads them, which skips those of other arguments."""
    import torch

    forward, backward = function.forward, function.backward

    def first(ctx: Any, *inputs: object) -> object:  # noqa: ANN401 - a context of autograd
        ctx.are_tensors = [isinstance(one, torch.Tensor) for one in inputs]
        return forward(ctx, *inputs)

    def second(ctx: Any, *gradients: object) -> tuple[object, ...]:  # noqa: ANN401 - the same
        return tuple(one for one, is_tensor in zip(backward(ctx, *gradients), ctx.are_tensors, strict=False) if is_tensor)

    function.forward, function.backward = staticmethod(first), staticmethod(second)


@contextmanager
def simulated() -> Iterator[None]:
    """Run the packages on fake tensors: transformers' modules of mixers, imported inside, call them."""
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.jit import JITFunction

    extensions: dict[str, dict[str, Any]] = {
        "selective_scan_cuda": {"fwd": scan_forward, "bwd": scan_backward},
        "causal_conv1d_cuda": {f"causal_conv1d_{name}": lambda *_: None for name in ("fwd", "bwd", "update")},
    }
    for name, functions in extensions.items():
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(functions)
    properties = SimpleNamespace(multi_processor_count=MULTIPROCESSORS["a100"], total_memory=80 << 30, name="A100", major=8, minor=0)
    with (
        mock.patch.object(JITFunction, "run", lambda *_, **__: None),  # noqa: PT008 - a Mock would hold the tensors
        mock.patch.object(Autotuner, "run", lambda self, *_, **__: setattr(self, "best_config", self.configs[0])),
        mock.patch.object(Heuristics, "run", lambda *_, **__: None),  # noqa: PT008 - the same
        mock.patch("torch.cuda.get_device_properties", return_value=properties),
        mock.patch("torch.cuda.get_device_capability", return_value=(8, 0)),
        mock.patch("torch.cuda.current_device", return_value=0),
        mock.patch("torch.cuda._exchange_device", return_value=0),
        mock.patch("torch.cuda._maybe_exchange_device", return_value=0),
    ):
        with mock.patch("torch.cuda.is_available", return_value=True):  # on import, they ask for the device
            for module, function in FUNCTIONS:
                without_gaps(getattr(importlib.import_module(module), function))
            for name in ("gated_delta_rule", "kda"):
                importlib.import_module(f"fla.ops.{name}")
        yield


def run(config: measure.Config) -> dict[str, list[int]]:
    """Measure the steps of a config."""
    import torch
    import transformers

    from planner.verify.step import measure as measured

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call] # untyped in transformers
    logging.disable()
    warnings.simplefilter("ignore")  # transformers' own
    found = {}
    for name in NAMES:
        setting = f"{'sdpa' if measure.supports_sdpa(config) else 'eager'} {name}"
        training = Training(**measure.SETTINGS[setting], gradient_dtype="bf16" if name.split()[0] == "bf16" else "fp32")
        try:
            its = measured(measure.EMPTY, training, partial(measure.make, config))
        except Exception as error:  # noqa: BLE001 - whatever a class of transformers raises
            print(config["model_type"], name, " ".join(str(error).split())[-120:], file=sys.stderr)
            continue
        live = (its.start_bytes, its.after_forward_bytes, its.after_backward_bytes)
        found[setting] = [its.params, its.saved_bytes, *live, its.flops_forward, its.flops_backward, its.peak_bytes]
    return found


def main() -> int:
    """Measure the steps of all types, and write the file."""
    import torch
    import transformers

    configs = [next(one for one in measure.configs() if one["model_type"] == kind) | keys for kind, keys in TYPES.items()]
    with simulated(), get_context("fork").Pool(os.cpu_count(), maxtasksperchild=1) as pool:
        results = pool.map(run, configs, chunksize=1)
    head = {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__, **VERSIONS, **measure.SHAPE}
    rows = [{"config": config, "steps": its} for config, its in zip(configs, results, strict=True)]
    lines = [head | {"figures": measure.FIGURES}, *rows]
    TRUTH.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
