"""The demo: a provider that answers without a model, so that the first request works at once."""

from kernel.demo.launcher import MODEL, DemoProvider, DemoProviderFailed, start_provider

__all__ = ["MODEL", "DemoProvider", "DemoProviderFailed", "start_provider"]
