"""The sink under handlers in threads."""

from __future__ import annotations

import threading
from pathlib import Path

from hawser.lab.sink import Sink

THREADS = 6
EFFECTS_OF_EACH = 60


def test_threads_of_one_process_that_share_two_sinks_never_lock_each_other_out(tmp_path: Path) -> None:
    # A thread that waits for SQLite's own mutex keeps the GIL, and so keeps the thread that has the file's lock from giving it
    # back: without a lock around each call both stand still until the time limit of the file's lock.
    sinks = [Sink(tmp_path / "sink"), Sink(tmp_path / "sink")]
    failed: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            for n in range(EFFECTS_OF_EACH):
                assert sinks[thread % 2].apply(f"{thread}-{n}", 1)
        except BaseException as error:  # told below, in the test's own thread
            failed.append(error)

    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert not failed
    assert not any(thread.is_alive() for thread in threads)
    assert sinks[0].effects() == {f"{thread}-{n}": 1 for thread in range(THREADS) for n in range(EFFECTS_OF_EACH)}
    for sink in sinks:
        sink.close()
