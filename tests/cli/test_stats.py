"""`hawser stats` and `hawser top`."""

import io
import json

from hawser.store import Beat
from tests.cli.conftest import Run
from tests.cli.given import Given
from tests.redis_servers import running


def test_the_figures_of_all_queues(given: Given, run: Run):
    given.ready(queue="mail")
    given.dead(queue="bulk")
    text = run("stats").stdout
    facts = dict(line.split(maxsplit=1) for line in text.split("\n\n")[0].splitlines())
    assert (facts["queue"], facts["ready"], facts["dead"], facts["store"]) == ("all", "1", "1", "durable")
    assert facts["attempts"] == "1 or fewer in 99 % of the jobs that ended in the last hour"
    assert "QUEUE" in text


def test_the_figures_of_one_queue(given: Given, run: Run):
    given.ready(queue="mail")
    given.dead(queue="bulk")
    said = json.loads(run("stats", "mail", "--json").stdout)
    assert (said["queue"], said["ready"], said["dead"], said["durability"]) == ("mail", 1, 0, "durable")
    assert {"oldest_age_s", "attempts_p99", "rates", "scheduled", "retrying", "exact"} <= said.keys()
    assert "QUEUE" not in run("stats", "mail").stdout


def test_the_limits_of_one_queue_are_told(given: Given, run: Run):
    given.ready(queue="mail")
    run("limits", "set", "--queue", "mail", "--running", "4", "--rate", "100/m")
    said = json.loads(run("stats", "mail", "--json").stdout)
    assert (said["max_running"], said["rate"], said["max_depth"]) == (4, "100/m", None)
    assert "limit      4 at once, 100/m\n" in run("stats", "mail").stdout
    everything = json.loads(run("stats", "--json").stdout)
    assert (everything["max_running"], everything["rate"], everything["max_depth"]) == (None, None, None)


def test_a_redis_store_says_what_it_keeps_and_that_its_server_was_replaced(bare: Run):
    with running() as server:
        url = f"{server.url}?done_most=500"
        bare("migrate", "--store", url)
        with server.client() as client:
            client.hset("{hawser}:epoch", "failovers", 2)
        said = json.loads(bare("stats", "--json", "--store", url).stdout)
        assert (said["retention"]["done"], said["done_most"], said["failovers"]) == (3600, 500, 2)
        text = bare("stats", "--store", url).stdout
        assert "done jobs for 1 h, 500 at most" in text
        assert "2: what was accepted last may be lost" in text


def test_an_empty_store_has_figures_too(run: Run):
    assert json.loads(run("stats", "--json").stdout)["ready"] == 0
    assert "nothing happened lately" in run("stats").stdout


def test_an_unknown_queue_is_doubted(given: Given, run: Run):
    given.ready(queue="mail")
    result = run("stats", "mial", "--json")
    assert json.loads(result.stdout)["ready"] == 0
    assert "queue mial holds nothing; the queues that do: mail" in result.stderr


def test_a_paused_queue_is_marked(given: Given, run: Run):
    given.ready(queue="mail")
    run("queues", "pause", "mail")
    assert "paused     mail\n" in run("stats").stdout


def test_a_wrong_name_is_refused(run: Run):
    result = run("stats", "a b")
    assert (result.exit_code, result.stderr[:13]) == (2, "error: queue:")


def test_one_document_does_not_go_on_for_ever(run: Run):
    assert run("stats", "--watch", "--json").exit_code == 2


def test_watching_prints_a_line_again_and_again(given: Given, run: Run, monkeypatch):
    given.ready()
    turns = []

    def sleep(seconds: float) -> None:
        turns.append(seconds)
        if len(turns) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", sleep)
    result = run("stats", "--watch", "--every", "5")
    assert [line.split()[1:3] for line in result.stdout.splitlines()] == [["ready", "1"]] * 3
    assert (result.exit_code, result.stderr, turns) == (130, "", [5.0] * 3)


def test_top_shows_queues_workers_and_dead_letters(given: Given):
    from rich.console import Console

    from hawser.cli.opened_app import opened
    from hawser.cli.top import view

    given.ready(queue="mail")
    given.dead("charge", "ConnectionError: [red]no[/red] answer")
    given.beat(Beat(worker="w1", host="h", pid=1, version="1", queues=("mail",), slots=4, running=2))
    console = Console(width=120, record=True, file=io.StringIO())
    with opened(given.url) as target:
        for part in view(target):
            console.print(part, markup=False)
    text = console.export_text()
    for word in ("enqueued", "mail", "w1", "charge", "ConnectionError: [red]no[/red] answer"):
        assert word in text


def test_top_wants_a_terminal(run: Run):
    result = run("top")
    assert result.exit_code == 2
    assert "hawser stats --watch" in result.stderr
