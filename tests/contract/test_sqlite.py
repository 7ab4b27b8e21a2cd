"""The SQLite store keeps the contract, in a file."""

import pytest

from hawser.testing.contract import *  # noqa: F403  # the tests of the contract become this module's


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'jobs.db'}"
