"""What a database session must be like for the verbs to keep their promises, asked at each start.

Each connection sets this itself (console/database.py). A server or a proxy in between may override
it, and then text is cut, times move, or a guarded write looks at a snapshot that is over.
"""

from django.db import connection

from kernel.errors import Unavailable
from kernel.transactions import reading

TEXT, ZONES = "utf8mb4", ("+00:00", "UTC")
# What says "texts are Unicode": how they are sent, how they are read, how they come back.
CHARSETS = ("character_set_client", "character_set_connection", "character_set_results")
LEVELS = ("transaction_isolation", "tx_isolation")  # MySQL, MariaDB
ASKED = (*CHARSETS, *LEVELS, "sql_mode", "time_zone")


@reading
def check_session() -> None:
    """Nothing on SQLite. Unavailable `database_session` names what is not as it must be."""
    if connection.vendor != "mysql":
        return
    with connection.cursor() as cursor:
        names = ", ".join(["%s"] * len(ASKED))
        cursor.execute(f"SHOW SESSION VARIABLES WHERE Variable_name IN ({names})", ASKED)
        found = {name: str(value) for name, value in cursor.fetchall()}
    wrong = [name for name in CHARSETS if found.get(name) != TEXT]
    wrong += [name for name in LEVELS if found.get(name, "READ-COMMITTED") != "READ-COMMITTED"]
    wrong += ["sql_mode"] if "STRICT_" not in found.get("sql_mode", "") else []
    wrong += ["time_zone"] if found.get("time_zone") not in ZONES else []
    if wrong:
        shown = ", ".join(f"{name}={found.get(name)}" for name in wrong)
        raise Unavailable(
            f"The database overrides what each session asks for: {shown}.",
            code="database_session",
            next_action="Remove init_connect and skip-character-set-client-handshake from the"
            " server, or what is in between; manage.py doctor shows each setting.",
        )
