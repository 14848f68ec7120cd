"""Addresses for the console's tests: the style guide and small views that act as screens would."""

from django import forms
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path

from console.access import needs
from console.filters import Choice, Id, Moment, read_filters
from console.forms import ConsoleForm, NoteField
from console.responses import Screen, form_key, form_version
from console.sign_in import SignInView, second_factor, sign_out
from console.views import errors, preferences
from console.views.styleguide import styleguide
from kernel.errors import LostRace, Unavailable

FILTERS = (
    Choice("result", "Result", choices=[("unknown", "Unknown"), ("complete", "Complete")]),
    Id("account", "Account"),
    Moment("since", "Since"),
    Moment("until", "Until", end=True),
)
acts: list[tuple[str, int, str]] = []  # (form key, version, note) of every act that was carried out


class NoteForm(ConsoleForm):
    outcome = forms.ChoiceField(choices=[("done", "Done"), ("race", "Race"), ("away", "Away")])
    note = NoteField()


@needs("view")
def home(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"home of {request.user.get_username()}")


@needs("view")
def listing(request: HttpRequest) -> HttpResponse:
    return HttpResponse(str(read_filters(request.GET, FILTERS).values))


@needs("view", post="operate")
def act(request: HttpRequest) -> HttpResponse:
    screen = Screen(request, page="test_act.html", part="test_act_part.html")
    form = NoteForm(request.POST or None)
    if request.method != "POST":
        return screen.show({"form": form})
    if not form.is_valid():
        return screen.invalid({"form": form})
    if form.cleaned_data["outcome"] == "race":
        error = LostRace("Another person was first.", by="marek", state="failed")
        return screen.problem(error, {"form": form})
    if form.cleaned_data["outcome"] == "away":
        return screen.problem(Unavailable("The database is away."), {"form": form})
    acts.append((form_key(request), form_version(request), form.cleaned_data["note"]))
    again = {"form": NoteForm()} if "part" in request.GET else None
    return screen.done(to="/act", message="Recorded.", context=again)


@needs("configure")
def configure(request: HttpRequest) -> HttpResponse:
    return HttpResponse("configured")


def undeclared(request: HttpRequest) -> HttpResponse:
    return HttpResponse("nobody said who may see this")


@login_not_required
def public(request: HttpRequest) -> HttpResponse:
    return HttpResponse("public")


@needs("view")
def broken(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("broken on purpose")


@needs("view")
def poll(request: HttpRequest) -> HttpResponse:
    return render(request, "test_poll.html")


urlpatterns = [
    path("", home, name="home"),
    path("requests", listing, name="requests"),
    path("act", act, name="act"),
    path("configure", configure, name="accounts"),
    path("undeclared", undeclared),
    path("public", public),
    path("broken", broken),
    path("poll", poll),
    path("go", home, name="go-to"),
    path("guide", styleguide, name="styleguide"),
    path("sign-in", SignInView.as_view(), name="sign-in"),
    path("sign-in", SignInView.as_view(), name="account_login"),
    path("sign-in/factor", second_factor, name="mfa_authenticate"),
    path("you", home, name="you"),
    path("sign-out", sign_out, name="sign-out"),
    path("preferences", preferences.preferences, name="preferences"),
]
handler400 = errors.bad_request
handler403 = errors.forbidden
handler404 = errors.not_found
handler500 = errors.server_error
