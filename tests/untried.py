"""A pytest plugin: the last line of a run lists skipped tests, and under CI a skipped test fails the run."""

from __future__ import annotations

import os

import pytest


class Untried:
    """Collects skipped tests and files."""

    def __init__(self, *, allowed: bool) -> None:
        self.allowed = allowed
        self.skips: list[tuple[str, str]] = []  # name and reason

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):  # expected failures count as skipped in pytest
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.skips.append((report.nodeid, reason.removeprefix("Skipped: ")))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self.skips and not self.allowed and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """Write below pytest's own last line."""
        terminal = config.pluginmanager.get_plugin("terminalreporter")
        if not self.skips or terminal is None:
            return
        if self.allowed:
            terminal.write_line(f"not tried here: {'; '.join(dict.fromkeys(reason for _, reason in self.skips))}")
            return
        for name, reason in self.skips:
            terminal.write_line(f"SKIPPED {name}: {reason}")
        terminal.write_line("FAILED: a skipped test is a failure where CI is set")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin; CI services set the variable CI."""
    config.pluginmanager.register(Untried(allowed=os.environ.get("CI", "") in ("", "false")))
