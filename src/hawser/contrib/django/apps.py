"""The Django app, for its management command."""

from django.apps import AppConfig


class HawserConfig(AppConfig):
    """`manage.py hawser_worker`."""

    name = "hawser.contrib.django"
    label = "hawser"
