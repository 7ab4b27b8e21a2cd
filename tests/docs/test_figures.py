"""Figures that a page quotes stand in the findings, where each has its command."""

from __future__ import annotations

import re

import pytest

from tests.docs.documents import ROOT

DASH = "\N{EN DASH}"
NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
FIGURE = re.compile(rf"{NUMBER}{DASH}{NUMBER}(?:\s(?:µs|ms|%|kB))?|\d+(?:,\d{{3}})+|{NUMBER}\s(?:µs|ms|%|kB)")
"""50,400, or 46,000 to 51,100, or 0.7 to 2.0 ms."""


@pytest.mark.parametrize("page", ["operate/capacity.md", "concepts/choosing-a-store.md"])
def test_what_a_page_quotes_stands_in_the_findings(page: str):
    """Up to the tables that name a command of their own."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8").partition("\n## Per million")[0]
    table = "\n".join(line for line in text.splitlines() if line.startswith("| "))
    findings = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    quoted = FIGURE.findall(table)
    assert len(quoted) > 4
    assert [figure for figure in quoted if figure not in findings] == []
