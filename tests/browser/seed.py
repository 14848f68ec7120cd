"""Rows for the browser tests, made in a child process on the console's database.

python -m tests.browser.seed SETTLED_ROWS UNKNOWNS
"""

import json
import sys

import django


def main(settled_rows: int, unknowns: int) -> int:
    """A busy day; with `unknowns`, that many more of them and hostile texts. Prints ids by kind."""
    from kernel.state.pauses import pause
    from tests.support import console_data, delivery_data, lives, work_data

    made = console_data.busy_day(settled_rows=settled_rows)
    made |= {f"ask_{kind}": one for kind, one in work_data.busy_desk().items()}
    made |= {f"post_{kind}": one for kind, one in delivery_data.busy_post().items()}
    for kind, amount in (("by_keys", 71), ("by_form", 72)):
        (made[kind],) = work_data.refund(f"order-{kind}", amount).approval_ids
    # The console's own worker must leave these jobs as they were made.
    pause(scope="route:refunds", reason="Stock-taking until 14:00.", actor=work_data.OLGA)
    if unknowns:
        made |= console_data.hostile()
    for number in range(unknowns):
        fence = lives.dispatched(f"lost-{number}", account="acme-prod", service="gpt-main")
        console_data.lose(fence)
        made[f"lost_{number}"] = fence.request_id
    print(json.dumps(made))
    return 0


if __name__ == "__main__":
    django.setup()
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
