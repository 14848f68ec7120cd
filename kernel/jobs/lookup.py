"""Jobs as lists, newest first, page by page; the store answers for one job (L1)."""

from datetime import datetime

from django.db.models import Q

from kernel.models import Job
from kernel.transactions import reading

BODIES = ("input_text", "result_text")


@reading
def list_jobs(
    *,
    limit: int,
    account_id: str = "",
    state: str = "",
    before: tuple[datetime, str] | None = None,
) -> list[Job]:
    """Up to `limit` jobs, the last changed first, without their input and result.

    `before` is (updated_at, id) of the last row of the page before. Ids come from the index alone,
    then the rows by id. Without an account: by id, which is by age, and `before` counts by its id.
    """
    rows = Job.objects.all()
    if state:
        rows = rows.filter(state=state)
    if account_id:
        rows = rows.filter(account_id=account_id)
    if before is not None:
        at, last = before
        # The row-tuple form would scan the whole index.
        older = Q(updated_at__lte=at) & (Q(updated_at__lt=at) | Q(id__lt=last))
        rows = rows.filter(older if account_id else Q(id__lt=last))
    order = ("-updated_at", "-id") if account_id else ("-id",)
    ids = list(rows.order_by(*order).values_list("id", flat=True)[:limit])
    found = {row.id: row for row in Job.objects.filter(id__in=ids).defer(*BODIES)}
    return [found[job_id] for job_id in ids]
