import os
import signal
import subprocess
import sys
import time

import pytest

from hawser.errors import ConfigError
from hawser.lab.journal import Journal, JournalRun, Record, Tail, What, read

WRITER = """
import sys
from pathlib import Path
from hawser.lab.journal import Journal, JournalRun, What
journal = Journal(Path(sys.argv[1]))
number = 0
while True:
    number += 1
    journal.write(What.START, [JournalRun(f"{sys.argv[2]}-{number}", number)])
"""


def test_what_is_written_is_read_in_the_order_of_its_time(tmp_path):
    first, second = Journal(tmp_path / "j"), Journal(tmp_path / "j")
    first.write(What.ENQUEUE, [JournalRun("a"), JournalRun("b")])
    second.write(What.SETTLED, [JournalRun("a", 1)], "done")
    first.write(What.FAULT, note="kill")
    found = read(tmp_path / "j")
    assert [(each.what, each.runs, each.note) for each in found] == [
        (What.ENQUEUE, (JournalRun("a"), JournalRun("b")), ""),
        (What.SETTLED, (JournalRun("a", 1),), "done"),
        (What.FAULT, (), "kill"),
    ]
    assert found == sorted(found, key=lambda each: each.at)


def test_writers_killed_in_the_middle_leave_whole_records_without_gaps(tmp_path):
    """Four processes write as fast as they can and are killed with -9."""
    path = tmp_path / "j"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(n)]) for n in range(4)]
    try:
        path.touch()
        deadline, tail, seen = time.monotonic() + 20, Tail(path), set[str]()
        while len(seen) < 4 and time.monotonic() < deadline:
            seen |= {record.by for record in tail.read()}
            time.sleep(0.05)
    finally:
        for writer in writers:
            os.kill(writer.pid, signal.SIGKILL)
            writer.wait(30)
    by_writer: dict[str, list[int]] = {}
    for record in read(path):
        [run] = record.runs
        by_writer.setdefault(run.id.partition("-")[0], []).append(run.lease)
    assert len(by_writer) == 4
    for numbers in by_writer.values():
        assert numbers == list(range(1, len(numbers) + 1))


def test_a_torn_record_is_an_error_and_not_skipped(tmp_path):
    Journal(tmp_path / "j").write(What.START, [JournalRun("a", 1)])
    with (tmp_path / "j").open("ab") as file:
        file.write(b'[1,"start"')
    with pytest.raises(ConfigError, match="torn record"):
        read(tmp_path / "j")


def test_a_record_is_small():
    assert Record.__struct_config__.array_like
