"""Tool call rows: their ids, how they are read, locked and moved by compare-and-set (D3)."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from kernel import clock, sql
from kernel.errors import LostRace, NotFound
from kernel.models import Tool, ToolCall
from kernel.states import TOOL_CALL, CallState
from kernel.transactions import reading, requires_transaction

# A call without a job that has no answer this long after its tool's deadline lost its process.
ANSWER_SECONDS = 30


def id_of(*, job_id: str, step: int, index: int) -> str:
    """The id of a call: where in the job the model asked for it."""
    return f"{job_id}.{step}.{index}"


@reading
def calls_of_step(*, job_id: str, step: int) -> list[ToolCall]:
    """The calls of one step, in the model's order."""
    return _in_order(sql.rows(ToolCall, {"job_id": job_id, "step": step}))


@reading
def calls_left_dispatching(*, job_id: str) -> list[ToolCall]:
    """The job's calls that were sent and have no answer; with no run alive they are uncertain."""
    return _in_order(ToolCall.objects.filter(job_id=job_id, state=CallState.DISPATCHING))


def _in_order(rows: Iterable[ToolCall]) -> list[ToolCall]:
    return sorted(rows, key=lambda row: (row.step, int(row.id.rpartition(".")[2])))


@reading
def deadlines_of(tool_ids: Iterable[str]) -> dict[str, int]:
    """The deadlines of tools now, in seconds."""
    rows = Tool.objects.filter(id__in=set(tool_ids))
    return dict(rows.values_list("id", "deadline_seconds"))


def is_lost(call: ToolCall, *, deadline_seconds: int, now: datetime) -> bool:
    """Whether nobody waits any more for the answer of a sent call that no job owns (C9, D3).

    Its process wrote down why, or took longer than the tool's deadline allows.
    """
    allowed = timedelta(seconds=deadline_seconds + ANSWER_SECONDS)
    return bool(call.error_code) or now > call.updated_at + allowed


def is_plain_read(call: ToolCall, tool: Tool | None) -> bool:
    """Only the very tool that was called can say that calling it again does no harm."""
    return tool is not None and not tool.side_effect and tool.version == call.tool_version


@requires_transaction
def locked_in_tx(call_id: str) -> ToolCall:
    """The call's row, locked. NotFound."""
    found = sql.rows(ToolCall, {"id": call_id}, lock=sql.WAIT)
    if not found:
        raise NotFound(f"no tool call {call_id}")
    return found[0]


@requires_transaction
def move_in_tx(row: ToolCall, state: str, *, by: str, **values: object) -> datetime:
    """Move a call that is still in the state it was read in, through a verb that may. LostRace.

    Returns when, by the database's clock.
    """
    now = clock.db_now()
    ended = state in (CallState.DONE, CallState.FAILED)
    moved = 0
    if row.state in TOOL_CALL.moves_to(state, by=by):
        moved = sql.update_where_in_tx(
            ToolCall,
            {"state": state, "finished_at": now if ended else None, "updated_at": now, **values},
            "id = %s AND state = %s",
            [row.id, row.state],
        )
    if moved != 1:
        raise LostRace(f"call {row.id} is {row.state} now", state=row.state)
    return now
