"""Charts in words: outcomes of the last day, pending charges by age, an account's spend."""

from django.utils.translation import gettext as _

from console.charts import Chart, Series
from console.formats import count_text, money
from console.queries import trends
from console.queries.trends import HOUR, LEDGER_ROWS_MAX, Trend
from console.statuses import status_of
from kernel.conf import conf


def outcomes_chart() -> Chart:
    """Requests by outcome over the last 24 hours. One query."""
    trend = trends.outcomes()
    return Chart(
        title=_("Outcomes, last 24 hours"),
        note=_note(trend, _("Requests by the hour (UTC) of their last change."), conf.count_cap),
        buckets=_buckets(trend),
        series=[
            Series(str(status_of(name).word), status_of(name).tone, values)
            for name, values in trend.values.items()
            if any(values) or name == "complete"
        ],
        show=count_text,
    )


def pending_chart() -> Chart:
    """Pending charges by the day they last changed. One query."""
    trend = trends.pending_by_day()
    note = _("Still pending, by the day (UTC) of their last change; older ones are in the table.")
    return Chart(
        title=_("Pending charges, last 14 days"),
        note=_note(trend, note, conf.count_cap),
        buckets=_buckets(trend),
        series=[Series(_("pending"), "warn", trend.values["pending"])],
        show=count_text,
    )


def spend_chart(account_id: str) -> Chart:
    """What an account was charged. One query of at most LEDGER_ROWS_MAX rows."""
    trend = trends.spend(account_id=account_id)
    hourly = trend.step == HOUR
    return Chart(
        title=_("Spend by hour") if hourly else _("Spend by day, last 30 days"),
        note=_note(trend, _("Charges and corrections of the ledger, in UTC."), LEDGER_ROWS_MAX),
        buckets=_buckets(trend),
        series=[Series(_("spend"), "accent", trend.values["spend"])],
        show=lambda nano: money(nano).text,
    )


def _note(trend: Trend, text: str, most: int) -> str:
    if not trend.is_cut:
        return text
    cut = _("Only the newest %(n)s are counted.") % {"n": count_text(most)}
    return f"{text} {cut}"


def _buckets(trend: Trend) -> list[str]:
    shape = "%Y-%m-%d %H:00" if trend.step == HOUR else "%Y-%m-%d"
    return [f"{start:{shape}}" for start in trend.starts]
