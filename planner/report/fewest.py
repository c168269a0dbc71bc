"""The fewest devices on which a step fits: the data-parallel degree changes, other degrees do not."""

from __future__ import annotations

from fractions import Fraction

from planner import devices
from planner.capacity import vary
from planner.spec.layout_checks import divisors
from planner.spec.records import Layout, Spec, Training

MOST = 2**14  # devices that are tried


def fewest(spec: Spec, scenario: str, memory_bytes: int) -> tuple[int, int] | None:
    """Return the fewest devices on which a step of a scenario with a cluster fits, and the peak then; None if none were found.

    The peak decreases as devices are added, until there are more of them than rows of weights, which are then padded.
    """
    training = next(one.training for one in spec.scenarios if one.name == scenario)
    if training.layout is None or spec.written is None:
        return None
    counts = _counts(spec, training, training.layout)

    def peak(index: int) -> int | None:
        planned = vary.planned(spec, scenario, {"cluster.devices": counts[index]})
        return planned.memory.peak_bytes if planned else None

    below, index = -1, 0
    while index < len(counts) and not ((value := peak(index)) is not None and value <= memory_bytes):
        below, index = index, 2 * index + 1
    if index >= len(counts):
        return None
    found = -vary.largest(lambda one: peak(-one), Fraction(memory_bytes), -index, -below)
    return counts[found], peak(found) or 0


def _counts(spec: Spec, training: Training, layout: Layout) -> list[int]:
    """Return the numbers of devices to try, ascending: full nodes, a whole number of micro-batches in a global batch, groups of experts."""
    of_model, degree = layout.cluster.devices // layout.data_degree, layout.data_degree
    least = {"ddp": 1, "hsdp": layout.shard_degree}.get(layout.data_parallel, 2)
    given = any(path[-1:] == ("global_batch_size",) for path in spec.places)
    degrees = divisors(degree * training.gradient_accumulation) if given else range(1, MOST // of_model + 1)
    known = devices.find(layout.cluster.device)
    full = known.per_node if known else devices.PER_NODE
    per_node = layout.cluster.per_node if ("cluster", "per_node") in spec.places else full
    counts = [of_model * one for one in degrees if one >= least and (layout.data_parallel != "hsdp" or one % least == 0)]
    pipelines, tensor = layout.pipeline_parallel, 1 if training.by_megatron else layout.tensor_parallel
    together = layout.expert_parallel * (layout.expert_tensor_degree if training.by_megatron else 1)
    counts = [count for count in counts if count // pipelines // tensor % together == 0]
    return [count for count in counts if count <= MOST and (count <= per_node or count % per_node == 0)]
