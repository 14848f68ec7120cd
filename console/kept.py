"""What a person typed survives a refused POST: the texts of the form, shown again for copying."""

from dataclasses import dataclass

from django.http import HttpRequest, RawPostDataException, UnreadablePostError

# Never shown again: tokens of ours, proofs of who it is, and anything secret.
_HIDDEN_NAMES = frozenset(
    {"csrfmiddlewaretoken", "form_key", "version", "next"}
    | {"code", "step_up_code", "credential", "step_up_credential"}
)
_SECRET_PARTS = ("password", "secret", "token", "key")
TEXTS_MAX = 20
CHARS_MAX = 20_000


@dataclass(frozen=True, slots=True)
class KeptText:
    """One typed field."""

    name: str
    text: str


def kept_texts(request: HttpRequest) -> list[KeptText]:
    """The typed texts of a same-origin POST, longest last; empty for anybody else's form.

    A foreign page must not be able to put its words on ours.
    """
    if not is_same_origin(request):
        return []
    try:
        fields = [(name, value) for name in request.POST for value in request.POST.getlist(name)]
    except (UnreadablePostError, RawPostDataException):
        return []
    kept = [
        KeptText(name, value[:CHARS_MAX])
        for name, value in fields
        if value.strip() and name not in _HIDDEN_NAMES and not is_secret(name)
    ]
    return kept[:TEXTS_MAX]


def is_secret(name: str) -> bool:
    """True for a field that no page may show again, not even hidden."""
    return any(part in name.lower() for part in _SECRET_PARTS)


def is_same_origin(request: HttpRequest) -> bool:
    """True when the browser says that a page of this host sent the request."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None and site not in ("same-origin", "none"):
        return False
    here = f"{request.scheme}://{request.get_host()}"
    origin = request.headers.get("Origin")
    if origin is not None and origin != "null":
        return origin == here
    return request.headers.get("Referer", "").startswith(f"{here}/")
