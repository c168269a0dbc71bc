"""Steps of the GitHub action.

``python -m planner.review.actions base`` prints the revision to compare with, from the event of the run. ``outputs FOLDER`` prints the
outputs for the review in the folder, as ``name=value`` lines.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.review.forges import Environment, event

_REVISION = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NONE = "0" * 40  # what GitHub names as the commit before the first of a branch


def base(environment: Environment) -> str:
    """Return the revision to compare with: the merge base with a pull request's target, or the commit before a push; empty: default."""
    data = event(environment)
    pull, queue = data.get("pull_request") or {}, data.get("merge_group") or {}
    for commit in ((pull.get("base") or {}).get("sha"), queue.get("base_sha")):
        if commit and _REVISION.fullmatch(str(commit)):
            return f"{commit}..."
    before = str(data.get("before") or _NONE)
    return before if _REVISION.fullmatch(before) and before != _NONE and not pull else ""


def outputs(review: Mapping[str, Any]) -> dict[str, str]:
    """Return the action's outputs."""
    errors = sum(finding["severity"] == "error" for finding in review["findings"])
    return {
        "changed": str(review["changed"]),
        "policy-changes": str(len(review["policy_edits"])),
        "findings": str(errors),
        "failed": "true" if review["failed"] else "false",
    }


def main(arguments: Sequence[str], environment: Environment) -> int:
    """Run the step that the arguments name."""
    if arguments[0] == "base":
        sys.stdout.write(f"{base(environment)}\n")
    else:
        review = json.loads((Path(arguments[1]) / "review.json").read_text(encoding="utf-8"))
        sys.stdout.writelines(f"{name}={value}\n" for name, value in outputs(review).items())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
