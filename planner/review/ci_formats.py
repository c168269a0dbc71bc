"""Findings in the output formats of CI systems: GitHub workflow commands, SARIF 2.1.0, JUnit XML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

from planner.review import wording
from planner.review.headline import headline
from planner.review.review import Finding, Review
from planner.spec.printable import visible

_COMMANDS = {"error": "error", "warning": "warning", "waived": "notice"}
_LEVELS = {"error": "error", "warning": "warning", "waived": "note"}
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML 1.0 cannot hold
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def github(review: Review) -> str:
    """Return a workflow command per finding, which GitHub shows at its line, and the headline of a comparison as a notice."""
    lines = [_command(finding) for finding in review.findings]
    if review.base:
        lines.append(f"::notice title=Model capacity::{workflow_message(headline(review))}")
    return "".join(f"{line}\n" for line in lines)


def _command(finding: Finding) -> str:
    place = finding.place
    line = f",line={place.line},col={place.column}" if place.line else ""
    title = workflow_property(f"{finding.rule}: {finding.model}" if finding.model else finding.rule)
    file, message = workflow_property(place.file), workflow_message(wording.finding(finding))
    return f"::{_COMMANDS[finding.severity]} file={file}{line},title={title}::{message}"


def workflow_message(text: str) -> str:
    """Escape text for the message of a workflow command of GitHub, on one line."""
    return visible(text).replace("%", "%25")


def workflow_property(text: str) -> str:
    """Escape text for a property of a workflow command, where commas and colons have a meaning."""
    return workflow_message(text).replace(":", "%3A").replace(",", "%2C")


def sarif(review: Review) -> str:
    """Return SARIF 2.1.0: a result per finding, waived ones suppressed."""
    rules = sorted({finding.rule for finding in review.findings})
    run = {
        "tool": {"driver": {"name": "modelplan", "rules": [{"id": rule} for rule in rules]}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, rules) for finding in review.findings],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, ensure_ascii=False, indent=2) + "\n"


def _result(finding: Finding, rules: Sequence[str]) -> dict[str, object]:
    place = finding.place
    location: dict[str, object] = {"artifactLocation": {"uri": quote(place.file)}}
    if place.line:
        location["region"] = {"startLine": place.line, "startColumn": place.column}
    result: dict[str, object] = {
        "ruleId": finding.rule,
        "ruleIndex": rules.index(finding.rule),
        "level": _LEVELS[finding.severity],
        "message": {"text": wording.finding(finding)},
        "locations": [{"physicalLocation": location}],
    }
    if finding.waiver:
        result["suppressions"] = [{"kind": "inSource", "justification": f"until {finding.waiver.until}: {finding.waiver.reason}"}]
    return result


def junit(review: Review) -> str:
    """Return JUnit XML: a suite of the models reviewed and the files with errors; only errors are failures."""
    by_model: dict[str, list[Finding]] = {model.name: [] for model in review.models}
    for finding in review.findings:
        by_model.setdefault(finding.model or finding.place.file, []).append(finding)
    failures = sum(any(one.severity == "error" for one in found) for found in by_model.values())
    cases = [_case(name, found) for name, found in by_model.items()]
    suite = f'<testsuite name="modelplan" tests="{len(by_model)}" failures="{failures}" errors="0" skipped="0">'
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', "<testsuites>", suite, *cases, "</testsuite>", "</testsuites>", ""])


def _case(name: str, found: Sequence[Finding]) -> str:
    head = f"<testcase classname={_attribute('capacity')} name={_attribute(name)}"
    errors = [finding for finding in found if finding.severity == "error"]
    others = [finding for finding in found if finding.severity != "error"]
    if not found:
        return f"{head}/>"
    failure = f"<failure message={_attribute(errors[0].message)}>{_lines(errors)}</failure>" if errors else ""
    out = f"<system-out>{_lines(others)}</system-out>" if others else ""
    return f"{head}>{failure}{out}</testcase>"


def _lines(found: Iterable[Finding]) -> str:
    return escape(_xml("\n".join(map(wording.line, found))))


def _attribute(text: str) -> str:
    return quoteattr(_xml(text))


def _xml(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)
