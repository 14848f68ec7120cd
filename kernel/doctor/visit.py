"""One visit of the doctor: all checks, in the order in which a person would ask."""

import os
from collections.abc import Mapping

from django.db import DatabaseError, InterfaceError

from kernel import schema
from kernel.doctor.database import check_database
from kernel.doctor.findings import FAILURE, OK, Finding
from kernel.doctor.host import check_host, check_targets


def examine(
    *, environ: Mapping[str, str] = os.environ, headers: Mapping[str, str] | None = None
) -> list[Finding]:
    """Every finding about this installation; reads only, calls no provider.

    `headers` are those of the request that asks, if there is one. A database that does not answer
    is a finding, not an error.
    """
    return [*_of_database(environ), *check_host(environ=environ, headers=headers)]


def _of_database(environ: Mapping[str, str]) -> list[Finding]:
    try:
        found = check_database()
        if schema.state().ready:
            found += check_targets(environ=environ)
    except (DatabaseError, InterfaceError) as error:
        code = str(error.args[0])[:60] if error.args else type(error).__name__
        todo = "Check BAILING_DATABASE_URL, MYSQL_PASSWORD, and that the server runs."
        return [Finding("database.answers", FAILURE, f"no ({code})", todo)]
    return [Finding("database.answers", OK, "yes"), *found]
