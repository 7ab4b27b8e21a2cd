"""The app of `tests.worker.tasks`, in processes that close an idle connection to PostgreSQL after a second."""

from hawser.stores.postgres import server
from tests.worker.tasks import app

SOON_IDLE = "from hawser.stores.postgres import server; server.IDLE_FOR = 1.0"
"""For the supervisor, which does not import the app."""

vars(server)["IDLE_FOR"] = 1.0

__all__ = ["SOON_IDLE", "app"]
