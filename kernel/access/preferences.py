"""A person's taste: the zone of their times, and views of lists that they named (L).

Private to the person and without effect on anything else, so no audit row is written.
"""

import json
from dataclasses import asdict, dataclass

from kernel import clock, schema, sql
from kernel.conf import conf
from kernel.errors import Conflict, InvalidInput, NotFound
from kernel.models import Preference
from kernel.transactions import insert_new_in_tx, reading, transaction

NAME_CHARS_MAX = 60
QUERY_CHARS_MAX = 1000


@dataclass(frozen=True, slots=True)
class SavedView:
    """A named filter of one list: `screen` is its URL's name, `query` its query string with `?`."""

    screen: str
    name: str
    query: str


@dataclass(frozen=True, slots=True)
class Taste:
    """What one person chose; the empty one is everybody's start."""

    zone: str = ""
    views: tuple[SavedView, ...] = ()


@reading
def taste_of(*, person_id: int) -> Taste:
    """The person's choices. One query; Unavailable without migration 0072."""
    schema.require(schema.PREFERENCES)
    found = sql.rows(Preference, {"person_id": person_id})  # on every page
    return _taste(found[0]) if found else Taste()


@transaction
def choose_zone(*, person_id: int, zone: str) -> None:
    """Show this person's times in `zone`; '' follows the installation. Unavailable before 0072."""
    row = _row_in_tx(person_id)
    _keep_in_tx(row, zone=zone)


@transaction
def save_view(*, person_id: int, view: SavedView) -> None:
    """Name a filter of a list; a known name on that screen gets the new filter.

    InvalidInput (field name: empty or too long; field query: nothing is filtered, or too long),
    Conflict `too_many_views` at `saved_views_count_max`, Unavailable before 0072.
    """
    view = SavedView(view.screen, _checked_name(view.name), view.query)
    if len(view.query) < 2 or len(view.query) > QUERY_CHARS_MAX:
        raise InvalidInput("choose a filter first, then save the view", field="query")
    row = _row_in_tx(person_id)
    views = [one for one in _taste(row).views if not _is(one, view.screen, view.name)]
    if len(views) >= conf.saved_views_count_max:
        raise Conflict(
            f"a person keeps at most {conf.saved_views_count_max} views: delete one first",
            code="too_many_views",
        )
    _keep_in_tx(row, views=[*views, view])


@transaction
def rename_view(*, person_id: int, screen: str, name: str, new_name: str) -> None:
    """Give a view another name. NotFound, InvalidInput, Conflict `name_taken` on that screen."""
    new_name = _checked_name(new_name)
    row = _row_in_tx(person_id)
    views = _taste(row).views
    _find(views, screen, name)
    if new_name != name and any(_is(one, screen, new_name) for one in views):
        raise Conflict(f"this list has a view named {new_name}", code="name_taken")
    _keep_in_tx(
        row,
        views=[
            SavedView(screen, new_name, one.query) if _is(one, screen, name) else one
            for one in views
        ],
    )


@transaction
def delete_view(*, person_id: int, screen: str, name: str) -> None:
    """Forget a view. NotFound when it is gone."""
    row = _row_in_tx(person_id)
    views = _taste(row).views
    _find(views, screen, name)
    _keep_in_tx(row, views=[one for one in views if not _is(one, screen, name)])


def _row_in_tx(person_id: int) -> Preference:
    schema.require(schema.PREFERENCES)
    row = Preference.objects.select_for_update().filter(person_id=person_id).first()
    if row is None:
        row = Preference(person_id=person_id, updated_at=clock.db_now())
        insert_new_in_tx(row)
    return row


def _keep_in_tx(
    row: Preference, *, zone: str | None = None, views: list[SavedView] | None = None
) -> None:
    text = row.views_text if views is None else json.dumps([asdict(one) for one in views])
    Preference.objects.filter(person_id=row.person_id).update(
        zone=row.zone if zone is None else zone, views_text=text, updated_at=clock.db_now()
    )


def _taste(row: Preference) -> Taste:
    return Taste(row.zone, tuple(SavedView(**one) for one in json.loads(row.views_text)))


def _is(view: SavedView, screen: str, name: str) -> bool:
    return view.screen == screen and view.name == name


def _find(views: tuple[SavedView, ...], screen: str, name: str) -> None:
    if not any(_is(one, screen, name) for one in views):
        raise NotFound(f"no view named {name} on this list")


def _checked_name(name: str) -> str:
    name = " ".join(name.split())
    if not name or len(name) > NAME_CHARS_MAX:
        raise InvalidInput(f"a view's name has 1 to {NAME_CHARS_MAX} characters", field="name")
    return name
