"""Connections of the SQLite store."""

import subprocess
import sys
from pathlib import Path

NEVER_CLOSED = """
import sys, warnings
warnings.simplefilter("error")
sys.unraisablehook = lambda fault: print(fault.exc_value)
from hawser import Hawser
app = Hawser("sqlite:///" + sys.argv[1])
@app.task
def mail() -> None: ...
mail.enqueue()
app.stats()
del app, mail
import gc; gc.collect()
"""


def test_an_app_that_is_never_closed_warns_of_nothing(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", NEVER_CLOSED, str(tmp_path / "jobs.db")], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
