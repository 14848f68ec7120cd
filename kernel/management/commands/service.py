"""`manage.py service`: the provider routes that callers name as `model` (A12, L4)."""

import os
from typing import Any

from django.core.management.base import CommandError, CommandParser

from kernel import clock, usage
from kernel.management.base import KernelCommand, Options, actor, add_json, argument, shown
from kernel.management.prices import parse_price_name, price_words, sample_cost
from kernel.models import Service

CLEARS = "; '' clears it"
EXAMPLE = """\
Example:
  manage.py service add gpt-4o --base-url https://api.openai.com/v1 --model gpt-4o \\
    --api-key-env OPENAI_API_KEY --price openai/gpt-4o

The key stays in the environment of the running product; only the variable's name is stored."""


class Command(KernelCommand):
    help = "Services: the provider routes that callers name as `model`."

    def add_arguments(self, parser: CommandParser) -> None:
        acts = self.acts(parser)
        add = self.add_act(acts, "add", self._add, help="Add a service.", more=EXAMPLE)
        add.add_argument("id", help="what callers send as `model`")
        add.add_argument(
            "--base-url", required=True, metavar="URL", help="the provider's address, with /v1"
        )
        add.add_argument("--model", required=True, help="the model's name at the provider")
        _add_options(add, clears="")
        add.add_argument(
            "--allow-private",
            action="store_true",
            help="allow a loopback or private address (never a metadata address)",
        )
        listing = self.add_act(acts, "list", self._list, help="List services.")
        listing.add_argument("--account", metavar="ID", help="only those this account may use")
        add_json(listing)
        change = self.add_act(
            acts,
            "change",
            self._change,
            help="Change a service. What was admitted before keeps its price, and is not sent on"
            " the changed route: cancel it and submit it anew.",
        )
        change.add_argument("id", help="the service")
        change.add_argument("--base-url", metavar="URL", help="the provider's address, with /v1")
        change.add_argument("--model", help="the model's name at the provider")
        _add_options(change, clears=CLEARS)
        change.add_argument(
            "--allow-private", choices=("yes", "no"), help="allow a loopback or private address"
        )
        change.add_argument("--active", choices=("yes", "no"), help="'yes' brings it back")
        change.add_argument("--reason", default="", help="why, for the audit trail")
        retire = self.add_act(
            acts,
            "retire",
            self._retire,
            help="Take a service out of use; its requests and charges stay.",
        )
        retire.add_argument("id", help="the service")
        retire.add_argument("--reason", default="", help="why, for the audit trail")

    def _add(self, options: Options) -> None:
        row = usage.add_service(
            service_id=options["id"],
            actor=actor(),
            allow_private=options["allow_private"],
            **_fields(options),
        )
        self.say(f"Service {row.id} added.")
        self._describe(row)

    def _list(self, options: Options) -> None:
        rows = usage.list_services(account_id=options["account"])
        if options["json"]:
            self.document([_plain(row) for row in rows])
            return
        self.table(
            ("ID", "FOR", "BASE URL", "MODEL", "PRICE", "KEY FROM", "MAX OUTPUT", "STATE"),
            [
                (
                    row.id,
                    row.account_id or "every account",
                    row.base_url,
                    row.model,
                    _price_name(row),
                    row.api_key_env,
                    row.max_output_tokens,
                    "active" if row.active else "retired",
                )
                for row in rows
            ],
            none="No services. Add one: manage.py service add --help",
        )

    def _change(self, options: Options) -> None:
        fields = _fields(options)
        for name in ("allow_private", "active"):
            if options[name] is not None:
                fields[name] = options[name] == "yes"
        if not fields:
            raise CommandError("Say what to change: --base-url, --model, ... (see --help).")
        row = self._change_row(options, fields)
        self.say(f"Service {row.id} changed; it is at version {row.version}.")
        self._describe(row)

    def _retire(self, options: Options) -> None:
        if not usage.get_service(service_id=options["id"]).active:
            self.say(f"Service {options['id']} was retired before; nothing changed.")
            return
        row = self._change_row(options, {"active": False})
        self.say(
            f"Service {row.id} retired: new requests are refused, admitted ones can be cancelled."
            f" Back again: manage.py service change {row.id} --active yes"
        )

    def _change_row(self, options: Options, fields: dict[str, Any]) -> Service:
        now = usage.get_service(service_id=options["id"])
        return usage.change_service(
            service_id=now.id,
            version=now.version,
            actor=actor(),
            reason=options["reason"],
            **fields,
        )

    def _describe(self, row: Service) -> None:
        self.say(
            f"  sends to {row.base_url}/chat/completions as model {shown(row.model)}",
            f"  for {row.account_id or 'every account'}",
        )
        if row.api_key_env and not os.environ.get(row.api_key_env):
            self.say(
                f"  key: {row.api_key_env} is not set here; it must be set where the product runs"
            )
        if not row.price_provider:
            self.say("  price: none; only accounts that allow unpriced requests may use it")
            return
        found = usage.price_in_force(
            provider=row.price_provider, model=row.price_model, at=clock.now()
        )
        if found is not None:
            self.say(f"  price: {price_words(found)}; {sample_cost(found)}")
            return
        name = shown(_price_name(row))
        self.say(
            f"  price: nothing is known for {name} now; requests are refused until you add one:"
            f" manage.py price add {name} input=... output=..."
        )


def _add_options(parser: CommandParser, *, clears: str) -> None:
    parser.add_argument(
        "--api-key-env",
        metavar="NAME",
        help=f"the environment variable that holds the provider's key{clears}",
    )
    parser.add_argument(
        "--price",
        type=argument(_parse_price),
        metavar="PROVIDER/MODEL",
        help=f"the price, such as openai/gpt-4o (see manage.py price lookup){clears}",
    )
    parser.add_argument("--account", metavar="ID", help=f"for this account only{clears}")
    parser.add_argument(
        "--max-output-tokens",
        type=argument(_parse_limit),
        metavar="N",
        help="the output a capped account reserves where a request names no maximum; the"
        " provider is then told it (max_completion_tokens where the price is openai/... or"
        " azure/..., else max_tokens)" + ("; 0 clears it" if clears else ""),
    )


def _parse_price(text: str) -> tuple[str, str]:
    return parse_price_name(text) if text else ("", "")


def _parse_limit(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise ValueError(f"not a whole number: {text[:40]!r}")
    return int(text)


def _fields(options: Options) -> dict[str, Any]:
    """The fields that were given on the command line."""
    fields = {
        name: options[option]
        for option, name in (
            ("base_url", "base_url"),
            ("model", "model"),
            ("api_key_env", "api_key_env"),
            ("account", "account_id"),
        )
        if options[option] is not None
    }
    if options["price"] is not None:
        fields["price_provider"], fields["price_model"] = options["price"]
    if options["max_output_tokens"] is not None:
        fields["max_output_tokens"] = options["max_output_tokens"] or None
    return fields


def _price_name(row: Service) -> str:
    return f"{row.price_provider}/{row.price_model}" if row.price_provider else ""


def _plain(row: Service) -> dict[str, Any]:
    return {
        "service_id": row.id,
        "account_id": row.account_id or None,
        "base_url": row.base_url,
        "model": row.model,
        "price": _price_name(row) or None,
        "api_key_env": row.api_key_env or None,
        "max_output_tokens": row.max_output_tokens,
        "allow_private": row.allow_private,
        "active": row.active,
        "version": row.version,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }
