"""Signed messages: what is signed, what is refused, and who may sign for whom (C, C3)."""

import base64
import hashlib
import hmac
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as some

from kernel import access
from kernel.access.signing_keys import ENVIRONMENT_KEY, purge_receipts, sync_environment_key
from kernel.access.tokens import ENVIRONMENT
from kernel.conf import conf
from kernel.delivery.signing import ID, SIGNATURE, TIMESTAMP, Proof, key_of, sign, verify
from kernel.errors import Conflict, InvalidInput, NotFound, Unauthorized
from kernel.models import AuditRow, SigningKey, Token, WebhookReceipt
from kernel.startup import apply_environment
from tests.support.product import OPERATOR, make_account

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
OLD = "whsec_" + base64.b64encode(b"the old key of 24 bytes.").decode()
NEW = "a new secret that is plain text"
BODY = '{"decision":"approved","note":"é"}'.encode()


def signed(*, body: bytes = BODY, at: datetime = NOW, secrets: tuple[str, ...] = (OLD,)):
    return sign(message_id="msg_1", signed_at=at, body=body, secrets=secrets)


def check(headers: dict[str, str], *, body: bytes = BODY, secrets: tuple[str, ...] = (OLD,)):
    return verify(headers=headers, body=body, secrets=secrets, now=NOW, tolerance_seconds=300)


def test_the_signature_is_the_one_of_standard_webhooks() -> None:
    # The published example of the specification's reference libraries.
    headers = sign(
        message_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        signed_at=datetime.fromtimestamp(1614265330, UTC),
        body=b'{"test": 2432232314}',
        secrets=["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
    )
    assert headers == {
        ID: "msg_p5jXN8AQM9LWM0D4loKWxJek",
        TIMESTAMP: "1614265330",
        SIGNATURE: "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_a_secret_without_the_prefix_is_the_key_itself() -> None:
    expected = hmac.new(NEW.encode(), f"msg_1.{int(NOW.timestamp())}.".encode() + BODY, "sha256")
    headers = signed(secrets=(NEW,))
    assert headers[SIGNATURE] == f"v1,{base64.b64encode(expected.digest()).decode()}"


@given(minutes=some.integers(-14 * 60, 14 * 60), seconds=some.integers(1, 4_000_000_000))
def test_the_same_moment_is_signed_alike_in_every_zone(minutes: int, seconds: int) -> None:
    moment = datetime.fromtimestamp(seconds, UTC)
    there = moment.astimezone(timezone(timedelta(minutes=minutes)))
    assert signed(at=there) == signed(at=moment)
    assert signed(at=there)[TIMESTAMP] == str(seconds)


def test_a_time_without_a_zone_is_never_signed() -> None:
    with pytest.raises(ValueError, match="zone"):
        signed(at=NOW.replace(tzinfo=None))


@pytest.mark.parametrize("message_id", ["", "a.b", "é", "a b", "x" * 129, "a\n"])
def test_an_id_that_could_be_read_two_ways_is_never_signed(message_id: str) -> None:
    with pytest.raises(ValueError, match="message id"):
        sign(message_id=message_id, signed_at=NOW, body=BODY, secrets=[OLD])


@pytest.mark.parametrize("secrets", [(), ("short",), ("whsec_!!!",), (OLD, NEW, OLD)])
def test_no_key_or_too_many_keys_sign_nothing(secrets: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="one or two"):
        signed(secrets=secrets)


def test_each_attempt_is_signed_anew_under_the_same_id() -> None:
    first, second = signed(at=NOW - timedelta(seconds=200)), signed(at=NOW)
    assert first[ID] == second[ID]
    assert first[TIMESTAMP] != second[TIMESTAMP]
    assert first[SIGNATURE] != second[SIGNATURE]
    assert check(first).signed_at < check(second).signed_at


def test_while_secrets_rotate_either_side_may_change_first() -> None:
    assert signed(secrets=(OLD, NEW))[SIGNATURE].count("v1,") == 2
    for sender in ((OLD,), (NEW,), (OLD, NEW)):
        assert check(signed(secrets=sender), secrets=(OLD, NEW))
    for receiver in ((OLD,), (NEW,)):
        assert check(signed(secrets=(OLD, NEW)), secrets=receiver)
    assert check(signed(secrets=(NEW,)), secrets=(OLD, NEW)).secret_index == 1


def test_a_newer_version_beside_ours_is_left_out() -> None:
    headers = signed()
    headers[SIGNATURE] = "v1a,AAAA v2,BBBB " + headers[SIGNATURE]
    assert check(headers) == Proof("msg_1", NOW, 0)
    with pytest.raises(Unauthorized):
        check({**headers, SIGNATURE: "v1a,AAAA"})


@pytest.mark.parametrize("seconds", [-301, 301, 3600, -(10**9)])
def test_a_message_from_too_long_ago_or_from_the_future_is_refused(seconds: int) -> None:
    with pytest.raises(Unauthorized, match="too long ago, or in the future"):
        check(signed(at=NOW + timedelta(seconds=seconds)))


@pytest.mark.parametrize("seconds", [-300, 0, 300])
def test_both_bounds_of_the_window_are_inside(seconds: int) -> None:
    assert check(signed(at=NOW + timedelta(seconds=seconds)))


GOOD = signed()
TIME = GOOD[TIMESTAMP]
GARBAGE = {
    ID: ["", "msg.1", " msg_1", "msg_1 ", "msg_1\n", "é", "msg_1,msg_1", "x" * 200, "\x00"],
    TIMESTAMP: [
        "",
        f"{TIME}.9",
        f"{TIME[0]}_{TIME[1:]}",
        f" {TIME}",
        f"{TIME}\n",
        f"+{TIME}",
        f"-{TIME}",
        f"0{TIME}",
        f"{TIME}000",
        f"{TIME},{TIME}",
        "nan",
        "inf",
        "1e400",
        "1e9",
        "٣",
        "1" * 5000,
    ],
    SIGNATURE: [
        "",
        "x",
        "v1",
        "v1,",
        "v1,a,b",
        "v1,aé==",
        "sha256=é",
        "sha256=",
        "v1,====",
        "v1,A",
        GOOD[SIGNATURE] + " ",
        " " + GOOD[SIGNATURE],
        GOOD[SIGNATURE].replace("v1,", "V1,"),
        GOOD[SIGNATURE].lower(),
        GOOD[SIGNATURE] + "  " + GOOD[SIGNATURE],
        GOOD[SIGNATURE] + "," + GOOD[SIGNATURE],
        GOOD[SIGNATURE] + " x",
        " ".join([GOOD[SIGNATURE]] * 9),
        GOOD[SIGNATURE][:-4] + "AAA=",
        "v1,\ud800",
    ],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in GARBAGE for value in GARBAGE[name]]
)
def test_garbage_in_a_header_is_unauthorized_and_no_other_error(name: str, value: str) -> None:
    with pytest.raises(Unauthorized):
        check({**GOOD, name: value})


@pytest.mark.parametrize("name", [ID, TIMESTAMP, SIGNATURE])
def test_a_missing_header_is_unauthorized(name: str) -> None:
    with pytest.raises(Unauthorized):
        check({key: value for key, value in GOOD.items() if key != name})


@given(some.dictionaries(some.sampled_from([ID, TIMESTAMP, SIGNATURE]), some.text()))
def test_whatever_text_arrives_is_unauthorized(headers: dict[str, str]) -> None:
    with pytest.raises(Unauthorized):
        check(headers)


@given(some.binary(max_size=40))
def test_other_bytes_than_the_signed_ones_are_unauthorized(body: bytes) -> None:
    with pytest.raises(Unauthorized):
        check(GOOD, body=body)


def test_bytes_that_are_no_text_can_be_signed() -> None:
    raw = b"\xff\xfe\x00"
    assert check(signed(body=raw), body=raw)


@pytest.mark.parametrize("secrets", [(), ("",), ("short",), ("whsec_%%%",), ("whsec_",), (NEW,)])
def test_what_is_no_key_verifies_nothing(secrets: tuple[str, ...]) -> None:
    with pytest.raises(Unauthorized):
        check(GOOD, secrets=secrets)


def test_an_empty_key_is_none_at_all() -> None:
    assert [key_of(text) for text in ("", "whsec_", "short", "whsec_AAAA", "\ud800" * 20)] == [
        None
    ] * 5


# --- keys ---------------------------------------------------------------------------------------


def add(name: str, account_id: str = "acme") -> SigningKey:
    return access.add_signing_key(account_id=account_id, secret_env=name, actor=OPERATOR)


def test_two_keys_are_active_at_most_and_a_revoked_one_makes_room(kernel_db: None) -> None:
    make_account()
    first = add("ACME_SECRET")
    add("ACME_SECRET_2")
    with pytest.raises(Conflict) as refused:
        add("ACME_SECRET_3")
    assert refused.value.error_code == "two_keys_active"
    assert access.revoke_signing_key(key_id=first.id, actor=OPERATOR, reason="rotated") is True
    assert access.revoke_signing_key(key_id=first.id, actor=OPERATOR) is False
    add("ACME_SECRET_3")
    values = {"ACME_SECRET": "x" * 20, "ACME_SECRET_2": "y" * 20, "ACME_SECRET_3": ""}
    found = access.active_secrets(account_id="acme", environ=values)
    assert [secret for _, secret in found] == ["y" * 20]
    acts = AuditRow.objects.filter(subject=f"signing_key:{first.id}").order_by("sequence")
    assert [act.action for act in acts] == ["signing_key.add", "signing_key.revoke"]


def test_a_key_belongs_to_one_account(kernel_db: None) -> None:
    make_account()
    make_account("other")
    add("SHARED_SECRET")
    assert access.active_secrets(account_id="other", environ={"SHARED_SECRET": "x" * 20}) == []


@pytest.mark.parametrize("name", ["", "acme secret", "whsec_abc", "DJANGO_SECRET_KEY", "MYSQL_X"])
def test_a_key_names_a_variable_and_never_one_of_another_use(kernel_db: None, name: str) -> None:
    make_account()
    with pytest.raises(InvalidInput) as refused:
        add(name)
    assert refused.value.field == "secret_env"


def test_keys_of_nobody_are_refused(kernel_db: None) -> None:
    with pytest.raises(NotFound):
        add("ACME_SECRET", account_id="ghost")
    with pytest.raises(NotFound):
        access.revoke_signing_key(key_id="sgk_ghost", actor=OPERATOR)


def test_the_environments_secret_becomes_a_key_once_and_stays_revoked(kernel_db: None) -> None:
    make_account()
    for _ in range(2):
        sync_environment_key(account_id="acme", secret="s" * 32)
    row = SigningKey.objects.get()
    assert (row.account_id, row.secret_env) == ("acme", ENVIRONMENT_KEY)
    access.revoke_signing_key(key_id=row.id, actor=OPERATOR)
    sync_environment_key(account_id="acme", secret="s" * 32)
    assert SigningKey.objects.count() == 1


def test_at_a_start_the_key_belongs_to_the_account_of_the_tokens(kernel_db: None) -> None:
    environ = {"BAILING_API_TOKEN": "t" * 32, ENVIRONMENT_KEY: "s" * 32}
    account_id = apply_environment(environ=environ, demo=False)
    assert SigningKey.objects.get().account_id == account_id == Token.objects.get().account_id


def test_an_environment_token_of_an_earlier_version_gains_the_new_scopes(kernel_db: None) -> None:
    environ = {"BAILING_API_TOKEN": "t" * 32}
    apply_environment(environ=environ, demo=False)
    Token.objects.update(scopes="usage:read usage:write")
    for _ in range(2):
        apply_environment(environ=environ, demo=False)
    row = Token.objects.get()
    assert row.scopes.split() == sorted(ENVIRONMENT["BAILING_API_TOKEN"])
    assert "executor" not in row.scopes
    acts = AuditRow.objects.filter(subject=f"token:{row.id}").order_by("sequence")
    assert [act.action for act in acts] == ["token.issue", "token.scopes"]


# --- receipts -----------------------------------------------------------------------------------


def accept(webhook_id: str = "msg_1", *, about: str = "apr_1", body: bytes = BODY) -> bool:
    return access.accept_message(account_id="acme", webhook_id=webhook_id, about=about, body=body)


def test_the_same_message_again_is_the_retry_and_another_one_is_refused(kernel_db: None) -> None:
    assert (accept(), accept()) == (True, False)
    for other in ({"body": b"{}"}, {"about": "apr_2"}):
        with pytest.raises(Unauthorized):
            accept(**other)
    row = WebhookReceipt.objects.get()
    assert row.body_sha256 == hashlib.sha256(b"apr_1\n" + BODY).hexdigest()


def test_receipts_are_purged_when_no_signature_is_young_enough(kernel_db: None) -> None:
    for number in range(5):
        accept(f"msg_{number}")
    old = timedelta(days=conf.signature_receipt_days, seconds=1)
    rows = WebhookReceipt.objects.filter(webhook_id__in=["msg_1", "msg_2", "msg_3"])
    rows.update(received_at=WebhookReceipt.objects.first().received_at - old)
    first = purge_receipts(limit=2)
    assert (first.scanned, first.has_more) == (2, True)
    assert purge_receipts(cursor=first.cursor, limit=2).has_more is False
    assert set(WebhookReceipt.objects.values_list("webhook_id", flat=True)) == {"msg_0", "msg_4"}


def test_receipts_outlive_every_signature() -> None:
    assert conf.signature_receipt_days * 86400 > 2 * conf.signature_tolerance_seconds
