"""A project with one database, and one Hawser store beside it."""

import os
from pathlib import Path

import django

FOLDER = Path(os.environ.get("SHOP_DATA", "."))

SECRET_KEY = "not secret: an example"  # noqa: S105
USE_TZ = True
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": FOLDER / "shop.db"}}
INSTALLED_APPS = ["shop", "hawser.contrib.django"]
if django.VERSION < (6,):
    INSTALLED_APPS.append("django_tasks")

TASKS = {
    "default": {
        "BACKEND": "hawser.contrib.django.backend.HawserBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {
            "store": f"sqlite:///{FOLDER}/jobs.db",
            "defaults": {"max_attempts": 3, "timeout": 60},
            "tasks": {"shop.tasks.charge": {"max_attempts": 1}},
        },
    }
}
