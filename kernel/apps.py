"""The kernel as a Django application."""

from django.apps import AppConfig


class KernelConfig(AppConfig):
    name = "kernel"
    label = "kernel"
    verbose_name = "Bailing kernel"
