"""Plain words for what the kernel names by code."""

from django.utils.translation import gettext as _

from kernel.models import PassStatus


def pass_text(row: PassStatus) -> str:
    """One line about a pass: what its last run did."""
    if row.error_code:
        return _("The database failed (%(code)s); it waits and tries again.") % {
            "code": row.error_code
        }
    return _("%(scanned)s looked at, %(settled)s done in the last run") % {
        "scanned": f"{row.pass_scanned:,}",
        "settled": f"{row.pass_settled:,}",
    }
