"""`hawser emit`: an event from the shell."""

import json

from tests.cli.conftest import Run


def test_an_event_is_emitted_once(run: Run):
    assert "packed:42  emitted" in run("emit", "packed:42", "--body", '{"parcels": 2}').stdout
    told = run("emit", "packed:42", "--body", '{"parcels": 3}')
    assert told.exit_code == 0
    assert "nothing was emitted: an event 'packed:42' came" in told.stderr
    assert "says something else; the first stays" in told.stderr
    again = json.loads(run("emit", "packed:42", "--body", '{"parcels": 2}', "--json").stdout)
    assert (again["created"], again["same"]) == (False, True)


def test_an_event_that_is_wrong_is_named(run: Run):
    assert "not JSON" in run("emit", "a", "--body", "{").stderr
    wrong = run("emit", "")
    assert wrong.exit_code != 0
    assert "name: a text of 0 characters; use 1 to 256" in wrong.stderr
