"""Metering: what a provider says it used, as disjoint units, or why that cannot be charged.

Pure. Each token is counted in exactly one unit. Nothing is invented, clamped or estimated: what is
missing, of the wrong type or contradictory becomes a reason, and the raw text is kept (A11).
"""

import json
import re
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from kernel.conf import conf
from kernel.usage import json_text
from kernel.usage.dialects import Unusable, meters_of
from kernel.usage.json_text import Member, NotAnInteger, clean, decode_object, members
from kernel.usage.units import UNITS

REASONS: dict[str, str] = {
    "no_usage": "The provider reported no usage.",
    "invalid_usage": "A reported field is missing, or is no whole number of at least 0.",
    "inconsistent_usage": "The reported numbers contradict each other.",
    "ambiguous_usage": "The report can be read in two ways that cost differently.",
    "implausible_usage": "A number or the report itself is larger than can be true.",
    "several_models": "The report covers several models; one price does not fit.",
    "partial_usage": "The last report came before the end of the answer.",
    "unreadable_usage": "A part of the answer that could hold the report cannot be read.",
}
DETAIL_CHARS_MAX = 300
NAME_CHARS_MAX = 200
_COST = re.compile(r"[0-9]{1,12}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?")


@dataclass(frozen=True, slots=True)
class Metering:
    """What one generation used. `reason` set = not to be charged; `detail` names the field.

    `meters` maps units (see UNITS) to counts; input and output are always there when usage was
    read, other units only above 0. `reported_cost_usd`: the provider's figure, never a charge.
    """

    meters: dict[str, int]
    raw_text: str = ""
    reason: str | None = None
    detail: str = ""
    service_tier: str | None = None
    reported_cost_usd: str | None = None

    @property
    def input_tokens(self) -> int:
        """All input tokens, cached and written ones included."""
        return sum(count for unit, count in self.meters.items() if unit.startswith("input"))

    @property
    def output_tokens(self) -> int:
        """All output tokens, reasoning included."""
        return sum(count for unit, count in self.meters.items() if unit.startswith("output"))

    def refused(self, reason: str, detail: str) -> "Metering":
        """The same report, kept as evidence, with a reason not to charge it."""
        return replace(self, reason=reason, detail=detail[:DETAIL_CHARS_MAX])

    def to_text(self) -> str:
        """One JSON text for the request row: meters, reason and the raw usage as received."""
        values = {
            "meters": self.meters,
            "raw": self.raw_text,
            "reason": self.reason,
            "detail": self.detail,
            "service_tier": self.service_tier,
            "reported_cost_usd": self.reported_cost_usd,
        }
        kept = {key: value for key, value in values.items() if value not in (None, "")}
        return json.dumps(kept, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> "Metering":
        """The inverse of to_text. ValueError for a text that is no saved metering."""
        values = json.loads(text)
        if type(values) is not dict or type(values.get("meters")) is not dict:
            raise ValueError("not a saved metering")
        meters = values["meters"]
        for unit, count in meters.items():
            if unit not in UNITS or type(count) is not int or count < 0:
                raise ValueError(f"not a saved meter: {unit[:40]}")
        texts = ("raw", "reason", "detail", "service_tier", "reported_cost_usd")
        given = [values.get(name) for name in texts]
        if any(value is not None and type(value) is not str for value in given):
            raise ValueError("not a saved metering")
        raw, reason, detail, tier, cost = given
        return cls(meters, raw or "", reason, detail or "", tier, cost)


@dataclass(frozen=True, slots=True)
class BodyFacts:
    """What a plain JSON answer says of itself. `error` is the text of a top-level error, if any."""

    metering: Metering
    readable: bool
    provider_request_id: str = ""
    model: str = ""
    error: str | None = None


def no_usage(detail: str = "the answer holds no usage") -> Metering:
    """The metering of an answer that reports none."""
    return Metering({}, reason="no_usage", detail=detail)


def read_usage(raw: object, *, service_tier: object = None) -> Metering:
    """A decoded usage object of any known provider -> Metering. Never raises (A11).

    `service_tier` is what the answer says beside its usage; a tier inside the usage wins.
    """
    if raw is None:
        return no_usage()
    return _read(raw, text=json_text.dump(raw), service_tier=service_tier)


def read_usage_text(text: str, *, service_tier: object = None) -> Metering:
    """The exact JSON text of a usage object -> Metering; finds repeated keys too. Never raises."""
    size = len(text.encode("utf-8", "replace"))
    if size > conf.metering_bytes_max:
        detail = f"usage has {size} bytes, more than {conf.metering_bytes_max}"
        return Metering({}, _kept(text), "implausible_usage", detail)
    try:
        raw = json_text.exact(text)
    except ValueError as error:
        what = str(error)
        if what == json_text.TOO_LONG:
            return Metering({}, _kept(text), "implausible_usage", f"usage holds {what}")
        what = what if what == json_text.DUPLICATE else "invalid JSON"
        return Metering({}, _kept(text), "invalid_usage", f"usage holds {what}")
    return no_usage() if raw is None else _read(raw, text=text, service_tier=service_tier)


def _read(raw: object, *, text: str, service_tier: object) -> Metering:
    kept = _kept(text)
    try:
        if type(raw) is not dict:
            raise Unusable("invalid_usage", f"usage is not an object but {_kind(raw)}")
        tier = _tier(raw, service_tier)
        cost = _reported_cost(raw)
        if len(text) > conf.metering_bytes_max:
            raise Unusable("implausible_usage", f"usage has {len(text)} bytes")
        return Metering(meters_of(raw), kept, None, "", tier, cost)
    except Unusable as error:
        return Metering({}, kept, error.reason, clean(error.detail, limit=DETAIL_CHARS_MAX))


def facts_of_body(body: bytes) -> BodyFacts:
    """Reads a plain (not streamed) JSON answer once: metering, id, model, error. Never raises.

    An unreadable body gives `no_usage`. Bodies of several MiB belong on a thread.
    """
    try:
        envelope = open_envelope(body.decode("utf-8", "replace"))
    except ValueError as error:
        return BodyFacts(no_usage(f"the answer cannot be read: {error}"), readable=False)
    return BodyFacts(
        metering=envelope.metering(),
        readable=True,
        provider_request_id=envelope.provider_request_id,
        model=envelope.model,
        error=envelope.error,
    )


@dataclass(slots=True)
class Envelope:
    """The parts of a JSON answer, or of one stream event, that tell about its generation."""

    fields: dict[str, Any]
    usage_text: str | None = None
    usage: Any = None
    repeated_usage: bool = False
    service_tier: object = None
    provider_request_id: str = ""
    model: str = ""
    error: str | None = None

    def metering(self) -> Metering:
        """The metering of this answer alone."""
        if self.usage_text is None:
            return no_usage()
        found = read_usage_text(self.usage_text, service_tier=self.service_tier)
        if self.repeated_usage:
            return found.refused("invalid_usage", "the answer reports usage twice")
        return found


def open_envelope(text: str) -> Envelope:
    """JSON text -> Envelope; looks at the top level, into `response` and `message`. ValueError."""
    tells_usage = '"usage' in text
    top = members(text) if tells_usage else []
    fields = {member.key: member.value for member in top} if tells_usage else decode_object(text)
    found = Envelope(fields)
    _look_into(found, fields)
    for key in ("response", "message"):
        if type(fields.get(key)) is dict:
            _look_into(found, fields[key])
    _find_usage(found, top, text)
    for member in top:
        if member.key in ("response", "message") and type(member.value) is dict:
            inner = text[member.start : member.end]
            _find_usage(found, members(inner), inner)
    return found


def _find_usage(found: Envelope, level: list[Member], text: str) -> None:
    for member in level:
        if member.key in ("usage", "usageMetadata") and member.value is not None:
            told = text[member.start : member.end]
            found.repeated_usage |= found.usage_text not in (None, told)
            found.usage_text, found.usage = told, member.value


def _look_into(found: Envelope, fields: dict[str, Any]) -> None:
    tier, error = fields.get("service_tier"), fields.get("error")
    if tier is not None:
        found.service_tier = tier
    if error:
        found.error = error_text(error)
    name = fields.get("id") or fields.get("responseId")
    if name and type(name) is str:
        found.provider_request_id = clean(name, limit=NAME_CHARS_MAX)
    model = fields.get("model") or fields.get("modelVersion")
    if model and type(model) is str:
        found.model = clean(model, limit=NAME_CHARS_MAX)


def error_text(value: object) -> str:
    """A provider's error, of whatever shape, as one short text."""
    if type(value) is dict:
        for key in ("message", "type", "code"):
            if type(value.get(key)) is str and value[key]:
                return clean(value[key], limit=DETAIL_CHARS_MAX)
    text = value if type(value) is str else json_text.dump(value)
    return clean(text, limit=DETAIL_CHARS_MAX) or "error"


def _tier(raw: dict[str, Any], outer: object) -> str | None:
    """The tier that served the request: `speed` other than standard, else the tier named."""
    for name, value in (("speed", raw.get("speed")), ("service_tier", raw.get("service_tier"))):
        if value is not None and type(value) is not str:
            raise Unusable("invalid_usage", f"{name} is not a text but {_kind(value)}")
        if value and (name == "service_tier" or value != "standard"):
            return clean(value, limit=40)
    if outer is not None and type(outer) is not str:
        raise Unusable("invalid_usage", f"service_tier is not a text but {_kind(outer)}")
    return clean(outer, limit=40) if outer else None


def _reported_cost(raw: dict[str, Any]) -> str | None:
    """The provider's own cost in USD as it was written, when it has a known shape (G76)."""
    value = raw.get("cost")
    if type(value) is dict:
        value = value.get("total_cost")
    ticks = raw.get("cost_in_usd_ticks")  # xAI: 10^-10 USD
    if value is None and type(ticks) is int and 0 <= ticks < 10**18:
        return f"{Decimal(ticks).scaleb(-10).normalize():f}"
    if type(value) is float or (type(value) is int and abs(value) < 10**12):
        value = repr(value)
    return str(value) if isinstance(value, str) and _COST.fullmatch(value) else None


def _kept(text: str) -> str:
    """The raw text as a row can hold it: storable characters, at most conf.metering_bytes_max."""
    whole = clean(text, limit=conf.metering_bytes_max).encode()
    return whole[: conf.metering_bytes_max].decode("utf-8", "ignore")


def _kind(value: object) -> str:
    if isinstance(value, NotAnInteger):
        return "a number"
    names = {str: "a text", list: "a list", bool: "true or false", dict: "an object"}
    return names.get(type(value), "a number")
