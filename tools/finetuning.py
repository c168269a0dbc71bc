"""Published figures of fine-tunings beside plans, for docs/trust.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.capacity.finetune_published import COUNTS, FIGURES, difference, holds, trained
from tools.tables import table

ABOUT = """\
{reached} of {planned} planned figures of published fine-tunings hold: trainable parameters exactly, memory within 1 % or 10 %, by how well
its settings are known (`tests/data/finetune_published.csv`: peft's method comparison on an L40S, torchtune's ladder on an A100, LitGPT's
tables). Reserved memory of real runs includes fragmentation. Those that do not hold:"""
COUNTED = """\
Of {all} published counts of peft's trainable parameters (`tests/data/finetune_counts.csv`), {equal} equal the plan and {other} are of
methods that are not modeled. {wrong} are wrong:"""


def published() -> Iterator[str]:
    """Yield the section of the page."""
    planned = [row for row in FIGURES if row["training"]]
    reached = [row for row in planned if holds(row)]
    yield from ("", "## Published fine-tunings", "")
    yield from ABOUT.format(reached=len(reached), planned=len(planned)).splitlines()
    yield ""
    missed = ((row["id"], f"{100 * (difference(row) or 0):+.1f} %", row["reason"]) for row in planned if not holds(row))
    yield from table(("run", "plan less published", "reason"), missed, "lrl")
    yield ""
    others = Counter(row["reason"] for row in FIGURES if not row["training"])
    plain = sorted(reason.removesuffix(" is not modeled") for reason in others if reason.endswith(" is not modeled"))
    yield f"{others.total()} figures are not planned. Of methods that are not modeled: {', '.join(plain)}. For other reasons:"
    yield ""
    rest = [(reason, str(count)) for reason, count in others.most_common() if not reason.endswith(" is not modeled")]
    yield from table(("reason", "figures"), rest, "lr")
    yield ""
    found = [trained(row) for row in COUNTS]
    equal = sum(count == int(row["published"]) for count, row in zip(found, COUNTS, strict=True))
    wrong = [row for row in COUNTS if row["wrong"]]
    yield from COUNTED.format(all=len(COUNTS), equal=equal, other=len(COUNTS) - equal - len(wrong), wrong=len(wrong)).splitlines()
    yield ""
    rows = ((row["model"], row["method"], f"{int(row['published']):,}", row["wrong"]) for row in wrong)
    yield from table(("model", "method", "published", ""), rows, "llrl")
