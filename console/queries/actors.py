"""Who asked or acted, as people know them: a token by its name, never by its id alone."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from console.untrusted import to_html
from kernel.ids import is_id
from kernel.models import Token
from kernel.visible import visible

USER, TOKEN = "user", "token"
KINDS: dict[str, str | Promise] = {
    TOKEN: _("token"),
    "signature": _("signature"),
    "system": _("system"),
    "command": _("command line"),
    "timeout": _("timeout"),
}


@dataclass(frozen=True, slots=True)
class Who:
    """One actor: `id` as it is stored, `name` as people know it (both untrusted)."""

    kind: str
    id: str
    name: str

    @property
    def text(self) -> str:
        """'olga', 'checkout (token)'."""
        return f"{self.name} ({self.word})" if self.word else self.name

    @property
    def word(self) -> str:
        """The kind in words; '' for a person."""
        return "" if self.kind == USER else str(KINDS.get(self.kind, self.kind))

    @property
    def html(self) -> SafeString:
        """The name, the kind beside it, and in the title what is stored."""
        if not self.word:
            return self.name_html
        return format_html('{} <span class="faint">({})</span>', self.name_html, self.word)

    @property
    def name_html(self) -> SafeString:
        """The name alone, where the kind stands elsewhere; in the title what is stored."""
        if not self.name:
            return format_html('<span class="faint">{}</span>', _("nobody knows"))
        if not self.word:
            return to_html(self.name)
        stored, name = visible(self.id), to_html(self.name)
        return format_html('<span title="{}:{}">{}</span>', self.kind, stored, name)

    @property
    def token_id(self) -> str:
        """The id of a token whose name stands for it, '' for others."""
        return self.id if self.kind == TOKEN and self.name != self.id else ""


def who_of(texts: Iterable[str]) -> dict[str, Who]:
    """Who `<kind>:<id>` is, for each of `texts`. One query where a token is among them."""
    parts = {text: _parts(text) for text in texts}
    ids = {found for kind, found in parts.values() if kind == TOKEN and is_id(found)}
    tokens = Token.objects.filter(id__in=ids).values_list("id", "name") if ids else ()
    names = dict(tokens)
    return {
        text: Who(kind, found, names.get(found, found) if kind == TOKEN else found)
        for text, (kind, found) in parts.items()
    }


def _parts(text: str) -> tuple[str, str]:
    kind, colon, found = text.partition(":")
    return (kind, found) if colon else ("", text)


def one_who(kind: str, actor_id: str) -> Who | None:
    """Who this one is; None for nobody. At most one query."""
    if not actor_id:
        return None
    text = f"{kind}:{actor_id}"
    return who_of([text])[text]
