"""Signing in with OpenID Connect: an identity that its person linked, found by its exact subject.

Nothing is matched by name or mail, and nobody is made: a stranger's identity opens nothing. Exists
only where BAILING_OIDC_URL is set.
"""

from importlib import import_module
from typing import Any

from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount import providers
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter, get_adapter
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST, require_safe

from console.access import local_path, needs
from console.acting import actor_of
from console.oidc_settings import PROVIDER
from console.responses import see_other
from console.step_up import step_up
from console.throttle import sso_wait_seconds, wait_text
from kernel import access
from kernel.errors import KernelError


class IdentityAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]  # allauth is untyped
    """Links and finds identities by our verbs; allauth itself writes no row."""

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        return False

    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        """The provider vouched for an identity. Only a linked one goes on to sign in."""
        if sociallogin.state.get("process") == "connect" and is_exact(sociallogin.account):
            raise ImmediateHttpResponse(_link(request, sociallogin.account))
        if not (sociallogin.is_existing and is_exact(sociallogin.account)):
            raise ImmediateHttpResponse(_unknown(request))

    def on_authentication_error(
        self,
        request: HttpRequest,
        provider: Any,
        error: Any = None,
        exception: Any = None,
        extra_context: Any = None,
    ) -> None:
        raise ImmediateHttpResponse(_failed(request))

    def get_requests_session(self) -> Any:
        """Follows no redirect and no proxy of the environment (E6)."""
        session = super().get_requests_session()
        session.trust_env = False
        session.max_redirects = 0
        return session


def is_exact(account: Any) -> bool:
    """Whether the stored subject is, letter by letter, what the provider just said.

    MySQL finds `ABC` where `abc` is asked for; two subjects in one answer are none.
    """
    said = account.extra_data
    subjects = {str(claims["sub"]) for claims in said.values() if "sub" in claims}
    return subjects == {account.uid}


def _link(request: HttpRequest, account: Any) -> HttpResponse:
    if not request.user.is_authenticated:
        return redirect("sign-in")
    try:
        access.link_identity(
            user=request.user, provider=account.provider, uid=account.uid, actor=actor_of(request)
        )
    except KernelError as error:
        messages.warning(request, f"{error.message[:1].upper()}{error.message[1:]}.")
    else:
        messages.success(request, _("Linked. You can sign in with it from now on."))
    return see_other(reverse("you"))


def _unknown(request: HttpRequest) -> HttpResponse:
    return render(request, "console/sign_in/unknown.html", {"oidc": settings.OIDC}, status=403)


def _failed(request: HttpRequest) -> HttpResponse:
    return render(request, "console/sign_in/failed.html", {"oidc": settings.OIDC}, status=502)


def _wait(request: HttpRequest, seconds: int) -> HttpResponse:
    context = {"oidc": settings.OIDC, "wait": wait_text(seconds)}
    answer = render(request, "console/sign_in/failed.html", context, status=429)
    answer.headers["Retry-After"] = str(seconds)
    return answer


def _start(request: HttpRequest, process: str, to: str) -> HttpResponse:
    """The redirect to the provider. Where it cannot be reached, our page says so."""
    if settings.OIDC is None:
        raise Http404
    providers.registry.load()  # allauth's own addresses would; they are not routed
    try:
        provider = get_adapter().get_provider(request, PROVIDER)
        answer: HttpResponse = provider.redirect(request, process, next_url=to)
    except ImmediateHttpResponse as error:
        return error.response
    except (OSError, ValueError, KeyError):  # requests' errors are OSErrors; no JSON; no endpoint
        return _failed(request)
    return answer


@login_not_required
@require_safe
def sign_in(request: HttpRequest) -> HttpResponse:
    """GET leads to the provider; its answer comes back to `callback`. 404 where there is none.

    429 after many starts from one address: each asks the provider.
    """
    if settings.OIDC is not None and (wait_seconds := sso_wait_seconds(request)):
        return _wait(request, wait_seconds)
    return _start(request, "login", local_path(request, request.GET.get("next", "/")))


@login_not_required
def callback(request: HttpRequest, provider_id: str) -> HttpResponseBase:
    """The provider's answer: one that this very browser asked for (state, PKCE)."""
    if settings.OIDC is None:
        raise Http404
    providers.registry.load()
    views = import_module("allauth.socialaccount.providers.openid_connect.views")
    answer: HttpResponseBase = views.callback(request, provider_id=provider_id)
    return answer


@needs("view")
@require_POST
@step_up(gettext_lazy("Link your identity of single sign-on"))
def link(request: HttpRequest) -> HttpResponse:
    """Begin to link an identity: a page that leads to the provider.

    A page, not a redirect: our policy lets no form end on another host.
    """
    answer = _start(request, "connect", reverse("you"))
    if answer.status_code != 302:
        return answer
    return render(
        request, "console/you/link.html", {"oidc": settings.OIDC, "address": answer["Location"]}
    )


@needs("view")
@require_POST
@step_up(gettext_lazy("Unlink your identity of single sign-on"))
def unlink(request: HttpRequest) -> HttpResponse:
    """Remove one's linked identity."""
    user: Any = request.user
    if access.unlink_identity(user=user, actor=actor_of(request)):
        messages.success(request, _("Unlinked."))
    return see_other(reverse("you"))
