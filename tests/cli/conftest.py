import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hawser.cli.program import hawser
from tests.cli.given import Given

Run = Callable[..., Result]

SHOP = """
from hawser import Hawser

app = Hawser({url!r})
other = 3

@app.task(queue="mail")
def send_email(to: str, template: str = "welcome") -> None: ...

@app.task(confirm_replay=True)
def charge(order: int = 0) -> None: ...
"""


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Given]:
    monkeypatch.delenv("HAWSER_STORE", raising=False)
    monkeypatch.delenv("HAWSER_DEBUG", raising=False)
    given = Given(tmp_path / "jobs.db")
    yield given
    given.close()


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line in an empty folder, with no store named."""
    monkeypatch.delenv("HAWSER_STORE", raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*args: str, **options) -> Result:
        return CliRunner().invoke(hawser, args, prog_name="hawser", **options)

    return run


@pytest.fixture
def run(given: Given, bare: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line on the given store."""
    monkeypatch.setenv("HAWSER_STORE", given.url)
    return bare


@pytest.fixture
def shop(given: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An app on the given store, in a file of the working directory."""
    (tmp_path / "shop.py").write_text(SHOP.format(url=given.url))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield "shop:app"
    sys.modules.pop("shop", None)
