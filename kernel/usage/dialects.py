"""Dialects: how each kind of provider counts, turned into the same disjoint units.

The shape of a usage object tells its dialect; the differences are in what contains what:

    chat        prompt_tokens contains cached, written and audio tokens; completion_tokens contains
                reasoning. xAI (cost_in_usd_ticks, num_sources_used) counts reasoning outside, which
                is believed only where total_tokens confirms it. Perplexity (citation_tokens) counts
                reasoning and citations outside.
    responses   input_tokens and output_tokens, with *_tokens_details; contains like chat
    messages    input_tokens excludes cache reads and cache writes (Anthropic)
    gemini      promptTokenCount contains cached tokens; thoughts and tool prompts are outside

A total is a check, never a source. Absent detail fields mean "not told apart", not zero cost: their
tokens stay in the parent unit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernel.conf import conf

TOLD_TOOLS = frozenset(  # web fetches are counted by their provider, but have no price of their own
    {"web_search_requests", "code_execution_requests", "web_fetch_requests"}
)
_GEMINI_MARKS = ("promptTokenCount", "candidatesTokenCount", "totalTokenCount")
_CACHE_MARKS = ("cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation")
_MODALITIES = {
    "TEXT": "",
    "AUDIO": "audio",
    "IMAGE": "image",
    "DOCUMENT": "image",
    "VIDEO": "video",
}

Meters = dict[str, int]


class Unusable(Exception):
    """A usage object that cannot be charged: a reason of metering.REASONS, and the field."""

    def __init__(self, reason: str, detail: str):
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Part:
    """A number that is contained in a parent number, and the unit it becomes."""

    unit: str
    count: int
    name: str


def meters_of(usage: dict[str, Any]) -> Meters:
    """A usage object -> disjoint meters. Raises Unusable."""
    _check_iterations(usage)
    if any(usage.get(mark) is not None for mark in _GEMINI_MARKS):
        meters = _gemini(usage)
    elif "prompt_tokens" in usage or "completion_tokens" in usage:
        meters = _chat(usage)
    elif "input_tokens" in usage or "output_tokens" in usage:
        meters = _messages(usage) if _speaks_messages(usage) else _responses(usage)
    else:
        raise Unusable("invalid_usage", "usage holds no token count of a known name")
    return {**meters, **_tools(usage)}


# --- the dialects -----------------------------------------------------------------------------


def _chat(usage: dict[str, Any]) -> Meters:
    told_in, told_out = _object(usage, "prompt_tokens_details"), "completion_tokens_details"
    prompt, completion = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    for name, same in (("input_tokens", prompt), ("output_tokens", completion)):
        if _optional(usage, name) not in (None, same):
            raise Unusable("ambiguous_usage", f"{name} is not what its chat twin says")
    cached = _cached_of_chat(usage, told_in)
    details = _object(usage, told_out)
    reasoning = _optional(details, "reasoning_tokens") or 0
    total = _optional(usage, "total_tokens")
    if "citation_tokens" in usage:
        outside = {
            "output_reasoning": _optional(usage, "reasoning_tokens") or 0,
            "output_citation": _optional(usage, "citation_tokens") or 0,
        }
        outputs = {"output": completion, **{u: n for u, n in outside.items() if n}}
    elif (
        ("num_sources_used" in usage or "cost_in_usd_ticks" in usage)
        and reasoning
        and total == prompt + completion + reasoning
    ):
        total = prompt + completion
        outputs = _outputs(completion, "completion_tokens", details, reasoning=0)
        outputs["output_reasoning"] = reasoning
    else:
        outputs = _outputs(completion, "completion_tokens", details, reasoning=reasoning)
        _check_loose_reasoning(usage, reasoning, confirmed=total == prompt + completion)
    _check_total("total_tokens", total, prompt + completion)
    return {**_inputs(prompt, "prompt_tokens", told_in, cached=cached), **outputs}


def _responses(usage: dict[str, Any]) -> Meters:
    told_in, told_out = (_object(usage, f"{way}_tokens_details") for way in ("input", "output"))
    given, made = _count(usage, "input_tokens"), _count(usage, "output_tokens")
    cached = _agreed(
        (told_in, ("cached_tokens", "cache_read_input_tokens")), (usage, ("cached_tokens",))
    )
    if any(_optional(usage, name) for name in _CACHE_MARKS[:2]):
        raise Unusable(
            "ambiguous_usage", "cache tokens are reported inside and beside input_tokens"
        )
    reasoning = _agreed((told_out, ("reasoning_tokens", "thinking_tokens")))
    _check_total("total_tokens", _optional(usage, "total_tokens"), given + made)
    return {
        **_inputs(given, "input_tokens", told_in, cached=cached),
        **_outputs(made, "output_tokens", told_out, reasoning=reasoning),
    }


def _messages(usage: dict[str, Any]) -> Meters:
    fresh, made = _count(usage, "input_tokens"), _count(usage, "output_tokens")
    read = _optional(usage, "cache_read_input_tokens") or 0
    written = _optional(usage, "cache_creation_input_tokens")
    lives = _object(usage, "cache_creation")
    short = _optional(lives, "ephemeral_5m_input_tokens")
    long = _optional(lives, "ephemeral_1h_input_tokens")
    if short is not None or long is not None:
        told = (short or 0) + (long or 0)
        if written is not None and written != told:
            raise Unusable(
                "inconsistent_usage",
                f"cache_creation adds up to {told}, cache_creation_input_tokens is {written}",
            )
        written = told
    details = _object(usage, "output_tokens_details")
    thinking = _agreed((details, ("thinking_tokens", "reasoning_tokens")))
    whole = fresh + read + (written or 0)
    total = _optional(usage, "total_tokens")
    if total != fresh + made:  # either reading of a total is a fair check
        _check_total("total_tokens", total, whole + made)
    hour = long or 0
    parts = {
        "input_cached": read,
        "input_cache_write": (written or 0) - hour,
        "input_cache_write_1h": hour,
    }
    return {
        "input": fresh,
        **{unit: count for unit, count in parts.items() if count},
        **_outputs(made, "output_tokens", details, reasoning=thinking),
    }


def _gemini(usage: dict[str, Any]) -> Meters:
    prompt = _count(usage, "promptTokenCount")
    thoughts = _optional(usage, "thoughtsTokenCount") or 0
    tools = _optional(usage, "toolUsePromptTokenCount") or 0
    cached = _optional(usage, "cachedContentTokenCount") or 0
    made = _optional(usage, "candidatesTokenCount")
    total = _optional(usage, "totalTokenCount")
    if made is None:  # zero is left out by this dialect; believed only where the total confirms it
        if total != prompt + thoughts + tools:
            raise Unusable("invalid_usage", "candidatesTokenCount is missing")
        made = 0
    _check_total("totalTokenCount", total, prompt + made + thoughts + tools)
    if cached > prompt:
        raise _more_than("cachedContentTokenCount", cached, "promptTokenCount", prompt)
    asked = _modalities(usage, "promptTokensDetails", prompt)
    reads = _modalities(usage, "cacheTokensDetails", cached)
    if cached and any(asked.values()) and not usage.get("cacheTokensDetails"):
        raise Unusable("ambiguous_usage", "cacheTokensDetails is missing: what was cached?")
    meters = {"input": prompt - cached - sum(asked.values()) + sum(reads.values()) + tools}
    for kind in ("audio", "image", "video"):
        meters[f"input_{kind}"] = asked[kind] - reads[kind]
        meters[f"input_cached_{kind}"] = reads[kind]
    meters["input_cached"] = cached - sum(reads.values())
    for kind, count in _modalities(usage, "toolUsePromptTokensDetails", tools).items():
        meters["input"] -= count
        meters[f"input_{kind}"] += count
    answers = _modalities(usage, "candidatesTokensDetails", made)
    meters["output"] = made - sum(answers.values())
    meters.update({f"output_{kind}": count for kind, count in answers.items()})
    meters["output_reasoning"] = thoughts
    for unit, count in meters.items():
        if count < 0:
            raise Unusable(
                "inconsistent_usage", f"the details of {unit} tokens contradict each other"
            )
    return {unit: n for unit, n in meters.items() if n or unit in ("input", "output")}


# --- shared pieces ----------------------------------------------------------------------------


def _speaks_messages(usage: dict[str, Any]) -> bool:
    inside = usage.get("input_tokens_details") is not None
    return not inside and any(mark in usage for mark in _CACHE_MARKS)


def _inputs(total: int, name: str, details: dict[str, Any], *, cached: int) -> Meters:
    told = f"{name}_details"
    written = _agreed((details, ("cache_write_tokens", "cache_creation_tokens")))
    other = {
        kind: _optional(details, f"{kind}_tokens") or 0 for kind in ("audio", "image", "video")
    }
    _optional(details, "text_tokens")
    hits = _object(details, "cached_tokens_details")
    reads = {kind: _optional(hits, f"{kind}_tokens") or 0 for kind in other}
    if cached and any(other.values()) and not hits:
        raise Unusable("ambiguous_usage", f"{told}: are the cached tokens text, or not?")
    parts = [
        Part("input_cached", cached - sum(reads.values()), f"{told}.cached_tokens"),
        Part("input_cache_write", written, f"{told}.cache_write_tokens"),
    ]
    for kind, count in other.items():
        parts.append(Part(f"input_{kind}", count - reads[kind], f"{told}.{kind}_tokens"))
        parts.append(Part(f"input_cached_{kind}", reads[kind], f"{told}.cached_tokens_details"))
    return _split("input", total, name, parts)


def _outputs(total: int, name: str, details: dict[str, Any], *, reasoning: int) -> Meters:
    told = f"{name}_details"
    parts = [Part("output_reasoning", reasoning, f"{told}.reasoning_tokens")]
    for kind in ("audio", "image", "video"):
        count = _optional(details, f"{kind}_tokens") or 0
        parts.append(Part(f"output_{kind}", count, f"{told}.{kind}_tokens"))
    for field in ("text_tokens", "accepted_prediction_tokens", "rejected_prediction_tokens"):
        _optional(details, field)
    return _split("output", total, name, parts)


def _split(rest_unit: str, total: int, name: str, parts: Sequence[Part]) -> Meters:
    """The parts of a total, each once, and what is left of it. No part is more than the whole."""
    for part in parts:
        if part.count > total:
            raise _more_than(part.name, part.count, name, total)
        if part.count < 0:
            raise Unusable("inconsistent_usage", f"{part.name} has more than its parent")
    left = total - sum(part.count for part in parts)
    if left < 0:
        raise Unusable("inconsistent_usage", f"the details of {name} are more than {total}")
    return {rest_unit: left, **{part.unit: part.count for part in parts if part.count}}


def _cached_of_chat(usage: dict[str, Any], details: dict[str, Any]) -> int:
    """Tokens read from a cache; every place that reports them must agree."""
    hit, miss = (_optional(usage, f"prompt_cache_{way}_tokens") for way in ("hit", "miss"))
    if hit is not None and miss is not None and hit + miss != _count(usage, "prompt_tokens"):
        raise Unusable("inconsistent_usage", "prompt_cache_hit and miss are not prompt_tokens")
    cached = _agreed(
        (details, ("cached_tokens", "cache_read_input_tokens")),
        (usage, ("cached_tokens", "prompt_cache_hit_tokens")),
    )
    for name, inside in (
        ("cache_read_input_tokens", cached),
        ("cache_creation_input_tokens", _agreed((details, ("cache_write_tokens",)))),
    ):
        beside = _optional(usage, name)
        if beside and beside != inside:
            raise Unusable("ambiguous_usage", f"{name}: inside prompt_tokens, or beside them?")
    return cached


def _check_loose_reasoning(usage: dict[str, Any], reasoning: int, *, confirmed: bool) -> None:
    loose = _optional(usage, "reasoning_tokens")
    if loose and loose != reasoning and not confirmed:
        raise Unusable("ambiguous_usage", "reasoning_tokens: inside completion_tokens, or beside?")


def _check_iterations(usage: dict[str, Any]) -> None:
    """Attempts on several models, or attempts that do not add up, fit no single price (G62)."""
    turns = usage.get("iterations")
    if turns is None or turns == []:
        return
    if type(turns) is not list or any(type(turn) is not dict for turn in turns):
        raise Unusable("invalid_usage", "iterations is not a list of objects")
    if len({model for turn in turns if type(model := turn.get("model")) is str}) > 1:
        raise Unusable("several_models", "iterations names several models")
    for name in ("input_tokens", "output_tokens", *_CACHE_MARKS[:2]):
        told = sum(_optional(turn, name) or 0 for turn in turns)
        if told != (_optional(usage, name) or 0):
            raise Unusable("inconsistent_usage", f"iterations add up to another {name}")


def _check_total(name: str, total: int | None, parts: int) -> None:
    """A total of null or 0 says nothing (G83); any other must match."""
    if total and total != parts:
        raise Unusable("inconsistent_usage", f"{name} is {total}, its parts add up to {parts}")


def _tools(usage: dict[str, Any]) -> Meters:
    uses = _object(usage, "server_tool_use")
    found = {
        "web_search_requests": _agreed(
            (usage, ("num_search_queries",)), (uses, ("web_search_requests",))
        ),
        "code_execution_requests": _optional(uses, "code_execution_requests") or 0,
        "other_tool_requests": sum(_optional(uses, x) or 0 for x in uses if x not in TOLD_TOOLS),
    }
    return {unit: count for unit, count in found.items() if count}


def _modalities(usage: dict[str, Any], name: str, total: int) -> dict[str, int]:
    """Audio, image and video tokens of a Gemini detail list; what is not listed counts as text."""
    found = {"audio": 0, "image": 0, "video": 0}
    rows = usage.get(name)
    if rows is None:
        return found
    if type(rows) is not list or any(type(row) is not dict for row in rows):
        raise Unusable("invalid_usage", f"{name} is not a list of objects")
    listed = 0
    for row in rows:
        count = _optional(row, "tokenCount") or 0
        name_of_kind = row.get("modality")
        kind = _MODALITIES.get(name_of_kind) if type(name_of_kind) is str else None
        if kind is None and count:
            raise Unusable("ambiguous_usage", f"{name} holds an unknown modality")
        if kind:
            found[kind] += count
        listed += count
    if listed > total:
        raise Unusable("inconsistent_usage", f"{name} adds up to {listed}, more than {total}")
    return found


def _agreed(*places: tuple[dict[str, Any], tuple[str, ...]]) -> int:
    """The one number that several fields report; 0 when none does. They must not differ."""
    counts = {
        n for fields, names in places for x in names if (n := _optional(fields, x)) is not None
    }
    if len(counts) > 1:
        raise Unusable("inconsistent_usage", f"{places[0][1][0]} is reported as {sorted(counts)}")
    return counts.pop() if counts else 0


def _object(fields: dict[str, Any], name: str) -> dict[str, Any]:
    value = fields.get(name)
    if value is None:
        return {}
    if type(value) is not dict:
        raise Unusable("invalid_usage", f"{name} is not an object")
    return value


def _count(fields: dict[str, Any], name: str) -> int:
    count = _optional(fields, name)
    if count is None:
        raise Unusable("invalid_usage", f"{name} is {'null' if name in fields else 'missing'}")
    return count


def _optional(fields: dict[str, Any], name: str) -> int | None:
    """A count, or None when it is absent or null. Anything but a plain whole number is Unusable."""
    value = fields.get(name)
    if value is None:
        return None
    if type(value) is not int:
        raise Unusable("invalid_usage", f"{name} is no whole number")
    if value < 0:
        raise Unusable("invalid_usage", f"{name} is negative")
    if value > conf.metered_count_max:
        raise Unusable("implausible_usage", f"{name} is more than {conf.metered_count_max}")
    return value


def _more_than(name: str, count: int, parent: str, total: int) -> Unusable:
    return Unusable("inconsistent_usage", f"{name} is {count}, more than {parent} {total}")
