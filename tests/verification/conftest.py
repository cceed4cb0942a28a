"""Prints the table of measured orders after `pytest -m verification -s`."""

from __future__ import annotations

import pytest
from _pytest.terminal import TerminalReporter

from pdejepa import systems
from tests.verification.orders import plain_table


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("capture") != "no" and "verification" not in (config.getoption("markexpr") or ""):
        return
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    rows = [
        tuple(str(value).split("\t"))
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == "order_row" and getattr(report, "when", "") == "call"
    ]
    if not rows:
        return
    rows.sort(key=lambda row: systems.NAMES.index(row[0]))  # several processes report in any order
    terminalreporter.section("measured orders of accuracy")
    for line in plain_table(rows):
        terminalreporter.write_line(line)
