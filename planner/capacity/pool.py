"""Caches of serving engines: memory in blocks of tokens, and how many requests it holds.

vLLM 0.21: v1/core/kv_cache_utils.py (blocks, groups of layers), v1/kv_cache_interface.py (windows). SGLang: mem_cache/memory_pool.py.
TensorRT-LLM: batch_manager/kvCacheManager.cpp. llama.cpp: src/llama-kv-cache.cpp and llama-kv-cache-iswa.cpp (windows).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any, cast

from planner.spec.records import Attention, CacheDtype, LatentAttention, Layer, Model, Serving
from planner.spec.records.serving import PLAIN_WEIGHTS
from planner.trace.sizes import Size, ceil_div, maximum, minimum, total
from planner.trace.unsupported import UnsupportedError

ELEMENT: Mapping[CacheDtype, Fraction] = {
    "bf16": Fraction(2), "fp16": Fraction(2), "fp32": Fraction(4), "fp8": Fraction(1), "q8_0": Fraction(34, 32), "q5_1": Fraction(24, 32),
    "q5_0": Fraction(22, 32), "q4_1": Fraction(20, 32), "q4_0": Fraction(18, 32),
}  # fmt: skip
"""Bytes of an element. llama.cpp's types are blocks of 32 elements with their scales."""
BLOCK = {"vllm": 16, "sglang": 1, "tensorrt-llm": 32, "llama.cpp": 256}
"""Tokens of a block by default; llama.cpp rounds the tokens of all sequences up to it."""
BATCHED = 8192  # tokens that vLLM runs in one pass at most: max_num_batched_tokens
UBATCH = 512  # tokens that llama.cpp runs in one pass at most: n_ubatch
UNEVEN = Fraction(5, 4)  # up to which ratio of numbers of layers vLLM pads the smaller group


@dataclass(frozen=True, slots=True)
class Kind:
    """Layers with equal caches: the bytes of a token in one of them on a device, and the window, None if all tokens are kept."""

    token_bytes: Fraction
    window: int | None


@dataclass(frozen=True, slots=True)
class Pool:
    """The cache of an engine. Bytes are those of one device.

    ``token_bytes``: of a token in all layers; ``request_bytes``: of one request with its prompt and output; ``all_bytes``: of all requests
    at once. ``pool_bytes`` is the memory of the cache, at most: engines subtract the activations of a trial run, too. ``blocks`` of
    ``block`` tokens are in it, enough for ``tokens``, and ``room`` for requests of which each takes ``share``. None: the spec states no
    memory.
    """

    block: int
    token_bytes: Fraction
    request_bytes: int
    all_bytes: int
    pool_bytes: int | None
    blocks: int | None
    tokens: int | None
    room: int | None
    share: int

    @property
    def concurrency(self) -> Fraction | None:
        """The requests that fit at once."""
        return None if self.room is None else Fraction(self.room, self.share)

    @property
    def requests(self) -> int | None:
        """The whole requests that fit at once."""
        return None if self.room is None else self.room // self.share


def pool(model: Model, serving: Serving, weights_bytes: int) -> Pool:
    """Return the cache of the spec's engine. Raises UnsupportedError for caches that are not modeled."""
    kinds = Counter(_kinds(model, serving))
    block = serving.cache.block or BLOCK[serving.engine]
    length = serving.prompt + serving.output
    token_bytes = sum((kind.token_bytes * layers for kind, layers in kinds.items()), Fraction())
    memory = _memory(serving, weights_bytes)
    if serving.engine == "llama.cpp":
        parts = lcm(*(kind.token_bytes.denominator for kind in kinds))  # of a byte

        def cache(cells: Size) -> Size:
            each = (_cells(kind, cells, serving, block) * int(kind.token_bytes * parts) * layers for kind, layers in kinds.items())
            return total(each)

        every, one = cache(_padded(serving.batch_size * length, block)), cache(_padded(length, block))
        return _pool(
            block, token_bytes, (_up(one, parts), _up(every, parts)), memory, None, None if memory is None else memory * parts, one
        )
    block_bytes, each = _blocks(kinds, serving, block, length)
    shared, parts = _shared(kinds, serving, block), block_bytes.denominator
    of_blocks = [_up(blocks * block_bytes.numerator, parts) for blocks in (each, shared + serving.batch_size * (each - shared))]
    if memory is None:
        return _pool(block, token_bytes, of_blocks, None, None, None, each - shared)
    divided = memory * parts
    blocks = _up(divided, block_bytes.numerator) if serving.engine == "tensorrt-llm" else divided // block_bytes.numerator
    return _pool(block, token_bytes, of_blocks, memory, blocks, maximum(blocks - shared, 0), each - shared)


def _pool(
    block: int, token_bytes: Fraction, cached: Sequence[Size], memory: Size | None, blocks: Size | None, room: Size | None, share: Size
) -> Pool:
    """Return a cache whose figures are integers, as those of a plan of integers are."""
    made: list[Any] = [*cached, memory, blocks, None if blocks is None else blocks * block, room, share]
    return Pool(block, token_bytes, *made)


def _up(size: Size, parts: int) -> Size:
    """Return a size divided by ``parts``, rounded up."""
    return size if parts == 1 else ceil_div(size, parts)


def _shared(kinds: Counter[Kind], serving: Serving, block: int) -> int:
    """Return the blocks of the prefix that all requests share: whole ones (vLLM, v1/core/kv_cache_manager.py: get_computed_blocks)."""
    if serving.shared_prefix and any(kind.window is not None for kind in kinds):
        raise UnsupportedError("a shared prefix of layers with a window is not modeled yet")
    return serving.shared_prefix // block


def _blocks(kinds: Counter[Kind], serving: Serving, block: int, length: Size) -> tuple[Fraction, Size]:
    """Return the bytes of a block in all layers that share its number, and the blocks of a request, as vLLM divides layers into groups."""
    if len(kinds) == 1 or all(kind.window is None for kind in kinds):
        return sum((kind.token_bytes * layers for kind, layers in kinds.items()), Fraction()) * block, _of_request(
            None, serving, block, length
        )
    if len({kind.token_bytes for kind in kinds}) > 1:
        raise UnsupportedError("layers with and without a window whose tokens have different sizes are not modeled yet")
    fewest, most = min(kinds.values()), max(kinds.values())
    size = most if most < fewest * UNEVEN else fewest
    each = total(-(-layers // size) * _of_request(kind.window, serving, block, length) for kind, layers in kinds.items())
    return next(iter(kinds)).token_bytes * block * size, each


def _of_request(window: int | None, serving: Serving, block: int, length: Size) -> Size:
    """Return the blocks of a request in one group of layers: a window and a pass fit in some, which need not start at a block."""
    return _up(length, block) if window is None else _up(minimum(length, window - 1 + (serving.batched_tokens or BATCHED)), block) + 1


def _cells(kind: Kind, cells: Size, serving: Serving, block: int) -> Size:
    """Return the tokens for which llama.cpp makes room in a layer."""
    return (
        cells
        if kind.window is None
        else minimum(cells, _padded(kind.window * serving.batch_size + (serving.batched_tokens or UBATCH), block))
    )


def _padded(tokens: Size, block: int) -> Size:
    return _up(tokens, block) * block


def _kinds(model: Model, serving: Serving) -> Iterator[Kind]:
    """Yield the kind of each layer that caches."""
    each = ELEMENT[serving.cache.dtype or cast("CacheDtype", serving.weights if serving.weights in PLAIN_WEIGHTS else "bf16")]
    for run in model.runs:
        for layer in run.layers:
            yield from list(_of_layer(layer, serving, each)) * run.count


def _of_layer(layer: Layer, serving: Serving, each: Fraction) -> Iterator[Kind]:
    for mixer in layer.mixers:
        if not isinstance(mixer, LatentAttention):
            raise UnsupportedError("states of mixers other than attention are not modeled yet in engines")
        if mixer.indexer or serving.engine == "llama.cpp":
            raise UnsupportedError(f"latent attention with {'an indexer' if mixer.indexer else 'engine llama.cpp'} is not modeled yet")
        yield Kind((mixer.kv_rank + mixer.rope_dim) * each, None)  # whole on each device
    kind = layer.attention
    if kind and kind.window and serving.engine in ("sglang", "tensorrt-llm"):
        raise UnsupportedError(f"layers with a window and engine {serving.engine} are not modeled yet")
    if kind and not kind.shared_kv:
        yield Kind(_heads(kind, serving) * each, kind.window)


def _heads(kind: Attention, serving: Serving) -> int:
    """Return the elements of a token's keys and values on a device: those of its part of the heads, at least of one."""
    return of_device(kind.n_kv_heads, serving.tensor_parallel) * (kind.head_dim + (kind.v_head_dim or kind.head_dim))


def of_device(heads: int, devices: int) -> int:
    """Return a device's key heads. Raises UnsupportedError if devices cannot share them, or have one each, evenly."""
    if heads % devices and devices % heads:
        raise UnsupportedError(f"tensor_parallel {devices} with {heads} key heads is not modeled, since neither divides the other")
    return max(1, heads // devices)


def _memory(serving: Serving, weights_bytes: int) -> Size | None:
    """Return the memory for the cache: what is known of it, or what weights leave of the device's share."""
    if serving.cache_bytes is not None:
        return serving.cache_bytes
    if serving.memory_bytes is None:
        return None
    part = serving.memory_utilization
    return maximum(serving.memory_bytes * part.numerator // part.denominator - weights_bytes, 0)
