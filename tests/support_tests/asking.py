"""Calls to the test provider, as its own tests make them."""

import json
import threading

import httpx

MESSAGES = [{"role": "user", "content": "hi"}]


def ask(provider, marker, *, stream=False, model="m", timeout=10.0, **more):
    body = {"model": model, "user": marker, "messages": MESSAGES, "stream": stream, **more}
    return httpx.post(f"{provider.base_url}/chat/completions", json=body, timeout=timeout)


def ask_in_thread(provider, marker, **keywords):
    box = {}

    def run():
        try:
            box["answer"] = ask(provider, marker, **keywords)
        except httpx.HTTPError as error:
            box["error"] = error

    thread = threading.Thread(target=run)
    thread.start()
    return thread, box


def data(answer) -> list:
    lines = [line for line in answer.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line[6:]) if line != "data: [DONE]" else "[DONE]" for line in lines]


def usages(answer) -> list:
    return [e["usage"] for e in data(answer) if isinstance(e, dict) and "usage" in e]
