"""Signals and standard streams of a real worker. They are played as in the attack, `python -m tests.drills.attack`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drills.case import Case
from tests.drills.cases import streams


@pytest.mark.parametrize("case", streams.CASES, ids=lambda case: case.name)
def test_a_signal_a_lost_terminal_and_a_full_pipe_do_what_is_promised(case: Case, tmp_path: Path):
    seen = case.run(tmp_path)
    assert seen.held, f"{case.fault}: wanted {case.wanted}; {seen.text}"
