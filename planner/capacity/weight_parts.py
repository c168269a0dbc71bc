"""The parts of weights that devices of FSDP2 have: rows of the first dimension, padded to equal parts while they are gathered."""

from __future__ import annotations

from dataclasses import replace

from planner.capacity.figures import EVERYTHING, Weight
from planner.capacity.optimizers import ElementBytes
from planner.spec.records import Layout, Training
from planner.trace.sizes import Size, ceil_div, maximum, minimum, product


def sharing(weight: Weight[Size], layout: Layout, shards: Size) -> Size:
    """Return how many of the devices that share weights have parts of this one: of experts, those with the same ones."""
    return shards // layout.expert_parallel if layout.expert_parallel > 1 and weight.component == "experts" else shards


def own_part(weight: Weight[Size], layout: Layout, shards: Size, number: int | None) -> Weight[Size]:
    """Return a device's part of a weight, by the device's number among all that share weights; None: with its padding.

    Devices with different experts are neighbors.
    """
    devices = sharing(weight, layout, shards)
    each = 1 if devices is shards else layout.expert_parallel
    return part(weight, devices, None if number is None else number // each)


def part(weight: Weight[Size], shards: Size, number: int | None) -> Weight[Size]:
    """Return a device's part of a weight, by the device's number; None: with its padding."""
    weight = packed_rows(weight)
    rows, *rest = weight.shape
    chunk = ceil_div(rows, shards)
    if number is None:
        return replace(weight, shape=(chunk, *rest))
    return replace(weight, shape=(maximum(minimum(rows - chunk * number, chunk), 0), *rest))


def width(weight: Weight[Size], training: Training) -> int:
    """Return the bytes of an element of a weight that is gathered; those of a packed one are bytes of two elements."""
    if training.train == EVERYTHING:
        return ElementBytes.by_recipe(training).weight
    return ElementBytes.of(weight, training).weight


def gathered(weight: Weight[Size], shards: Size, training: Training) -> Size:
    """Return the bytes of a device's part of a weight in a group's buffer, with padding."""
    if weight.packing:
        return weight.copies * ceil_div(ceil_div(product(weight.shape), 2), shards)
    return part(weight, shards, None).params * width(weight, training)


def packed_rows(weight: Weight[Size]) -> Weight[Size]:
    """Return a packed weight as bitsandbytes stores it, a column of bytes of two elements; every device has all of its scales."""
    if not weight.packing:
        return weight
    elements = product(weight.shape)
    return replace(weight, shape=(ceil_div(elements, 2), 2), packing=replace(weight.packing, whole=elements))


def scales_of(weight: Weight[Size]) -> Size:
    """Return the bytes of the scales of a packed weight, which stay on every device."""
    elements = product(weight.shape)
    return weight.copies * (weight.packing.bytes(elements) - ceil_div(elements, 2)) if weight.packing else 0
