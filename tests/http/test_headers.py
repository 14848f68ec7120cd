"""What a caller may put into a request head, and what `Retry-After` may ask for."""

from datetime import UTC, datetime

import pytest

from kernel.errors import NotSent
from kernel.http import AddressPolicy, check_url, retry_after_seconds
from kernel.http.headers import request_headers
from tests.http.conftest import Call, whole
from tests.support.hostile_peer import HostilePeer

NOW = datetime(2015, 10, 21, 7, 27, 0, tzinfo=UTC)
TARGET = check_url("https://example.com/v1", AddressPolicy())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Ok", "a\r\nX-Injected: 1"),
        ("X-Ok", "a\nb"),
        ("X-Ok", "a\0b"),
        ("X-Ok", "smile \U0001f642"),
        ("X-Ok", " padded"),
        ("X-Ok", "padded\t"),
        ("X-Bad\r\nX-Injected", "1"),
        ("X Bad", "1"),
        ("", "1"),
        ("X-Bäd", "1"),
        ("Host", "evil.test"),
        ("content-length", "5"),
        ("Transfer-Encoding", "chunked"),
        ("Connection", "close"),
        ("Accept-Encoding", "gzip"),
        ("Expect", "100-continue"),
        ("Upgrade", "h2c"),
    ],
)
async def test_a_header_that_could_break_the_framing_is_never_sent(
    call: Call, peer: HostilePeer, name: str, value: str
) -> None:
    with pytest.raises(NotSent) as refused:
        await whole(call, peer.url("ok"), headers=[(name, value)])
    assert refused.value.details["reason"] == "invalid_request"
    assert peer.connections == 0


def test_a_refused_header_value_is_not_repeated_in_the_message() -> None:
    with pytest.raises(NotSent) as refused:
        request_headers(
            method="POST",
            target=TARGET,
            headers=[("Authorization", "Bearer hunter2\n")],
            content=b"",
        )
    assert "Authorization" in str(refused.value) and "hunter2" not in str(refused.value)


@pytest.mark.parametrize("method", ["post", "CONNECT", "GE T", "GET\r\n", ""])
def test_a_method_that_is_not_one_is_refused(method: str) -> None:
    with pytest.raises(NotSent):
        request_headers(method=method, target=TARGET, headers=[], content=None)


async def test_the_peer_sees_our_framing_and_the_callers_headers(
    call: Call, peer: HostilePeer
) -> None:
    await whole(call, peer.url("echo"), headers=[("Authorization", "Bearer k"), ("X-A", "é")])
    request = peer.requests[0]
    assert request.header("host") == f"127.0.0.1:{peer.port}"
    assert request.header("accept-encoding") == "identity"
    assert request.header("content-length") == "2"
    assert request.header("authorization") == "Bearer k"
    assert request.header("x-a") == "é"
    assert request.header("transfer-encoding") is None


async def test_a_post_without_content_says_so(call: Call, peer: HostilePeer) -> None:
    await whole(call, peer.url("echo"), content=None)
    await whole(call, peer.url("echo"), content=None, method="GET")
    assert [one.header("content-length") for one in peer.requests] == ["0", None]


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        (["0"], 0),
        (["7"], 7),
        (["1.5"], 2),
        (["9999999999"], 3600),
        (["9" * 500], 3600),
        (["Wed, 21 Oct 2015 07:28:00 GMT"], 60),
        (["Wednesday, 21-Oct-15 07:28:00 GMT"], 60),
        (["Wed Oct 21 07:28:00 2015"], 60),
        (["Wed, 21 Oct 2009 07:28:00 GMT"], 0),
        (["Wed, 21 Oct 2099 07:28:00 GMT"], 3600),
        (["Wed, 99 Oct 2015 07:28:00 GMT"], None),
        (["-5"], None),
        (["-3"], None),
        (["+5"], None),
        (["1e3"], None),
        (["٥"], None),
        (["abc"], None),
        ([""], None),
        (["5", "6"], None),
        ([], None),
    ],
)
def test_retry_after_is_clamped_or_ignored(values: list[str], seconds: int | None) -> None:
    assert retry_after_seconds(values, now=NOW, seconds_max=3600) == seconds
