"""The memory store with a journal keeps the contract."""

import pytest

from hawser.testing.contract import *  # noqa: F403  # the tests of the contract become this module's


@pytest.fixture
def url(tmp_path):
    return f"memory://?journal={tmp_path / 'journal'}"
