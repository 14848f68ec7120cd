"""The console's addresses. Every view declares its permission (console/access.py)."""

from django.urls import path

from console import preferences, sign_in
from console.admin import raw_rows
from console.views import (
    access,
    accounts,
    catalog,
    corrections,
    home,
    reconciliation,
    requests,
    styleguide,
    system,
)

urlpatterns = [
    path("", home.home, name="home"),
    path("sign-in/", sign_in.SignInView.as_view(), name="sign-in"),
    path("sign-out/", sign_in.sign_out, name="sign-out"),
    path("preferences/", preferences.save, name="preferences"),
    path("go-to/", system.go_to, name="go-to"),
    path("requests/", requests.index, name="requests"),
    path("requests/<str:request_id>/", requests.detail, name="request"),
    path("requests/<str:request_id>/resolve/", requests.resolve, name="request-resolve"),
    path("requests/<str:request_id>/cancel/", requests.cancel, name="request-cancel"),
    path("requests/<str:request_id>/dispatch/", requests.dispatch, name="request-dispatch"),
    path("requests/<str:request_id>/correct/", corrections.correct, name="request-correct"),
    path("requests/<str:request_id>/body/<str:kind>/", requests.body, name="request-body"),
    path("accounts/", accounts.index, name="accounts"),
    path("accounts/new/", accounts.create, name="account-new"),
    path("accounts/<str:account_id>/", accounts.detail, name="account"),
    path("accounts/<str:account_id>/change/", accounts.change, name="account-change"),
    path("reconciliation/", reconciliation.index, name="reconciliation"),
    path("reconciliation/run/", reconciliation.run_now, name="reconciliation-run"),
    path("services/", catalog.services, name="services"),
    path("services/new/", catalog.service_new, name="service-new"),
    path("services/<str:service_id>/", catalog.service, name="service"),
    path("services/<str:service_id>/change/", catalog.service_change, name="service-change"),
    path("prices/", catalog.prices, name="prices"),
    path("prices/new/", catalog.price_new, name="price-new"),
    path("tokens/", access.tokens, name="tokens"),
    path("tokens/new/", access.token_new, name="token-new"),
    path("tokens/<str:token_id>/revoke/", access.token_revoke, name="token-revoke"),
    path("people/", access.people, name="people"),
    path("people/new/", access.person_new, name="person-new"),
    path("people/<str:name>/change/", access.person_change, name="person-change"),
    path("people/<str:name>/password/", access.person_password, name="person-password"),
    path("audit/", system.audit, name="audit"),
    path("health/", system.health, name="health"),
    path("styleguide/", styleguide.styleguide, name="styleguide"),
    path("admin/", raw_rows.urls),
]

handler400 = "console.views.errors.bad_request"
handler403 = "console.views.errors.forbidden"
handler404 = "console.views.errors.not_found"
handler500 = "console.views.errors.server_error"
