"""An app whose child processes take five seconds to start."""

import sys
import time

from hawser import Hawser

if sys.argv[0].endswith("isolate.py"):
    time.sleep(5)  # an import that takes long

app = Hawser()  # the store is $HAWSER_STORE


@app.task(isolate=True, timeout=1, max_attempts=1)
def quick() -> None: ...


@app.task(isolate=True, timeout=1, max_attempts=1)
def hangs() -> None:
    time.sleep(60)
