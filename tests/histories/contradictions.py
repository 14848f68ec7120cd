"""What clients were answered over a whole history, compared with itself and with what is stored."""

from collections import defaultdict

from tests.support.history_told import ALLOWED
from tests.support.house import House


def contradictions(house: House) -> list[str]:
    """Each answer must still be possible in the state its operation ended in."""
    found = []
    by_operation = defaultdict(list)
    for operation, answer in house.answers:
        if answer.status and not answer.lost:
            by_operation[operation].append(answer)
    for operation, answers in by_operation.items():
        row = house.request(operation)
        state = row.get("result_state", "gone")
        for answer in answers:
            if answer.status == 200:
                if state != "complete":
                    found.append(f"{operation} was answered 200 and is {state}")
            elif state not in ALLOWED.get(answer.code, set()):
                found.append(f"{operation} was answered {answer.code} and is {state}")
        first = [answer for answer in answers if answer.status == 200 and not answer.replayed]
        if len(first) > 1:
            found.append(f"{operation} was answered {len(first)} times as if it were the first")
    return found
