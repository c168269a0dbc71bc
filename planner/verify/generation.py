"""A prompt and the tokens after it, run by a model of transformers and measured pass by pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DynamicOutputShapeException

from planner.spec.records import Serving
from planner.verify import fake_cuda, huggingface
from planner.verify.allocations import AllocationTracker
from planner.verify.parts import UnbuildableError
from planner.verify.step import quiet

DEVICE = torch.device("cuda")
CACHES = ("cache", "past_key_values", "cache_params", "state")  # of the outputs and arguments of models
NESTED = 6  # attributes of attributes in which a cache has its tensors


@dataclass(frozen=True, slots=True)
class Generation:
    """Bytes and FLOPs of a pass over prompts, and of passes over the tokens after them."""

    static: int  # weights, buffers and the ids of the prompts
    cache: int  # after the prompts
    cache_after: int  # after the outputs
    prefill_peak: int
    decode_peak: int  # the largest of all passes
    flops_prefill: int
    flops_first: int
    flops_last: int


@contextmanager
def fake_device() -> Iterator[None]:
    """Run models of transformers for inference on fake tensors of a simulated A100."""
    with quiet(), huggingface.simulated_runtime(), fake_cuda.cuda("a100"), torch.no_grad():
        yield


def measure(build: Callable[[], nn.Module], serving: Serving) -> Generation:
    """Run the module that ``build`` makes, on a fake device. Raises ``UnbuildableError`` if it does not run there."""
    try:
        with fake_device():
            return _measure(build().eval(), serving)
    except DynamicOutputShapeException as error:
        raise UnbuildableError(f"tensors without data do not run it: the size of an output depends on data ({error.func})") from error
    except (RuntimeError, ValueError, TypeError, AttributeError) as error:  # of the model's own code
        raise UnbuildableError(f"transformers does not run it: {error}") from error


def _measure(module: nn.Module, serving: Serving) -> Generation:
    ids = prompts = torch.zeros((serving.batch_size, serving.prompt), dtype=torch.long, device=DEVICE)
    tracker = AllocationTracker(DEVICE)
    tracker.track((*module.parameters(), *module.buffers(), prompts), "start")
    static, given = tracker.bytes, _given(module, serving)
    peaks: list[int] = []
    flops: list[int] = []
    caches: list[int] = []
    with tracker:
        for _ in range(serving.output + 1):
            tracker.start_phase()
            made = module(input_ids=ids, use_cache=True, logits_to_keep=1, **given)
            peaks.append(tracker.peak_bytes)
            flops.append(tracker.flops)
            name = next((key for key in CACHES if made.get(key) is not None), None)
            if name is None:
                raise UnbuildableError("it returns no cache")
            given = {name: made[name]}
            caches.append(_bytes(made[name]))
            ids = made.logits[:, -1:].argmax(-1)
            del made
    return Generation(static, caches[0], caches[-1], peaks[0], max(peaks[1:]), flops[0], flops[1], flops[-1])


def _given(module: Any, serving: Serving) -> dict[str, object]:  # noqa: ANN401 - a model of transformers, which has no common type here
    """Return the cache of the first pass, if it exists before."""
    if serving.cache.type == "dynamic":
        return {}
    from transformers import StaticCache

    room = serving.cache.room or serving.prompt + serving.output
    return {"past_key_values": StaticCache(config=module.config, max_cache_len=room)}


def _bytes(cache: object) -> int:
    """Return the bytes of all storages of a cache on the device."""
    return sum({id(one): one.nbytes() for one in _storages(cache, NESTED)}.values())


def _storages(part: object, nested: int) -> Iterator[torch.UntypedStorage]:
    if isinstance(part, Tensor):
        if part.device.type == DEVICE.type:
            yield part.untyped_storage()
    elif isinstance(part, list | tuple):
        for one in part:
            yield from _storages(one, nested)
    elif isinstance(part, dict):
        yield from _storages(list(part.values()), nested)
    elif nested and hasattr(part, "__dict__"):
        yield from _storages(list(vars(part).values()), nested - 1)
