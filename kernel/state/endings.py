"""The end of a job is told to who asked to know, by the transaction that ends it (F1)."""

from collections.abc import Sequence

from kernel import outbox
from kernel.models import Job
from kernel.state.protocol import JobRecord
from kernel.state.rows import storable
from kernel.transactions import requires_transaction

ERROR_CHARS_TOLD = 1000


@requires_transaction
def tell_ends_in_tx(
    jobs: Sequence[Job | JobRecord], *, state: str, error_code: str = "", error_text: str = ""
) -> None:
    """Publish `job.finished` for jobs that ended as `state` just now; `parked` is an end too.

    What a job came to is not in the message: the receiver reads the job. A job with a parent is
    part of its parent's story and tells nobody; so no message can ever cause another.
    """
    outbox.publish_all_in_tx(
        events=[
            outbox.Event(
                account_id=job.account_id,
                name=outbox.JOB_FINISHED,
                data={
                    "job_id": job.id,
                    "request_id": job.request_id,
                    "route_id": job.route_id,
                    "target": job.target,
                    "state": state,
                    "error_code": error_code,
                    "error_text": storable(error_text, chars_max=ERROR_CHARS_TOLD),
                },
                request_id=job.request_id,
                job_id=job.id,
            )
            for job in jobs
            if not job.parent_id
        ]
    )
