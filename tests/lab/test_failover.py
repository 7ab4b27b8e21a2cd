"""What the failover experiment asks for, and what it takes for a failure. The promotions themselves are in `test_pair.py`."""

from __future__ import annotations

from typing import Any

import pytest

from hawser.errors import ConfigError
from hawser.lab.checker import Verdict
from hawser.lab.experiment import run
from hawser.lab.experiments.failover import Played
from hawser.lab.journal import Journal, JournalRun, Tail, What


def played(**fields) -> Played:
    usual: dict[str, Any] = {
        "verdict": Verdict(violations={}, counts={}),
        "records": [],
        "back": [0.3, 3.0],
        "zombie_tries": 12,
        "zombie_acks": 0,
        "waits_cancelled": 3,
        "zombie_sessions_most": [7],
        "zombie_sessions_left": [0],
        "stuck": [],
        "drained_in": 1.0,
        "announced": 0,
    }
    return Played(**(usual | fields))


def test_it_needs_servers_of_its_own(tmp_path):
    with pytest.raises(ConfigError, match="servers of its own: --store postgres or --store redis"):
        run("failover", "sqlite", tmp_path, seed=1, quick=True, given={}, show=lambda *_: None)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"back": [0.3, 10.5]}, "after 1 promotions workers took longer than 10 s, up to 10.5 s"),
        ({"zombie_acks": 1}, "1 writes were accepted by a primary that had been replaced"),
        ({"zombie_sessions_left": [0, 26, 65]}, "on 2 primaries that had been replaced sessions were left, up to 65"),
        ({"stuck": ["a running for 41.0 s too long"]}, "1 jobs were stuck 10 s after the last promotion: a running for 41.0 s"),
        ({"zombie_tries": 0}, "no write was tried on a zombie"),
    ],
)
def test_what_did_not_hold_is_named(fields, said):
    assert not played().amiss()
    [found] = played(**fields).amiss()
    assert said in found


def test_a_tail_reads_on_from_where_it_was_and_leaves_what_is_not_whole(tmp_path):
    path = tmp_path / "journal"
    journal, tail = Journal(path), Tail(path)
    journal.write(What.START, [JournalRun("a")])
    assert [record.what for record in tail.read()] == [What.START]
    journal.write(What.END, [JournalRun("a")])
    whole = path.read_bytes()
    with path.open("ab") as file:
        file.write(b'[1,"start"')
    assert [record.what for record in tail.read()] == [What.END]
    path.write_bytes(whole + b'[1,"start","1"]\n')
    assert [record.what for record in tail.read()] == [What.START]
    journal.close()
