"""The app of a Django project, for `hawser worker hawser.contrib.django.worker:app` and the processes that it starts.

DJANGO_SETTINGS_MODULE names the settings, HAWSER_DJANGO_BACKEND the alias in TASKS (default: "default").
"""

import os

import django
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules

from hawser.contrib.django.backend import HawserBackend
from hawser.contrib.django.framework import DEFAULT_TASK_BACKEND_ALIAS, task_backends

django.setup()
autodiscover_modules("tasks")

_alias = os.environ.get("HAWSER_DJANGO_BACKEND", DEFAULT_TASK_BACKEND_ALIAS)
_backend = task_backends[_alias]
if not isinstance(_backend, HawserBackend):
    raise ImproperlyConfigured(f"TASKS[{_alias!r}] is not a HawserBackend; set HAWSER_DJANGO_BACKEND to one that is")
app = _backend.app
