"""A backend for `django.tasks`: Django 6, or the package django-tasks on older ones.

In the settings: `INSTALLED_APPS += ["hawser.contrib.django"]` and
`TASKS = {"default": {"BACKEND": "hawser.contrib.django.backend.HawserBackend", "OPTIONS": {"store": "postgresql://…"}}}`.
"""
