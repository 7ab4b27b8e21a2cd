"""Arguments that a task declares as redacted are not printed."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import SHOP, Run
from tests.cli.given import Given

CARD = "4000123412341234"


def test_no_command_prints_the_value_when_the_app_is_known(given: Given, run: Run, shop: str):
    text = SHOP.format(url=given.url).replace("confirm_replay=True", "redact=['card']").replace("order: int = 0", "card: str")
    Path("shop.py").write_text(text)
    id = given.dead("charge", payload={"card": CARD})
    for words in (("jobs",), ("jobs", "show", id), ("dlq",), ("dlq", "show", id)):
        for form in ((), ("--json",)):
            said = run(*words, *form, "--app", shop)
            assert (said.exit_code, CARD in said.stdout) == (0, False), said.output
    assert "•••" in run("jobs", "show", id, "--app", shop).stdout
    assert CARD in run("jobs", "show", id).stdout, "without the app nothing is known of its tasks"
