"""The demo's inbox: closed at first, so that a dead letter can be made, repaired and replayed."""

from kernel.delivery.channels import GONE
from kernel.demo.business import Inbox


def test_a_closed_inbox_refuses_for_good_and_an_open_one_takes_each_message_once() -> None:
    inbox = Inbox()
    status, answer = inbox.take(message_id="ntf_1", body=b"{}")
    assert status == GONE, "the one answer that ends the attempts at once"
    assert "PUT /inbox" in answer["error"]
    assert inbox.listed() == (200, {"open": False, "messages": []})
    assert inbox.open()[1]["open"]
    for _repeat in range(2):
        assert inbox.take(message_id="ntf_1", body=b'{"a": 1}')[0] == 200
    assert inbox.listed()[1]["messages"] == [{"webhook_id": "ntf_1", "body": '{"a": 1}'}]


def test_a_message_without_its_id_is_refused() -> None:
    inbox = Inbox()
    inbox.open()
    assert inbox.take(message_id="", body=b"{}")[0] == 400
