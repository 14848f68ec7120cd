"""Waiting jobs are found by an index, in its order, whatever else the table holds (D2, D3)."""

from django.db import connection
from django.test.utils import CaptureQueriesContext

from kernel import clock
from kernel.jobs.recovery import _waiting


def test_a_page_of_waiting_jobs_is_served_by_one_index_without_sorting(kernel_db: None) -> None:
    with CaptureQueriesContext(connection) as seen:
        _waiting(after=None, limit=2000)
        _waiting(after=(clock.now(), "job_1"), limit=2000)
    statements = [one["sql"] for one in seen.captured_queries if "bz_jobs" in one["sql"]]
    assert len(statements) == 2
    for statement in statements:
        sql = statement.partition(" = ")[2] if statement.startswith("QUERY = ") else statement
        with connection.cursor() as cursor:
            if connection.vendor == "mysql":
                cursor.execute(f"EXPLAIN {sql}")
                names = [column[0] for column in cursor.description]
                (row,) = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
                assert str(row["key"]).startswith("bz_job_"), row
                assert "filesort" not in (row["Extra"] or ""), row
            else:
                cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
                plan = " ".join(str(row[-1]) for row in cursor.fetchall())
                assert "bz_job_due" in plan, plan
                assert "TEMP B-TREE" not in plan, plan
