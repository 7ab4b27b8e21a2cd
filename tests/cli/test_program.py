"""The program itself, as a process: pipes, terminals, signals, exit codes."""

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from hawser.cli.group import Root
from hawser.cli.program import COMMANDS, hawser
from hawser.job import NewJob
from tests.cli.conftest import Run
from tests.cli.given import HOSTILE, Given
from tests.worker.processes import turn_held

HAWSER = (sys.executable, "-m", "hawser.cli")


def program(*args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HAWSER, *args], cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=60, check=False
    )


def on_a_terminal(*args: str, cwd: Path, columns: int = 140, **env: str) -> str:
    """What a terminal of that width would get."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*HAWSER, *args],
        cwd=cwd,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": f"{columns}", **env},
    )
    os.close(slave)
    chunks = []
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(master)
    assert process.wait(60) == 0
    return b"".join(chunks).decode()


def test_the_list_of_commands_says_what_each_says_of_itself():
    assert isinstance(hawser, Root)
    for name in ("enqueue", "stats", "jobs", "dlq", "queues", "tasks", "migrate"):
        command = hawser.get_command(None, name)  # type: ignore[arg-type]  # it does not ask for the context
        assert command is not None
        assert (command.help or "").partition("\n")[0] == COMMANDS[name].help


def test_help_imports_no_command():
    seen = "print([name for name in sys.modules if name.startswith(('hawser.cli.', 'rich'))])"
    code = f"import sys; from hawser.cli import main\ntry: main()\nfinally: {seen}"
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "['hawser.cli.format', 'hawser.cli.group', 'hawser.cli.program']"
    for name in COMMANDS:
        assert f"\n  {name} " in done.stdout


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help(bare: Run, name: str):
    result = bare(name, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: hawser {name}")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("job",), "did you mean 'jobs'?"),
        (("frobnicate",), "known are"),
        (("jobs", "cancle"), "did you mean 'cancel'?"),
        (("stats", "--what"), "--what"),
        (("stats", "a", "b"), "unexpected extra argument"),
    ],
)
def test_a_slip_of_the_hand_is_bad_usage(bare: Run, args: tuple[str, ...], said: str):
    result = bare(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_the_version(bare: Run):
    assert bare("--version").stdout.startswith("hawser 0.")


def test_a_fault_of_ours_is_one_line_too(run: Run, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise KeyError("x\x1b")

    monkeypatch.setattr("hawser.cli.stats._look", fail)
    result = run("stats")
    assert result.exit_code == 1
    assert result.stderr == "error: KeyError: 'x\\x1b'; this is a fault of Hawser: run it again with --debug and report it\n"


def test_an_argument_that_is_not_utf8_is_bad_usage(given: Given, tmp_path: Path):
    for args in (("jobs", "--queue", b"\xff"), ("jobs", "show", b"\xff\xfe"), (b"\xff",)):
        done = subprocess.run([*HAWSER, *args, "--store", given.url], capture_output=True, timeout=60, check=False)
        assert done.returncode == 2
        assert b"is not valid UTF-8" in done.stderr
        assert b"Traceback" not in done.stderr


def test_in_a_pipe_the_text_is_plain(given: Given, tmp_path: Path):
    id = given.dead(error=HOSTILE)
    done = program("jobs", "ls", "--store", given.url, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines()[1].startswith(id)
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("args", ["jobs ls --limit 1000", "jobs ls --limit 1000 --json", "--help", "jobs --help"])
def test_a_reader_that_had_enough_is_no_error(given: Given, tmp_path: Path, args: str):
    given.put(*(NewJob(task="t", body=b'"' + b"x" * 500 + b'"') for _ in range(1000)))
    line = f"set -o pipefail; {' '.join(HAWSER)} {args} | head -n 1"
    env = {**os.environ, "HAWSER_STORE": given.url}
    done = subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""
    assert done.returncode in {0, 141}


def test_a_reader_that_is_gone_is_no_error(given: Given, tmp_path: Path):
    reading, writing = os.pipe()
    os.close(reading)
    env = {**os.environ, "HAWSER_STORE": given.url}
    with os.fdopen(writing, "wb") as stdout:
        done = subprocess.run([*HAWSER, "stats"], env=env, stdout=stdout, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_bad_app_and_a_bad_store_are_one_line(tmp_path: Path):
    for args in (("stats", "--app", "nope:app"), ("stats", "--store", "sqlite:///nope.db"), ("enqueue", "nope", "t")):
        done = program(*args, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1


def test_a_terminal_without_unicode_gets_escapes(given: Given, tmp_path: Path):
    given.dead(error="naïve …")
    assert program("dlq", "--store", given.url, cwd=tmp_path, PYTHONIOENCODING="ascii").returncode == 0
    text = on_a_terminal("dlq", "--store", given.url, cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert text.isascii()
    assert "na\\xefve" in text


def test_a_terminal_gets_a_table(given: Given, tmp_path: Path):
    id = given.dead(error=HOSTILE)
    text = on_a_terminal("jobs", "--store", given.url, cwd=tmp_path)
    assert "─" * 20 in text
    assert id in text
    assert "[red]boo[/red]" in text
    assert ":skull:" in text
    assert "\x1b[31mred" not in text
    assert "\x1b[2J" not in text
    assert "\x9b" not in text


@pytest.mark.parametrize("columns", [20, 50, 80, 110])
def test_a_narrow_terminal_is_not_overrun_and_ids_stay_whole(given: Given, tmp_path: Path, columns: int):
    id = given.dead("a_task_with_quite_a_long_name.of_its_own", error="x" * 300, queue="a-long-name-for-a-queue")
    text = on_a_terminal("dlq", "--store", given.url, cwd=tmp_path, columns=columns)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    assert max(map(len, lines)) <= columns
    if columns >= 50:
        assert id in lines[-1]


def test_a_terminal_shows_a_job_in_full(given: Given, tmp_path: Path):
    id = given.dead(payload={HOSTILE: HOSTILE}, error=HOSTILE, worker=HOSTILE)
    text = on_a_terminal("jobs", "show", id, "--store", given.url, cwd=tmp_path)
    assert "traceback of attempt 1" in text
    assert "\x1b[2J" not in text
    assert "\x9b" not in text
    assert "\u202e" not in text
    assert json.loads(on_a_terminal("jobs", "show", id, "--store", given.url, "--json", cwd=tmp_path))["payload"] == {
        HOSTILE: HOSTILE
    }


def test_no_colour_when_asked_not_to(given: Given, tmp_path: Path):
    given.dead()
    assert "\x1b[1;31m" in on_a_terminal("jobs", "--store", given.url, cwd=tmp_path)
    assert "\x1b[1;31m" not in on_a_terminal("jobs", "--store", given.url, cwd=tmp_path, NO_COLOR="1")


def test_ctrl_c_ends_a_watch_quietly(given: Given, tmp_path: Path):
    watch = subprocess.Popen(
        [*HAWSER, "stats", "--watch", "--store", given.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert watch.stdout is not None
    assert "ready 0" in watch.stdout.readline()
    watch.send_signal(signal.SIGINT)
    _, said = watch.communicate(timeout=10)
    assert (watch.returncode, said) == (130, "")


def is_waiting(pid: int) -> bool:
    """Whether the process waits for a lock."""
    return any("->" in line and f" {pid} " in line for line in Path("/proc/locks").read_text().splitlines())


def test_ctrl_c_does_not_wait_for_a_store_that_somebody_holds(given: Given, tmp_path: Path):
    with turn_held(given.path):
        pause = [*HAWSER, "queues", "pause", "mail", "--store", given.url]
        stats = subprocess.Popen(pause, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        until = time.monotonic() + 30
        while not is_waiting(stats.pid) and time.monotonic() < until:
            assert stats.poll() is None
            time.sleep(0.01)
        stats.send_signal(signal.SIGINT)
        _, said = stats.communicate(timeout=10)
    assert (stats.returncode, said) == (130, b"")


@pytest.mark.parametrize("module", ["click", "msgspec"])
def test_ctrl_c_ends_a_program_quietly_that_still_imports(given: Given, tmp_path: Path, module: str):
    (tmp_path / f"{module}.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(30)\n")
    done = program("stats", "--store", given.url, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("after", [0.1, 0.2, 0.3])
def test_ctrl_c_ends_a_program_quietly_whenever_it_comes(given: Given, tmp_path: Path, after: float):
    stats = subprocess.Popen([*HAWSER, "stats", "--store", given.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(after)  # whatever it is at by then
    stats.send_signal(signal.SIGINT)
    _, said = stats.communicate(timeout=10)
    # On a busy machine the interpreter itself may not have started by then, and what it says is its own.
    assert (said == "" and stats.returncode in (0, 130)) or "hawser/" not in said


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["--help", "stats", "jobs --json"])
def test_output_that_cannot_be_written_is_no_fault_of_ours(given: Given, command: str, unbuffered: str):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*HAWSER, *command.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "HAWSER_STORE": given.url, "PYTHONUNBUFFERED": unbuffered},
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "error: the output cannot be written: No space left on device; make room, or name another place\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_nowhere(given: Given, closed: str):
    """And what is printed does not go into the file that got its number."""
    given.ready()
    command = shlex.join([*HAWSER, "jobs", "--store", given.url])
    done = subprocess.run(["sh", "-c", f"{command} {closed}"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) == (">&-" not in closed.replace("2>&-", ""))


def test_a_store_that_somebody_holds_can_be_read_and_a_write_gives_up_in_time(given: Given, bare: Run):
    with turn_held(given.path):
        read = bare("stats", "--store", given.url)
        written = bare("queues", "pause", "mail", "--store", f"{given.url}?timeout=0.1")
    assert read.exit_code == 0
    assert written.exit_code == 1
    assert "was held by another connection for 0.1 s; nothing was written: try again" in written.stderr


def test_the_demo_serves_the_dashboard_while_the_shop_is_open(tmp_path: Path):
    command = [sys.executable, "-m", "hawser.cli", "demo", "--seconds", "60", "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as demo:
        assert demo.stdout is not None
        [address] = re.findall(r"The dashboard: (http://127[.]0[.]0[.]1:[0-9]+/)ui/", demo.stdout.readline())
        try:
            assert httpx.get(f"{address}ui/").headers["content-type"] == "text/html; charset=utf-8"
            done, deadline = 0, time.monotonic() + 30
            while not done and time.monotonic() < deadline:
                done = httpx.get(f"{address}overview").json()["totals"]["done"]
            assert done
        finally:
            demo.send_signal(signal.SIGINT)
        assert "missing" in demo.stdout.read()
    assert demo.returncode == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(address)


def test_the_demo_can_stay_in_the_terminal(tmp_path: Path):
    shown = program("demo", "--seconds", "1", "--terminal", cwd=tmp_path)
    assert "dashboard" not in shown.stdout.lower(), shown
    assert "done, " in shown.stdout


def test_the_demo_says_what_became_of_its_store(tmp_path: Path):
    kept = program("demo", "--seconds", "1", "--store", "sqlite:///shop.db", cwd=tmp_path)
    assert "The store sqlite:///shop.db was kept" in kept.stdout, kept
    assert "removed" not in kept.stdout
    assert (tmp_path / "shop.db").exists()
    removed = program("demo", "--seconds", "1", cwd=tmp_path)
    assert "The demo's store was removed." in removed.stdout, removed


@pytest.mark.parametrize("store", ["redis?lanes=streams", "postgres"])
def test_the_demo_starts_a_server_of_its_own(store, tmp_path: Path):
    shown = program("demo", "--seconds", "1", "--terminal", "--store", store, cwd=tmp_path)
    assert " 0 left, 0 missing" in shown.stdout, shown
    assert "The demo's store was removed." in shown.stdout


@pytest.mark.parametrize(("store", "kind"), [("redis", "redis"), ("postgres", "postgresql"), ("sqlite", "sqlite")])
def test_a_bench_starts_a_server_of_its_own(store, kind, tmp_path: Path):
    found = json.loads(program("bench", "--jobs", "1000", "--store", store, "--json", cwd=tmp_path).stdout)
    assert (found["store"], found["durable"], found["lost"], found["duplicated"]) == (kind, True, 0, 0)
