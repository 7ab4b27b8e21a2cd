"""Forty schedules that tick every second: twenty make up for all that was missed, the others for less."""

from hawser import Every, Hawser
from hawser.schedule.rule import AnyRule, Missed

app = Hawser()

POLICIES: dict[str, tuple[Missed, int]] = {"all": ("all", 20), "once": ("once", 10), "skip": ("skip", 10)}
RULES: dict[str, AnyRule] = {
    f"{word}.{number:02}": Every(seconds=1, missed=missed, most_missed=1_000)
    for word, (missed, count) in POLICIES.items()
    for number in range(count)
}


@app.task(schedule=RULES)
def tick() -> None:
    """Never run: the drill looks at what was made."""
