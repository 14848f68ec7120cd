"""What passes the MySQL proxy unchanged, clients in other processes, outages of the server."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import MySQLdb
import pytest

from tests.support import mysql_protocol as protocol
from tests.support.environment import child_environment
from tests.support.wait import wait_until

pytestmark = pytest.mark.mysql

ROOT = Path(__file__).resolve().parents[2]
LOST, GONE, REFUSED = 2013, 2006, 2002

# One transaction of Django's, as the product opens it: prints what the client came to know.
DJANGO_STORY = """
import django; django.setup()
from django.db import connection, transaction, OperationalError
from kernel import clock
hooks = []
try:
    with transaction.atomic():
        transaction.on_commit(lambda: hooks.append("ran"))
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO work VALUES (%s, %s)", [1, "dispatched"])
    print("committed", hooks, flush=True)
except OperationalError as error:
    print(error.args[0], hooks, flush=True)
connection.close()
with connection.cursor() as cursor:
    cursor.execute("SELECT COUNT(*) FROM work")
    print("rows", cursor.fetchone()[0], flush=True)
"""


def django_child(proxy, schema_url):
    environment = child_environment(database_url=proxy.url(schema_url))
    return subprocess.Popen(
        [sys.executable, "-c", DJANGO_STORY],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(("action", "rows"), [("withhold_ok", 1), ("drop_request", 0)])
def test_djangos_atomic_in_a_child_sees_one_error_for_two_truths(
    proxy, direct, mysql_schema, action, rows
):
    rule = proxy.on_commit(containing="INSERT INTO work.*'dispatched'", action=action)
    with django_child(proxy, mysql_schema) as child:
        said, _ = child.communicate(timeout=60)
    assert said.splitlines() == [f"{LOST} []", f"rows {rows}"]
    assert rule.fired_count == 1


def test_the_commit_of_a_killed_child_lands_later(proxy, direct, mysql_schema):
    rule = proxy.on_commit(containing="INSERT INTO work", action="hold_request")
    with django_child(proxy, mysql_schema) as child:
        rule.wait_fired(60)
        os.kill(child.pid, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    direct.execute("SELECT COUNT(*) FROM work")
    assert direct.fetchone() == (0,)
    rule.release()
    assert rule.wait_outcome() == "committed"
    direct.execute("SELECT state FROM work")
    assert direct.fetchall() == (("dispatched",),)


def test_a_child_killed_after_its_commit_leaves_the_row(proxy, direct, mysql_schema):
    rule = proxy.on_commit(containing="INSERT INTO work", action="hold_ok")
    with django_child(proxy, mysql_schema) as child:
        assert rule.wait_fired(60).outcome == "committed"
        os.kill(child.pid, signal.SIGKILL)
        said, _ = child.communicate()
    assert said == ""
    direct.execute("SELECT COUNT(*) FROM work")
    assert direct.fetchone() == (1,)
    rule.release()
    wait_until(lambda: proxy.connections == 0, about="the dead child's connection is gone")


def test_the_server_forgets_a_client_that_is_gone(proxy, direct, connect):
    connection = connect()
    thread_id = connection.thread_id()
    connection.cursor().execute("INSERT INTO work VALUES (1, 'open')")
    connection.close()

    def is_gone():
        direct.execute("SELECT 1 FROM information_schema.processlist WHERE id = %s", (thread_id,))
        return direct.fetchone() is None

    wait_until(is_gone)
    assert proxy.connections == 0
    direct.execute("SELECT COUNT(*) FROM work")
    assert direct.fetchone() == (0,)


# --- unchanged --------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["modern", "with EOF packets"])
def test_rows_nulls_errors_and_several_results_pass_unchanged(
    proxy, direct, connect, monkeypatch, dialect
):
    if dialect == "with EOF packets":
        monkeypatch.setattr(protocol, "HIDDEN", protocol.HIDDEN | protocol.DEPRECATE_EOF)
    rule = proxy.on_commit(containing="SELECT 'in step'", action="withhold_ok")
    connection = connect(autocommit=True)
    cursor = connection.cursor()
    values = [(number, None if number % 3 else "é" * 50) for number in range(500)]
    cursor.executemany("INSERT INTO work VALUES (%s, %s)", [(n, s and s[:20]) for n, s in values])
    cursor.execute("SELECT id, state FROM work ORDER BY id")
    assert list(cursor.fetchall()) == [(n, s and s[:20]) for n, s in values]
    with pytest.raises(MySQLdb.ProgrammingError):
        cursor.execute("SELECT nothing FROM nowhere")
    cursor.execute("SELECT 1; SELECT 2, 3; UPDATE work SET state = 'x' WHERE id = 1; SELECT 4")
    results = [cursor.fetchall()]
    while cursor.nextset():
        results.append(cursor.fetchall())
    assert results == [((1,),), ((2, 3),), (), ((4,),)]
    cursor.execute("BEGIN")
    cursor.execute("SELECT 'in step'")
    assert cursor.fetchone() == ("in step",)
    with pytest.raises(MySQLdb.OperationalError, match=str(LOST)):
        connection.commit()
    assert rule.wait_fired().statements == ("SELECT 'in step'",)


def test_a_value_of_17_mib_passes_both_ways(mysql_server, direct, connect):
    direct.execute("SELECT @@GLOBAL.max_allowed_packet")
    (before,) = direct.fetchone()
    direct.execute("SET GLOBAL max_allowed_packet = %s", (64 * 1024 * 1024,))
    try:
        direct.execute("CREATE TABLE big (id INT PRIMARY KEY, data LONGBLOB)")
        connection, data = connect(), b"\x00'\\\xff" * (17 * 1024 * 1024 // 4)
        cursor = connection.cursor()
        cursor.execute("INSERT INTO big VALUES (1, %s)", (data,))
        connection.commit()
        cursor.execute("SELECT data, 7 FROM big")
        assert cursor.fetchall() == ((data, 7),)
    finally:
        direct.execute("SET GLOBAL max_allowed_packet = %s", (before,))


def test_a_local_file_passes_and_its_rows_are_no_commands(proxy, direct, connect, tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("".join(f"{number},COMMIT\n" for number in range(1000)))
    connection = connect(local_infile=1)
    cursor = connection.cursor()
    load = f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE work FIELDS TERMINATED BY ','"
    cursor.execute(load)
    connection.commit()
    direct.execute("SELECT COUNT(*) FROM work WHERE state = 'COMMIT'")
    assert direct.fetchone() == (1000,)
    assert [commit.statements[-1] for commit in proxy.commits] == [load]


def test_neither_tls_nor_compression_is_spoken(connect):
    cursor = connect(compress=True).cursor()
    cursor.execute("SHOW SESSION STATUS WHERE Variable_name IN ('Ssl_cipher', 'Compression')")
    assert dict(cursor.fetchall()) == {"Ssl_cipher": "", "Compression": "OFF"}


def test_every_commit_is_noted_with_its_statements(proxy, direct, connect):
    connection = connect()
    for number in (1, 2):
        connection.cursor().execute(f"INSERT INTO work VALUES ({number}, 'x')")
        connection.commit()
    noted = [(commit.statements[-1][:24], commit.outcome) for commit in proxy.commits]
    assert noted == [("INSERT INTO work VALUES ", "committed")] * 2
    assert proxy.commits[1].thread_id == connection.thread_id()
    assert proxy.prepared_statements == 0


def test_many_threads_commit_at_once_and_one_of_them_loses(proxy, direct, connect):
    rule = proxy.on_commit(containing=r"VALUES \(7, ", action="withhold_ok")
    lost = []

    def work(number):
        connection = connect()
        connection.cursor().execute("INSERT INTO work VALUES (%s, 'x')", (number,))
        try:
            connection.commit()
        except MySQLdb.OperationalError as error:
            lost.append((number, error.args[0]))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lost == [(7, LOST)]
    assert rule.fired_count == 1
    direct.execute("SELECT COUNT(*) FROM work")
    assert direct.fetchone() == (16,)
    assert [commit.outcome for commit in proxy.commits] == ["committed"] * 16


# --- outages ----------------------------------------------------------------------------------


def test_a_cut_ends_connections_and_welcomes_new_ones(proxy, direct, connect):
    connection = connect()
    connection.cursor().execute("INSERT INTO work VALUES (1, 'lost')")
    proxy.cut()
    assert proxy.connections == 0
    with pytest.raises(MySQLdb.OperationalError) as caught:
        connection.commit()
    assert caught.value.args[0] in (LOST, GONE)
    connect().cursor().execute("SELECT 1")
    direct.execute("SELECT COUNT(*) FROM work")
    assert direct.fetchone() == (0,)


def test_a_server_that_is_down_refuses_and_comes_back_on_its_port(proxy, direct, connect):
    connect()
    port = proxy.port
    proxy.down()
    with pytest.raises(MySQLdb.OperationalError) as caught:
        connect()
    assert caught.value.args[0] == REFUSED
    proxy.up()
    assert proxy.port == port
    connect().cursor().execute("SELECT 1")
    assert proxy.connections_total == 2


def test_stopping_frees_what_is_held(proxy, direct, connect):
    rule = proxy.on_commit(action="hold_request")
    connection = connect()
    connection.cursor().execute("INSERT INTO work VALUES (1, 'x')")
    codes = []

    def commit():
        try:
            connection.commit()
        except MySQLdb.OperationalError as error:
            codes.append(error.args[0])

    thread = threading.Thread(target=commit)
    thread.start()
    rule.wait_fired()
    proxy.stop()
    thread.join()
    assert codes == [LOST]
    rule.release()
    proxy.stop()
