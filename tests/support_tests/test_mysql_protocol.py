"""Reading the MySQL protocol: greetings, answers in both dialects, and which statements count."""

import asyncio
import struct

import pytest

from tests.support import mysql_protocol as protocol
from tests.support.mysql_protocol import Packet, Response, Transaction, is_commit

OK_AUTOCOMMIT = b"\x00\x01\x00\x02\x00\x00\x00"
OK_IN_TRANSACTION = b"\x00\x01\x00\x01\x00\x00\x00"
OK_ENDED_MANUAL = b"\x00\x00\x00\x00\x00\x00\x00"
EOF = b"\xfe\x00\x00\x02\x00"
OK_AS_EOF = b"\xfe\x00\x00\x02\x00\x00\x00"
DEADLOCK = b"\xff" + struct.pack("<H", 1213) + b"#40001Deadlock"
DUPLICATE = b"\xff" + struct.pack("<H", 1062) + b"#23000Duplicate"


def packet(payload: bytes, sequence: int = 1) -> Packet:
    raw = len(payload).to_bytes(3, "little") + bytes([sequence]) + payload
    return Packet(sequence, payload, raw, len(payload))


def answer(*payloads: bytes, capabilities: int = 0, command: int = protocol.QUERY) -> Response:
    """Feed an answer; every packet but the last must leave it open."""
    response = Response(command, capabilities)
    for payload in payloads:
        assert not response.done
        response.feed(packet(payload))
    return response


async def read_from(data: bytes) -> Packet:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return await protocol.read_packet(reader)


async def test_a_payload_of_16_mib_comes_in_parts_and_is_one_packet():
    big = b"a" * protocol.PART_MAX
    raw = b"\xff\xff\xff\x00" + big + b"\x03\x00\x00\x01" + b"end"
    found = await read_from(raw)
    assert (found.raw, found.size) == (raw, protocol.PART_MAX + 3)
    assert found.payload == big


async def test_a_payload_of_exactly_16_mib_ends_with_an_empty_part():
    raw = b"\xff\xff\xff\x00" + b"a" * protocol.PART_MAX + b"\x00\x00\x00\x01"
    assert (await read_from(raw)).size == protocol.PART_MAX


async def test_a_cut_packet_is_the_end_of_the_stream():
    with pytest.raises(asyncio.IncompleteReadError):
        await read_from(b"\x05\x00\x00\x00abc")


def greeting(flags: int) -> bytes:
    low, high = struct.pack("<H", flags & 0xFFFF), struct.pack("<H", flags >> 16)
    head = b"\x0a11.4.2-MariaDB\x00" + struct.pack("<I", 77) + b"saltsalt\x00"
    return head + low + b"\x21" + b"\x02\x00" + high + b"\x15" + b"\x00" * 10 + b"more salt\x00"


def test_the_greeting_loses_tls_and_compression_and_nothing_else():
    kept = protocol.DEPRECATE_EOF | 1 << 9
    raw, thread_id = protocol.plain_greeting(packet(greeting(kept | protocol.HIDDEN), 0))
    assert thread_id == 77
    assert raw == packet(greeting(kept), 0).raw


def test_a_refusal_instead_of_a_greeting_passes_unchanged():
    refusal = packet(b"\xff\x10\x04Too many connections", 0)
    assert protocol.plain_greeting(refusal) == (refusal.raw, 0)


def test_an_ok_ends_the_answer_and_carries_the_status():
    response = answer(OK_IN_TRANSACTION)
    assert (response.done, response.error) == (True, 0)
    assert response.status == protocol.IN_TRANSACTION


def test_an_error_ends_the_answer_and_carries_its_code():
    response = answer(DEADLOCK)
    assert (response.done, response.error) == (True, 1213)


def test_a_progress_report_does_not_end_the_answer():
    response = answer(b"\xff\xff\xff\x01", OK_AUTOCOMMIT)
    assert (response.done, response.error) == (True, 0)


def test_a_result_set_ends_at_its_second_eof():
    assert answer(b"\x01", b"\x03def", EOF, b"\x011", b"\xfb", EOF).done


def test_a_result_set_without_eof_ends_at_its_ok():
    modern = protocol.DEPRECATE_EOF
    assert answer(
        b"\x02", b"\x03def", b"\x03def", b"\x011\x012", OK_AS_EOF, capabilities=modern
    ).done


def test_a_row_that_starts_like_an_eof_is_a_row():
    long_value = b"\xfe" + (300).to_bytes(8, "little") + b"v" * 300
    assert answer(b"\x01", b"\x03def", EOF, long_value, EOF).done


def test_cached_column_definitions_are_not_waited_for():
    modern = protocol.DEPRECATE_EOF
    assert answer(b"\x01\x00", b"\x011", OK_AS_EOF, capabilities=modern).done
    assert answer(b"\x01\x01", b"\x03def", b"\x011", OK_AS_EOF, capabilities=modern).done


def test_more_results_follow_until_the_flag_is_gone():
    more = b"\x00\x00\x00\x0a\x00\x00\x00"
    more_eof = b"\xfe\x00\x00\x0a\x00"
    assert answer(more, b"\x01", b"\x03def", EOF, b"\x011", more_eof, OK_AUTOCOMMIT).done


def test_an_error_in_the_middle_of_rows_ends_the_answer():
    assert answer(b"\x01", b"\x03def", EOF, b"\x011", DEADLOCK).error == 1213


def test_a_local_file_is_asked_of_the_client_first():
    response = Response(protocol.QUERY, 0)
    response.feed(packet(b"\xfbfile.csv"))
    assert response.wants_client_data
    assert not response.done
    response.feed(packet(OK_AUTOCOMMIT))
    assert response.done
    assert not response.wants_client_data


def test_a_ping_is_one_packet_and_a_prepared_statement_is_not_followed():
    assert answer(OK_AUTOCOMMIT, command=protocol.PING).done
    assert not answer(OK_AUTOCOMMIT, command=protocol.STMT_PREPARE).done


@pytest.mark.parametrize(
    "text", ["COMMIT", "commit", " COMMIT WORK;", "commit and chain", "UPDATE a SET b=1; COMMIT"]
)
def test_a_commit_is_recognised(text):
    assert is_commit(text)


@pytest.mark.parametrize(
    "text", ["ROLLBACK", "SELECT 'COMMIT'", "UPDATE commits SET a=1", "SET autocommit=1", ""]
)
def test_other_statements_are_no_commit(text):
    assert not is_commit(text)


def test_a_leading_comment_is_not_part_of_the_statement():
    assert is_commit(protocol.statement_text(b"\x03/* why */ COMMIT"))


def test_a_very_long_statement_keeps_both_ends():
    size = protocol.STATEMENT_BYTES_MAX
    text = protocol.statement_text(b"\x03INSERT " + b"x" * 3 * size + b" state='done'")
    assert text.startswith("INSERT ")
    assert text.endswith("state='done'")
    assert len(text) < 2 * size + 20


def run(transaction: Transaction, *steps: tuple[str, bytes]) -> list[str]:
    for text, payload in steps:
        transaction.sent(text)
        transaction.answered(text, answer(payload))
    return transaction.statements


def test_statements_count_until_their_transaction_ends():
    first = ("INSERT 1", OK_IN_TRANSACTION)
    assert run(Transaction(), first) == ["INSERT 1"]
    assert run(Transaction(), first, ("COMMIT", OK_ENDED_MANUAL)) == []
    assert run(Transaction(), first, ("ROLLBACK", OK_ENDED_MANUAL)) == []
    assert run(Transaction(), first, ("UPDATE 2", DEADLOCK)) == []
    assert run(Transaction(), first, ("BEGIN", OK_IN_TRANSACTION)) == []


def test_an_autocommitted_statement_does_not_count_for_a_later_commit():
    assert run(Transaction(), ("INSERT 1", OK_AUTOCOMMIT), ("UPDATE 2", OK_IN_TRANSACTION)) == [
        "UPDATE 2"
    ]


def test_a_statement_that_failed_does_not_count():
    steps = [("INSERT 1", OK_IN_TRANSACTION), ("INSERT 2", DUPLICATE)]
    assert run(Transaction(), *steps) == ["INSERT 1"]


def test_what_was_rolled_back_to_a_savepoint_does_not_count():
    steps = ["INSERT 1", "SAVEPOINT `s1`", "INSERT 2", "ROLLBACK TO SAVEPOINT `s1`", "INSERT 3"]
    found = run(Transaction(), *((step, OK_IN_TRANSACTION) for step in steps))
    assert found == ["INSERT 1", "SAVEPOINT `s1`", "INSERT 3"]
