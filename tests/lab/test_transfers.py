"""`hawser lab transfers` notices what it is there for: its judgement, with forged tables."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from hawser.job import State, new_job
from hawser.lab.experiment import left_out
from hawser.lab.experiments.transfers import ACCOUNTS, BALANCE, STEPS, OwnTables, _judged
from hawser.store import RecordedStep


class Done:
    state = State.DONE


def played(**changed: Any) -> tuple[list[str], dict[str, Any]]:
    """Two transfers and one job with steps, all as they should be but for what is changed."""
    asked = [(0, 1, 5), (1, 2, 7)]
    bodies = [b'{"source": %d, "target": %d, "amount": %d}' % each for each in asked]
    paid = [new_job(task="transfer", body=body) for body in bodies]
    stepped = [new_job(task="pay_by_step", body=b"{}")]
    rows = [(job.id, *each) for job, each in zip(paid, asked, strict=True)]
    rows = changed.get("rows", lambda rows: rows)(rows)
    balances = {**dict.fromkeys(range(ACCOUNTS), BALANCE), 0: BALANCE - 5, 1: BALANCE + 5 - 7, 2: BALANCE + 7}
    keys = [f"{stepped[0].id}:{name}" for name in STEPS]
    effects = changed.get("effects", lambda made: made)({key: [2] for key in keys})
    jobs = {job.id: Done for job in (*paid, *stepped)}
    now = datetime.now(UTC)
    steps = {key: RecordedStep(name=key, value_body=msgspec.json.encode(key), at=now, lease=2) for key in keys}
    recorded = dict(list(steps.items())[: changed.get("recorded", len(STEPS))])
    return _judged(paid, stepped, jobs, OwnTables({**balances, **changed.get("balances", {})}, rows), recorded, effects)


def test_what_is_right_is_not_found_fault_with():
    broken, figures = played()
    assert broken == []
    assert (figures["made"], figures["steps_recorded"], figures["effects_repeated"]) == (2, 3, 0)


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"rows": lambda rows: rows[:1]}, "missing: 1"),
        ({"rows": lambda rows: [*rows, rows[0]]}, "doubled: 1"),
        ({"balances": {5: BALANCE + 1}}, "off: 1"),
        ({"balances": {5: BALANCE + 1, 6: BALANCE - 1}}, "accounts_off: 2"),
        ({"rows": lambda rows: [(rows[0][0], 0, 1, 6), rows[1]]}, "other_than_asked: 1"),
        ({"effects": lambda made: dict(list(made.items())[:2])}, "effects_missing: 1"),
        ({"effects": lambda made: {**made, "a key of no job": [1]}}, "an effect was made under a key of no job"),
        ({"effects": lambda made: {key: [2, 3] for key in made}}, "effects_repeated_outside: 3"),
        ({"effects": lambda made: {key: [2, 2] for key in made}}, "effects_repeated_outside: 3"),
        ({"recorded": 2}, "2 steps are recorded; there should be 3"),
    ],
)
def test_what_is_wrong_is_named(changed: dict[str, Any], fault: str):
    broken, _ = played(**changed)
    assert any(text.startswith(fault) for text in broken), broken


def test_a_repeat_in_the_crash_window_is_counted_and_no_fault():
    broken, figures = played(effects=lambda made: {key: [1, 2] for key in made})
    assert (broken, figures["effects_repeated"]) == ([], 3)


def test_a_store_without_a_database_for_handlers_is_left_out():
    assert left_out("transfers", "sqlite") is left_out("transfers", "postgres") is left_out("transfers", None) is None
    assert "its handlers write into the store's own database" in str(left_out("transfers", "redis://localhost/0"))
