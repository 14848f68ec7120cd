"""docs/api.md: every line of shell in it is run as it stands, and succeeds."""

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from kernel.delivery.destinations import create_destination
from tests.api.agents import SECRET, ask, make_job, make_route, make_tool, policy, signing_accounts
from tests.api.conftest import Api
from tests.delivery.letters import dead
from tests.support.environment import PLAIN
from tests.support.product import OPERATOR, serving
from tests.support.tool_server import ToolServer

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


async def run(block: str, environ: dict[str, str]) -> dict[str, Any]:
    """The JSON that one block printed; a status of 400 or more ends curl with an error."""
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-eu",
        "-c",
        block,
        env=environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await process.communicate()
    assert process.returncode == 0, f"{block}\n{out.decode()}\n{error.decode()}"
    return json.loads(out)


async def test_every_documented_line_works_as_it_stands(
    desk: Api, tool_server: ToolServer, tmp_path: Path
) -> None:
    def rows() -> None:
        make_tool(url=tool_server.url + "/refund", policy_text=policy("auto"))
        make_route()
        make_route("exports", target="executor")
        make_job("export-1", route_id="exports", target="executor")
        create_destination(
            account_id="acme",
            destination_id="shop",
            channel="executor",
            address="shop",
            events=["message"],
            actor=OPERATOR,
        )

    await desk.look(rows)
    letter = await desk.look(dead)
    keys = signing_accounts()
    await desk.look(keys.__enter__)
    (tmp_path / ".curlrc").write_text("fail-with-body\nnoproxy = *\n")
    environ = {
        **{name: os.environ[name] for name in PLAIN if name in os.environ},
        "CURL_HOME": str(tmp_path),
        "TOKEN": desk.token,
        "DEAD_LETTER_ID": letter.id,
        "BAILING_WEBHOOK_SECRET": SECRET,
    }
    answers = []
    try:
        async with serving(desk.kernel) as environ["URL"]:
            for number, block in enumerate(BLOCKS):
                if "$APPROVAL_ID" in block:
                    name = f"question-{number}"
                    found = await desk.look(lambda name=name: ask(name)[0].id)
                    environ["APPROVAL_ID"] = found
                answer = await run(block, environ)
                answers.append(answer)
                claimed = (answer.get("jobs") or [{}])[0] if "claim" in block else {}
                environ["JOB_ID"] = (
                    claimed.get("job_id") or answer.get("job_id") or environ["JOB_ID"]
                )
                environ["FENCE"] = str(claimed.get("fence") or environ.get("FENCE", ""))
    finally:
        await desk.look(lambda: keys.__exit__(None, None, None))
    decided = [one for one in answers if one.get("decision") == "approved"]
    assert [one["decided_by_kind"] for one in decided] == ["token", "signature"]
    assert answers[-1]["state"] == "done"
    assert tool_server.count() == 1


@pytest.mark.parametrize("word", ["/v1/jobs", "/decision", "/executor/", "/resume", "/receipt"])
def test_the_page_shows_how_to_call(word: str) -> None:
    assert any(word in block for block in BLOCKS)
