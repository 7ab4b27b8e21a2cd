"""Workers whose store takes an outcome whatever its lease number: `python -m tests.lab.unfenced worker tests.lab.unfenced:app …`.

Their supervisors bury the dead without a fence, too. An experiment that finds nothing wrong with them proves nothing.
"""

from tests.mutants import planted

_planted = planted("no_fence")
_planted.__enter__()

from hawser.cli import main  # noqa: E402  # after the bug is there
from hawser.lab.app import app as app  # noqa: E402, PLC0414  # for the workers to find

if __name__ == "__main__":
    main()
