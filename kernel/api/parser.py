"""How the JSON door reads a body: bounded, and every key once."""

import json
from typing import Any

from django.http import HttpRequest
from ninja.parser import Parser

from kernel.errors import InvalidInput
from kernel.usage.submissions import check_values


class StrictParser(Parser):
    """Refuses a body of too many values before it is decoded on the event loop, and double keys.

    Of two values under one key, another reader of the same signed bytes may take the other one.
    """

    def parse_body(self, request: HttpRequest) -> Any:
        check_values(request.body)
        return json.loads(request.body, object_pairs_hook=_without_doubles)


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        double = next(key for n, (key, _) in enumerate(pairs) if key in dict(pairs[:n]))
        raise InvalidInput(f"{double[:64]} is given twice", field=double[:64])
    return found
