"""The addresses of the JSON door and of the probes."""

from django.urls import path

from kernel.api import approvals, dead_letters, executor, invocations, jobs, notifications
from kernel.api.door import api
from kernel.api.probes import livez, metrics, readyz

for _noun in (jobs, approvals, executor, invocations, notifications, dead_letters):
    api.add_router("", _noun.router)

urlpatterns = [
    path("livez", livez),
    path("readyz", readyz),
    path("metrics", metrics),
    path("", api.urls),
]

handler404 = "kernel.api.errors.on_unknown_address"
handler500 = "kernel.api.errors.on_server_error"
