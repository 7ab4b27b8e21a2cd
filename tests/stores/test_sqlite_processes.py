"""Many processes on one file, some of them killed at any moment."""

from pathlib import Path

from tests.stores.crowd import crowd


def test_eight_processes_share_a_file_and_a_quarter_of_them_is_killed(tmp_path: Path):
    crowd(f"sqlite:///{tmp_path}/jobs.db", tmp_path)
