from __future__ import annotations

import csv
import io
import random
import re
import tracemalloc
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import planner
from planner import spec as spec_package
from planner.explore import axes, sweep, table, view
from tests.work import at_most

ROOT = Path(__file__).parent.parent.parent
GPT2 = str(ROOT / "specs/gpt2-small.yaml")
LLAMA = str(ROOT / "specs/llama-3-8b.yaml")


def loader(path: str) -> table.Load:
    return partial(spec_package.load, path)


def swept(path: str, *arguments: str, metric: str = "params_total") -> table.Sweep:
    return sweep.sweep(loader(path), [axes.parse(one) for one in arguments], metric=metric)


def rows(made: table.Sweep) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO("".join(table.csv(made)))))


def test_values_are_lists_and_inclusive_ranges() -> None:
    assert axes.parse("training.batch_size=1..4").values == (1, 2, 3, 4)
    assert axes.parse("a.b=1,8..16..4,3").values == (1, 8, 12, 16, 3)
    assert axes.parse("a.b=7..9..5,7").values == (7,)
    assert axes.parse("training.precision=fp32, bf16").values == ("fp32", "bf16")
    assert axes.parse("model.attention={bias: true, qkv: fused}").values == ("{bias: true, qkv: fused}",)
    assert axes.parse("training.batch_size=8").name == "batch_size"


@pytest.mark.parametrize("argument", ["batch", "a=", "a=4..1", "a=1..9..0", "a=1..99999999999"])
def test_an_invalid_axis_is_an_error(argument: str) -> None:
    with pytest.raises(ValueError, match=r"write|range"):
        axes.parse(argument)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("training.batch_size=1", "training.batch_size=2"),
        ("model.n_layers=1,2", "model.n_layers=2,3"),
        ("model.attention.bias=true,false", "model.attention={bias: false}"),
        ("model.attention={bias: false}", "model.attention.bias=true,false"),
        ("training={batch_size: 4}", "training.batch_size=1..8"),
        ("training.steps=1,2", "training.tokens=1000"),
        ("training.gradient_dtype=fp32", "training.precision=fp32,bf16"),
    ],
)
def test_two_axes_for_one_value_are_an_error_that_names_both(one: str, other: str) -> None:
    first, second = axes.parse(one), axes.parse(other)
    named = f"{first.key} is set twice" if first.key == second.key else f"{first.key} and {second.key} set the same value"
    with pytest.raises(table.SweepError, match=re.escape(named)):
        sweep.sweep(loader(GPT2), [first, axes.parse("model.vocab_size=100"), second])


@pytest.mark.parametrize("value", [1.5, 2.0, True, 0, 2**63])
def test_an_axis_made_in_python_is_checked_as_that_of_a_command(value: int) -> None:
    with pytest.raises(table.SweepError, match=r"training\.batch_size must be a list of positive integers"):
        sweep.sweep(loader(GPT2), [axes.Axis("training.batch_size", (1, value))])


def test_axes_that_share_a_prefix_are_not_the_same() -> None:
    lines = rows(
        swept(
            GPT2,
            "model.attention.bias=true,false",
            "model.attention.qkv=fused",
            "training.precision=bf16-master",
            "training.gradient_dtype=fp32,bf16",
        )
    )
    assert [(line["attention.bias"], line["gradient_dtype"]) for line in lines] == [
        (b, g) for b in ("true", "false") for g in ("fp32", "bf16")
    ]


def test_a_grid_has_the_metrics_of_single_runs() -> None:
    """Compare twenty random points of a grid over depth, precision, B and n."""
    made = swept(
        GPT2, "model.n_layers=1,12,48", "training.precision=fp32,bf16", "training.batch_size=1..40", "training.sequence_length=1..1024..31"
    )
    lines = rows(made)
    assert len(lines) == made.points == 3 * 2 * 40 * 34
    for line in random.Random(6).sample(lines, 20):  # noqa: S311 - not for secrets
        settings = {"model.n_layers": "n_layers", "training.precision": "precision"} | {
            f"training.{key}": key for key in ("batch_size", "sequence_length")
        }
        (spec,), _ = spec_package.read([GPT2], [f"{key}={line[column]}" for key, column in settings.items()])
        plan = planner.plan(spec)
        assert {name: int(line[name]) for name in table.ALWAYS} == {
            "params_total": plan.parameters.total,
            "model_states_bytes": plan.memory.model_states_bytes,
            "activations_bytes": plan.memory.activations_bytes,
            "logits_bytes": plan.memory.logits_bytes,
            "peak_bytes": plan.memory.peak_bytes,
            "forward_flops_per_token": plan.flops.chosen.forward_per_token,
            "train_flops_per_token": plan.flops.chosen.train_per_token,
            "train_flops_per_step": plan.flops.chosen.train_per_step,
        }


SMALL = {"vocab_size": 512, "context_length": 64, "d_model": 64, "n_layers": 2, "n_heads": 4}


def test_an_encoder_reads_as_many_tokens_as_the_decoder_unless_written() -> None:
    for training, lengths in (({}, (16, 64)), ({"encoder_length": 32}, (32, 32))):
        spec = {"name": "x", "model": {**SMALL, "encoder": {"n_layers": 2}}, "training": training}
        made = planner.sweep(spec, {"training.sequence_length": [16, 64]})
        for n, m in zip((16, 64), lengths, strict=True):
            plan = planner.plan(spec, sequence_length=n, encoder_length=m)
            assert made.at("peak_bytes", {"training.sequence_length": n}) == plan.memory.peak_bytes


def test_a_global_batch_determines_the_passes_of_each_point() -> None:
    spec = {"name": "x", "model": SMALL, "training": {"batch_size": 4, "global_batch_size": 16}}
    grid: dict[str, list[int | str]] = {
        "training.sequence_length": [16, 64],
        "training.batch_size": [2, 16],
        "training.precision": ["fp32", "bf16"],
    }
    lines = rows(planner.sweep(spec, grid))
    assert [int(line["sequence_length"]) for line in lines] == [16, 64] * 4
    for line in lines:
        B, n = int(line["batch_size"]), int(line["sequence_length"])
        plan = planner.plan({**spec, "training": {"batch_size": B, "gradient_accumulation": 16 // B}}, sequence_length=n)
        assert int(line["train_flops_per_step"]) == plan.flops.chosen.train_per_step
        alone = planner.plan(spec, batch_size=B, sequence_length=n, precision=line["precision"])
        assert int(line["peak_bytes"]) == alone.memory.peak_bytes
    made = planner.sweep(spec, grid)
    assert [made.at("train_flops_per_step", {"training.batch_size": B, "training.sequence_length": 64}) for B in (2, 16)] == [
        int(lines[-1]["train_flops_per_step"])
    ] * 2
    with pytest.raises(planner.SpecError, match="does not divide global_batch_size 16"):
        planner.sweep(spec, {"training.batch_size": [2, 3]})


def test_tokens_of_a_training_follow_from_its_steps() -> None:
    spec = {"name": "x", "model": SMALL, "training": {"steps": 100, "gradient_accumulation": 3}}
    made = planner.sweep(spec, {"training.batch_size": [1, 5], "training.sequence_length": [16, 64]}, metric="train_tokens")
    assert [int(line["train_tokens"]) for line in rows(made)] == [100 * 3 * B * n for B in (1, 5) for n in (16, 64)]


def test_tensors_are_offloaded_by_their_size_at_each_point() -> None:
    # Those of 1024 bytes and more. A grid of both kinds has blocks of one point beside a block of all.
    spec = {"name": "x", "model": SMALL, "training": {"recompute": "full"}}
    grid: dict[str, list[int | str]] = {
        "training.offload_activations": ["false", "true"],
        "training.batch_size": [1, 2],
        "training.sequence_length": [1, 2, 64],
    }
    made = planner.sweep(spec, grid)
    lines = iter(rows(made))
    for offloads, B, n in product((False, True), (1, 2), (1, 2, 64)):
        peak = planner.plan(spec, offload_activations=offloads, batch_size=B, sequence_length=n).memory.peak_bytes
        point: dict[str, int | str] = dict(zip(grid, (str(offloads).lower(), B, n), strict=True))
        assert int(next(lines)["peak_bytes"]) == made.at("peak_bytes", point) == peak


def test_images_have_one_length() -> None:
    # 16 patches of 8 x 8 pixels and the token of the class.
    model = {"d_model": 64, "n_layers": 2, "n_heads": 4, "patches": {"image": 32, "size": 8}, "causal": False}
    spec = {"name": "x", "model": {**model, "head": {"type": "classes"}}}
    made = planner.sweep(spec, {"training.sequence_length": [17]})
    assert made.at("peak_bytes", {}) == planner.plan(spec).memory.peak_bytes
    with pytest.raises(planner.SpecError, match="sequence_length"):
        planner.sweep(spec, {"training.sequence_length": [8, 17]})


def test_lengths_that_devices_cannot_share_are_rows_with_a_reason() -> None:
    # Ring attention divides a sequence into two parts for each of the two devices: lengths are multiples of four.
    llama = {"attention": {"bias": False, "qkv": "separate"}, "d_ff": 96, "norm": {"type": "rmsnorm"}, "positions": "rope"}
    gated = {"feed_forward": {"type": "gated", "activation": "silu", "bias": False}, "head": {"tied": False}}
    spec = {
        "name": "x",
        "model": {**SMALL, **llama, **gated},
        "training": {"precision": "bf16", "loss": "cross_entropy"},
        "cluster": {"device": "H100-80GB-SXM", "devices": 4},
        "layout": {"context_parallel": 2, "data_parallel": "fsdp"},
    }
    lines = rows(planner.sweep(spec, {"training.sequence_length": [30, 32]}))
    assert [line["peak_bytes"] for line in lines] == ["", str(planner.plan(spec, sequence_length=32).memory.peak_bytes)]
    assert lines[0]["problem"] == "sequence_length 30 is no multiple of 2 * context_parallel 2"


def test_each_layer_adds_the_same_parameters() -> None:
    # V·d + L·d + N·(12·d² + 13·d) + 2·d (Radford et al. 2019) for d 768, V 50257, L 1024: a layer has 7,087,872
    lines = rows(swept(GPT2, "model.n_layers=1..3"))
    assert [int(line["params_total"]) for line in lines] == [39_385_344 + n * 7_087_872 for n in (1, 2, 3)]


def test_metrics_are_exact_beyond_64_bits() -> None:
    # GPT-2 small needs 854,438,400 FLOPs to train a token of 1,024: with int64 and with Python's integers
    batches = (2**20, 2**40)
    lines = rows(swept(GPT2, f"training.batch_size={batches[0]},{batches[1]}", "training.sequence_length=1024"))
    assert [int(line["train_flops_per_step"]) for line in lines] == [854_438_400 * 1024 * B for B in batches]
    assert int(lines[1]["train_flops_per_step"]) > 2**63


def test_a_million_points_need_few_calls_and_little_memory() -> None:
    """Half a million function calls and 64 MiB including the CSV, of 90 MB; the last row equals a single run."""
    with at_most(500_000):
        tracemalloc.start()
        made = swept(LLAMA, "training.batch_size=1..1000", "training.sequence_length=8..8000..8")
        lines, last = 0, ""
        for piece in table.csv(made):
            lines += piece.count("\n")
            last = piece
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 2**26
    assert lines == 1_000_001
    (spec,), _ = spec_package.read([LLAMA], ["training.batch_size=1000", "training.sequence_length=8000"])
    assert last.splitlines()[-1].split(",")[6] == str(planner.plan(spec).memory.peak_bytes)


def test_points_that_cannot_be_planned_are_reported() -> None:
    with pytest.raises(table.SweepError, match="learned positions for 1024 tokens"):
        swept(GPT2, "training.sequence_length=1..1025")
    with pytest.raises(table.SweepError, match="positive integers"):
        swept(GPT2, "training.batch_size=0..4")
    with pytest.raises(table.SweepError, match="points"):
        swept(GPT2, "training.batch_size=1..9999", "training.sequence_length=1..1024", "model.n_layers=1..9")
    with pytest.raises(spec_package.SpecError) as wrong:
        swept(GPT2, "model.n_heads=12,13")
    assert [problem.place.file for problem in wrong.value.problems] == ["--set model.n_heads=13"]


def test_progress_is_reported_up_to_the_last_point() -> None:
    reported: list[tuple[int, int]] = []
    grid = [axes.parse("model.n_layers=1,2"), axes.parse("training.batch_size=1..5")]
    made = sweep.sweep(loader(GPT2), grid, lambda done, of: reported.append((done, of)))
    assert reported == [(1, 2), (2, 2)]  # plans
    list(table.csv(made, lambda done, of: reported.append((done, of))))
    assert reported[2:] == [(5, 10), (10, 10)]  # points


def test_the_pivot_table_has_the_longer_axis_as_rows_and_fits_a_terminal() -> None:
    made = swept(GPT2, "training.batch_size=1..100", "training.sequence_length=128..1024..128")
    text = view.text(made, "peak_bytes")
    assert all(len(line) <= 80 for line in text.splitlines())
    assert text.splitlines()[2].split("  ")[0] == "batch_size"
    assert "A selection of the points, round values first" in text
    assert [line.split()[0] for line in text.splitlines()[3:9]] == ["1", "2", "4", "8", "16", "24"]
    (plan,) = planner.plans(spec_package.read([GPT2], ["training.batch_size=100", "training.sequence_length=1024"])[0][0])
    last = [line for line in view.as_markdown(made, "peak_bytes").splitlines() if line.startswith("| 100 |")]
    assert last[0].endswith(f"{plan.memory.peak_bytes / 2**30:.2f} GiB |")


@pytest.mark.parametrize(
    ("values", "most", "expected"),
    [
        (range(1, 65), 7, [1, 2, 4, 8, 16, 32, 64]),
        (range(1, 65), 10, [1, 2, 4, 8, 16, 32, 48, 64]),
        (range(1, 65), 5, [1, 2, 8, 16, 64]),  # of seven powers of two
        (range(3, 60), 6, [3, 4, 8, 16, 32, 59]),
        (range(1, 7), 8, [1, 2, 3, 4, 5, 6]),
        (range(1, 100, 2), 5, [1, 25, 49, 73, 99]),  # odd, so evenly
        (("a", "b", "c"), 2, ["a", "c"]),
    ],
)
def test_a_table_has_round_values_first(values: Sequence[int | str], most: int, expected: list[int | str]) -> None:
    assert view.picked(values, most) == expected


@pytest.mark.parametrize(
    ("width", "columns"), [(25, 1), (40, 2), (60, 4), (80, 5), (120, 8)]
)  # of 9 cells and a gap, beside 10; 5 are round
def test_the_pivot_has_as_many_columns_as_fit(width: int, columns: int) -> None:
    text = view.text(swept(GPT2, "training.batch_size=1..100", "training.sequence_length=128..1024..128"), "peak_bytes", width=width)
    lines = [line for line in text.splitlines() if "GiB" in line]
    assert max(map(len, lines)) <= width
    assert lines[0].count("GiB") == columns


def test_the_chart_has_a_title_and_a_description() -> None:
    made = swept(GPT2, "training.batch_size=1..100", "training.sequence_length=256,1024")
    picture = ET.fromstring(view.chart(made, "activations_bytes"))  # noqa: S314 - our own
    space = "{http://www.w3.org/2000/svg}"
    assert picture.findtext(f"{space}title") == "gpt2-small: activations_bytes over batch_size"
    assert "sweep.csv" in (picture.findtext(f"{space}desc") or "")
    assert len(picture.findall(f"{space}polyline")) == 2


def test_text_of_a_spec_is_shown_literally_in_a_sweep(tmp_path: Path) -> None:
    name = '</title><script>alert("1")</script>&amp; | =1+1'
    path = tmp_path / "model.yaml"
    path.write_text(Path(GPT2).read_text(encoding="utf-8").replace("name: gpt2-small", f"name: '{name}'"), encoding="utf-8")
    picture = ET.fromstring(view.chart(swept(str(path), "training.batch_size=1..3"), "peak_bytes"))  # noqa: S314 - our own
    space = "{http://www.w3.org/2000/svg}"
    assert picture.findtext(f"{space}title") == f"{name}: peak_bytes over batch_size"
    assert not list(picture.iter(f"{space}script"))


def test_any_integer_column_can_be_swept() -> None:
    made = swept(LLAMA, "training.batch_size=1,2", "training.optimizer=adamw,sgd", metric="optimizer_bytes")
    # 8,030,261,248 parameters (Dubey et al. 2024): two moments of 4 bytes for each, and none
    assert [int(line["optimizer_bytes"]) for line in rows(made)] == [8 * 8_030_261_248] * 2 + [0] * 2
    assert "optimizer_bytes" in view.text(made, "optimizer_bytes")


def test_a_metric_without_value_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text("name: a\nmodel: {vocab_size: 7, context_length: 8, d_model: 4, n_layers: 1, n_heads: 1}\ntraining: {batch_size: 1}\n")
    with pytest.raises(table.SweepError, match=r"no value of train_flops; write training\.tokens"):
        swept(str(path), "training.batch_size=1,2", metric="train_flops")
