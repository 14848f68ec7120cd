"""The console behind ASGI: one thread for a whole request; streams and errors arrive as before."""

import asyncio
import threading

import pytest
from asgiref.sync import SyncToAsync
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import path

from console.asgi import ConsoleHandler

seen = []


class Recorder:
    """Notes the thread it runs in."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        seen.append(threading.get_ident())
        return self.get_response(request)

    def process_view(self, request, view, args, kwargs):
        seen.append(threading.get_ident())


def page(request):
    seen.append(threading.get_ident())
    return HttpResponse("whole")


def stream(request):
    async def pieces():
        for piece in (b"in ", b"pieces"):
            yield piece

    return StreamingHttpResponse(pieces())


def broken(request):
    raise ValueError("a defect")


urlpatterns = [path("page", page), path("stream", stream), path("broken", broken)]


@pytest.fixture
def get(settings):
    """Status and body of an address, and the thread of the event loop."""
    settings.ROOT_URLCONF = __name__
    both = "django.middleware.common.CommonMiddleware"  # can be either, as most of Django's
    settings.MIDDLEWARE = [both, f"{__name__}.Recorder", both, f"{__name__}.Recorder", both]
    seen.clear()

    async def ask(address, handler):
        heads = [(b"host", b"testserver")]
        scope = {"type": "http", "method": "GET", "path": address, "headers": heads}
        asked, sent = iter([{"type": "http.request", "body": b""}]), []

        async def receive():
            for message in asked:
                return message
            return await asyncio.Event().wait()

        async def send(message):
            sent.append(message)

        await handler()({**scope, "query_string": b""}, receive, send)
        return sent[0]["status"], b"".join(one.get("body", b"") for one in sent[1:])

    def get(address, handler=ConsoleHandler):
        return *asyncio.run(ask(address, handler)), threading.get_ident()

    return get


def test_middlewares_hooks_and_view_share_one_thread_that_is_not_the_loops(get):
    status, body, loop_thread = get("/page")
    assert (status, body) == (200, b"whole")
    assert len(seen) == 5 and len(set(seen)) == 1 and loop_thread not in seen


def test_a_request_changes_threads_less_often_than_with_the_stock_handler(get, monkeypatch):
    hops = []
    enter = SyncToAsync.__call__

    def counted(self, *args, **kwargs):
        hops.append(self)
        return enter(self, *args, **kwargs)

    monkeypatch.setattr(SyncToAsync, "__call__", counted)
    get("/page")
    ours = len(hops)
    get("/page", ASGIHandler)
    assert ours + 3 <= len(hops) - ours  # two hooks and the view


def test_a_stream_arrives_in_its_pieces(get):
    assert get("/stream")[:2] == (200, b"in pieces")


def test_a_defect_is_a_500(get, settings):
    settings.DEBUG = False
    settings.LOGGING_CONFIG = None
    status, _body, _thread = get("/broken")
    assert status == 500
