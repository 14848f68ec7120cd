"""The MySQL proxy against the real server: what the client sees, and what is really there."""

import threading
import time

import MySQLdb
import pytest

from tests.support.wait import NotInTime, wait_until

pytestmark = pytest.mark.mysql

LOST = 2013
LOCK_WAIT_TIMEOUT = 1205
DUPLICATE = 1062


def insert(connection, number, state="new"):
    connection.cursor().execute("INSERT INTO work VALUES (%s, %s)", (number, state))


def rows(direct):
    direct.execute("SELECT id, state FROM work ORDER BY id")
    return list(direct.fetchall())


def error_code(function, *arguments):
    with pytest.raises(MySQLdb.OperationalError) as caught:
        function(*arguments)
    return caught.value.args[0]


def waits_for_a_lock(direct, thread_id):
    direct.execute(
        "SELECT 1 FROM information_schema.innodb_trx "
        "WHERE trx_state = 'LOCK WAIT' AND trx_mysql_thread_id = %s",
        (thread_id,),
    )
    return direct.fetchone()


class Background(threading.Thread):
    """A call in a thread of its own; `outcome` is None, "returned" or the error code."""

    def __init__(self, function, *arguments):
        super().__init__()
        self._function, self._arguments, self.outcome = function, arguments, None
        self.start()

    def run(self):
        try:
            self._function(*self._arguments)
            self.outcome = "returned"
        except MySQLdb.Error as error:
            self.outcome = error.args[0]


# --- one COMMIT, seven fates ------------------------------------------------------------------


def test_a_withheld_ok_is_a_lost_connection_although_the_row_is_there(proxy, direct, connect):
    rule = proxy.on_commit(containing=r"INSERT INTO work .*'dispatched'", action="withhold_ok")
    connection = connect()
    insert(connection, 1, "dispatched")
    assert error_code(connection.commit) == LOST
    firing = rule.wait_fired()
    assert firing.outcome == "committed"
    assert firing.statements[-1] == "INSERT INTO work VALUES (1, 'dispatched')"
    assert rule.fired_count == 1
    assert rows(direct) == [(1, "dispatched")]


def test_a_dropped_request_is_the_same_lost_connection_but_the_row_is_not(proxy, direct, connect):
    rule = proxy.on_commit(containing="INSERT INTO work", action="drop_request")
    connection = connect()
    insert(connection, 1)
    assert error_code(connection.commit) == LOST
    assert rule.wait_fired().outcome == "dropped"
    assert rows(direct) == []
    insert_again = connect()
    insert(insert_again, 1)
    insert_again.commit()
    assert rows(direct) == [(1, "new")]


def test_a_held_ok_keeps_the_client_waiting_on_a_committed_row(proxy, direct, connect):
    rule = proxy.on_commit(containing="INSERT", action="hold_ok")
    connection = connect()
    insert(connection, 1)
    commit = Background(connection.commit)
    assert rule.wait_fired().outcome == "committed"
    assert rows(direct) == [(1, "new")]
    assert commit.outcome is None
    rule.release()
    commit.join()
    assert commit.outcome == "returned"
    insert(connection, 2)
    connection.commit()
    assert len(rows(direct)) == 2


def test_an_ok_may_be_held_for_a_time(proxy, direct, connect):
    rule = proxy.on_commit(action="hold_ok", seconds=0.2)
    connection = connect()
    insert(connection, 1)
    before = time.monotonic()
    connection.commit()
    assert time.monotonic() - before >= 0.2
    assert rule.fired_count == 1


def test_a_held_ok_may_be_dropped_after_all(proxy, direct, connect):
    rule = proxy.on_commit(action="hold_ok")
    connection = connect()
    insert(connection, 1)
    commit = Background(connection.commit)
    rule.wait_fired()
    rule.drop()
    commit.join()
    assert commit.outcome == LOST
    assert rows(direct) == [(1, "new")]


def test_a_held_request_is_not_committed_before_its_release(proxy, direct, connect):
    rule = proxy.on_commit(action="hold_request")
    connection = connect()
    insert(connection, 1)
    commit = Background(connection.commit)
    assert rule.wait_fired().outcome is None
    assert rows(direct) == []
    rule.release()
    assert rule.wait_outcome() == "committed"
    commit.join()
    assert commit.outcome == "returned"
    assert rows(direct) == [(1, "new")]


def test_a_held_request_may_be_dropped_and_is_rolled_back(proxy, direct, connect):
    rule = proxy.on_commit(action="hold_request")
    connection = connect()
    insert(connection, 1)
    commit = Background(connection.commit)
    rule.wait_fired()
    rule.drop()
    commit.join()
    assert (commit.outcome, rule.wait_outcome()) == (LOST, "dropped")
    assert rows(direct) == []


def test_a_late_commit_lands_after_the_client_lost_it_and_a_rival_insert_waits_for_it(
    proxy, direct, connect
):
    rule = proxy.on_commit(containing="INSERT INTO work", action="late_commit")
    connection = connect()
    insert(connection, 1)
    assert error_code(connection.commit) == LOST
    rule.wait_fired()
    assert rows(direct) == []
    rival = connect()
    rival_id = rival.thread_id()
    rival.cursor().execute("SET innodb_lock_wait_timeout = 30")
    waiting = Background(insert, rival, 1)
    # The server renews this table only when nobody has read it for 0.1 s.
    wait_until(lambda: waits_for_a_lock(direct, rival_id), look_every=0.15, about="rival waits")
    rule.release()
    assert rule.wait_outcome() == "committed"
    waiting.join()
    assert waiting.outcome == DUPLICATE
    assert rows(direct) == [(1, "new")]


def test_a_late_commit_may_be_so_many_seconds_late(proxy, direct, connect):
    rule = proxy.on_commit(action="late_commit", seconds=0.2)
    connection = connect()
    insert(connection, 1)
    assert error_code(connection.commit) == LOST
    lost_at = rule.wait_fired().at
    assert rule.wait_outcome() == "committed"
    assert time.time() - lost_at >= 0.19
    assert rows(direct) == [(1, "new")]


def test_a_half_open_connection_ends_by_the_clients_own_timeout(proxy, direct, connect):
    rule = proxy.on_commit(containing="INSERT", action="half_open")
    connection = connect(read_timeout=1)
    insert(connection, 1)
    assert error_code(connection.commit) == LOST
    assert rule.wait_fired().outcome == "committed"
    assert rows(direct) == [(1, "new")]
    assert proxy.connections == 1
    rule.release()
    wait_until(lambda: proxy.connections == 0)


def test_a_half_open_connection_before_the_commit_keeps_its_locks(proxy, direct, connect):
    direct.execute("INSERT INTO work VALUES (1, 'old')")
    rule = proxy.on_commit(containing="UPDATE work", action="half_open_unsent")
    connection = connect(read_timeout=1)
    connection.cursor().execute("UPDATE work SET state = 'new'")
    assert error_code(connection.commit) == LOST
    assert rule.fired_count == 1
    assert rows(direct) == [(1, "old")]
    direct.execute("SET innodb_lock_wait_timeout = 1")
    update = "UPDATE work SET state = 'other'"
    assert error_code(direct.execute, update) == LOCK_WAIT_TIMEOUT
    rule.release()
    assert rule.wait_outcome() == "dropped"
    wait_until(lambda: proxy.connections == 0)
    direct.execute("SET innodb_lock_wait_timeout = 10")
    direct.execute(update)
    assert rows(direct) == [(1, "other")]


# --- which COMMIT -----------------------------------------------------------------------------


def test_only_the_first_matching_commit_is_affected(proxy, direct, connect):
    rule = proxy.on_commit(containing="'marked'", action="withhold_ok")
    connection = connect()
    insert(connection, 1, "plain")
    connection.commit()
    assert rule.fired_count == 0
    insert(connection, 2, "marked")
    assert error_code(connection.commit) == LOST
    connection = connect()
    insert(connection, 3, "marked")
    connection.commit()
    assert rule.fired_count == 1
    assert rule.matched_count == 2
    assert len(rows(direct)) == 3


def test_the_nth_match_and_so_many_times(proxy, direct, connect):
    rule = proxy.on_commit(containing="INSERT", action="withhold_ok", nth=2, times=2)
    seen = []
    for number in range(1, 6):
        connection = connect()
        insert(connection, number)
        try:
            connection.commit()
            seen.append("ok")
        except MySQLdb.OperationalError as error:
            seen.append(error.args[0])
    assert seen == ["ok", LOST, LOST, "ok", "ok"]
    rule.wait_fired(count=2)
    assert rule.fired_count == 2
    assert len(rows(direct)) == 5


def test_all_patterns_must_be_found_in_one_transaction(proxy, direct, connect):
    rule = proxy.on_commit(containing=["'first'", "'second'"], action="withhold_ok")
    connection = connect()
    for number, state in enumerate(["first", "second"]):
        insert(connection, number, state)
        connection.commit()
    assert rule.fired_count == 0
    insert(connection, 3, "first")
    insert(connection, 4, "second")
    assert error_code(connection.commit) == LOST
    assert rule.fired_count == 1


def test_statements_that_no_longer_count_do_not_match(proxy, direct, connect):
    rule = proxy.on_commit(containing="'marked'", action="withhold_ok")
    connection = connect()
    insert(connection, 1)
    connection.commit()
    insert(connection, 2, "marked")
    connection.rollback()
    with pytest.raises(MySQLdb.IntegrityError):
        insert(connection, 1, "marked")
    cursor = connection.cursor()
    cursor.execute("SAVEPOINT `s`")
    insert(connection, 3, "marked")
    cursor.execute("ROLLBACK TO SAVEPOINT `s`")
    insert(connection, 4, "plain")
    connection.commit()
    assert rule.matched_count == 0
    assert rows(direct) == [(1, "new"), (4, "plain")]


def test_a_disarmed_rule_matches_nothing(proxy, direct, connect):
    rule = proxy.on_commit(action="withhold_ok")
    rule.disarm()
    connection = connect()
    insert(connection, 1)
    connection.commit()
    assert rule.matched_count == 0


def test_a_statement_that_commits_itself_can_lose_its_ok(proxy, direct, connect):
    direct.execute("INSERT INTO work VALUES (1, 'old')")
    rule = proxy.on_statement(matching=r"UPDATE work SET state = 'new'", action="withhold_ok")
    connection = connect(autocommit=True)
    update = "UPDATE work SET state = 'new'"
    assert error_code(connection.cursor().execute, update) == LOST
    assert rule.wait_fired().text == update
    assert rows(direct) == [(1, "new")]


def test_an_answer_that_is_an_error_is_passed_on_and_does_not_count(proxy, direct, connect):
    direct.execute("INSERT INTO work VALUES (1, 'there')")
    rule = proxy.on_statement(matching="INSERT INTO work", action="withhold_ok")
    connection = connect(autocommit=True)
    with pytest.raises(MySQLdb.IntegrityError):
        insert(connection, 1)
    assert rule.fired_count == 0
    assert error_code(insert, connection, 2) == LOST
    assert rule.fired_count == 1
    assert rows(direct) == [(1, "there"), (2, "new")]


def test_a_fault_that_did_not_happen_is_named(proxy, connect):
    rule = proxy.on_commit(containing="never", action="withhold_ok")
    with pytest.raises(NotInTime, match=r"withhold_ok on COMMIT \['never'\] fired 1 time"):
        rule.wait_fired(0.05)


def test_an_unknown_action_is_refused(proxy):
    with pytest.raises(ValueError, match="late_commit"):
        proxy.on_commit(action="explode")
