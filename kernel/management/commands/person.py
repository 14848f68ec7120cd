"""`manage.py person`: add, list and change the people of the console and their roles (L2, L4)."""

import secrets
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser

from kernel import access
from kernel.access.people import role_of
from kernel.management.base import KernelCommand, Options, actor, add_json, shown

PASSWORD_BYTES = 15  # 120 random bits, 20 characters
ROLES_HELP = "Roles:\n" + "\n".join(f"  {name:<9} {about}" for name, about in access.ROLES.items())


class Command(KernelCommand):
    help = "People who sign in to the console, and their roles."

    def add_arguments(self, parser: CommandParser) -> None:
        acts = self.acts(parser)
        add = self.add_act(
            acts, "add", self._add, help="Add a person; prints a password once.", more=ROLES_HELP
        )
        add.add_argument("name", help="the name to sign in with")
        add.add_argument("--role", required=True, choices=tuple(access.ROLES), help="see below")
        add_json(add)
        listing = self.add_act(acts, "list", self._list, help="List people and their roles.")
        add_json(listing)
        change = self.add_act(
            acts, "change", self._change, help="Change a role, access or password.", more=ROLES_HELP
        )
        change.add_argument("name", help="the name they sign in with")
        change.add_argument("--role", choices=tuple(access.ROLES), help="see below")
        change.add_argument("--active", choices=("yes", "no"), help="'no' closes their access")
        change.add_argument(
            "--new-password",
            action="store_true",
            help="replace a lost password by a fresh one, printed once; ends their sign-ins",
        )
        change.add_argument("--reason", default="", help="why, for the audit trail")
        add_json(change)
        reset = self.add_act(
            acts,
            "reset-factors",
            self._reset_factors,
            help="Remove all second factors of somebody who lost them; ends their sign-ins.",
        )
        reset.add_argument("name", help="the name they sign in with")
        reset.add_argument("--reason", default="", help="why, for the audit trail")
        add_json(reset)

    def _add(self, options: Options) -> None:
        password = secrets.token_urlsafe(PASSWORD_BYTES)
        user = access.add_person(
            name=options["name"], role=options["role"], password=password, actor=actor()
        )
        if options["json"]:
            self.document({**_plain(user), "password": password})
            return
        self.say(f"Added {shown(user.username)} as {options['role']}.")
        self._show_once(password)

    def _list(self, options: Options) -> None:
        people = access.list_people()
        proving = access.people_with_factors(user_ids=[user.pk for user in people])
        if options["json"]:
            rows = [_plain(user) | {"second_factor": user.pk in proving} for user in people]
            self.document(rows)
            return
        self.table(
            ("NAME", "ROLE", "STATE", "FACTOR", "LAST SIGN-IN", "SINCE"),
            [
                (
                    user.username,
                    role_of(user),
                    "active" if user.is_active else "closed",
                    "yes" if user.pk in proving else "no",
                    user.last_login,
                    user.date_joined,
                )
                for user in people
            ],
            none="No people. `standalone` makes the user admin; add others: manage.py person add",
        )

    def _change(self, options: Options) -> None:
        password = secrets.token_urlsafe(PASSWORD_BYTES) if options["new_password"] else None
        active = None if options["active"] is None else options["active"] == "yes"
        if password is None and active is None and options["role"] is None:
            raise CommandError("Say what to change: --role, --active or --new-password.")
        user = access.change_person(
            name=options["name"],
            actor=actor(),
            role=options["role"],
            active=active,
            password=password,
            reason=options["reason"],
        )
        if options["json"]:
            self.document(_plain(user) | ({"password": password} if password else {}))
            return
        state = "active" if user.is_active else "closed"
        self.say(f"{shown(user.username)} is {role_of(user) or 'without a role'} and {state}.")
        if password:
            self._show_once(password)

    def _reset_factors(self, options: Options) -> None:
        removed = access.reset_factors(
            name=options["name"], actor=actor(), reason=options["reason"]
        )
        if options["json"]:
            self.document({"name": options["name"], "removed": removed})
            return
        self.say(f"Removed {removed} second factors of {shown(options['name'])}; signed them out.")

    def _show_once(self, password: str) -> None:
        self.say(
            "",
            f"  {password}",
            "",
            "This is the only time the password is shown; only a hash of it is stored.",
        )


def _plain(user: User) -> dict[str, Any]:
    return {
        "name": user.username,
        "role": role_of(user) or None,
        "active": user.is_active,
        "last_sign_in_at": user.last_login,
        "created_at": user.date_joined,
    }
