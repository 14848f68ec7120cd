"""Migration operations that can be run again after a kill between any two DDL statements (H1).

MySQL commits each DDL statement at once. Each operation is one statement and first looks whether
its effect is already there, so a second run walks over what the first one did and finishes
the rest.
"""

from typing import Any

from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from kernel.tables import columns_by_table, indexes_by_table


def _tables(editor: BaseDatabaseSchemaEditor) -> set[str]:
    return set(editor.connection.introspection.table_names())


def _columns(editor: BaseDatabaseSchemaEditor, table: str) -> set[str]:
    return columns_by_table(editor.connection).get(table, set())


def _indexes(editor: BaseDatabaseSchemaEditor, table: str) -> set[str]:
    return indexes_by_table(editor.connection).get(table, set())


class CreateTable(migrations.CreateModel):
    """CREATE TABLE with its unique keys inline; no secondary index, no foreign key."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        table = to_state.apps.get_model(app_label, self.name)._meta.db_table
        if table not in _tables(schema_editor):
            super().database_forwards(app_label, schema_editor, from_state, to_state)


class CreateIndex(migrations.AddIndex):
    """CREATE INDEX unless an index of that name exists."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        table = to_state.apps.get_model(app_label, self.model_name)._meta.db_table
        if self.index.name not in _indexes(schema_editor, table):
            super().database_forwards(app_label, schema_editor, from_state, to_state)


class AddField(migrations.AddField):
    """ADD COLUMN that its model maps, unless it is there; one statement on every database.

    Give it a constant `db_default`: code of the version before still inserts rows.
    """

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        model = to_state.apps.get_model(app_label, self.model_name)
        field = model._meta.get_field(self.name)
        table = model._meta.db_table
        if field.column in _columns(schema_editor, table):
            return
        definition, parameters = schema_editor.column_sql(model, field)
        quote = schema_editor.quote_name
        schema_editor.execute(
            f"ALTER TABLE {quote(table)} ADD COLUMN {quote(field.column)} {definition}",
            parameters or None,
        )


class AddColumn(migrations.operations.base.Operation):
    """ADD COLUMN on a table, outside the migration state of the model that maps the table.

    Marker and replay columns are mapped only where they are used (H3), so the owning model must not
    know them: a plain query on it still works where the migration is absent.
    """

    reduces_to_sql = True
    reversible = False

    def __init__(self, table: str, column: str, field: models.Field):
        self.table, self.column, self.field = table, column, field

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        return self.__class__.__name__, [self.table, self.column, self.field], {}

    def state_forwards(self, app_label: str, state: Any) -> None:
        """No model of the migration state maps this column."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        if self.column in _columns(schema_editor, self.table):
            return
        kind = self.field.db_type(schema_editor.connection)
        quote = schema_editor.quote_name
        schema_editor.execute(
            f"ALTER TABLE {quote(self.table)} ADD COLUMN {quote(self.column)} {kind} NULL"
        )

    def describe(self) -> str:
        return f"Add column {self.table}.{self.column}"


class AddPlainIndex(migrations.operations.base.Operation):
    """CREATE INDEX over columns of which AddColumn added some."""

    reduces_to_sql = True
    reversible = False
    kind = "INDEX"

    def __init__(self, table: str, name: str, columns: list[str]):
        self.table, self.name, self.columns = table, name, columns

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        return self.__class__.__name__, [self.table, self.name, self.columns], {}

    def state_forwards(self, app_label: str, state: Any) -> None:
        """No model of the migration state maps these columns."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        if self.name in _indexes(schema_editor, self.table):
            return
        quote = schema_editor.quote_name
        columns = ", ".join(quote(each) for each in self.columns)
        schema_editor.execute(
            f"CREATE {self.kind} {quote(self.name)} ON {quote(self.table)} ({columns})"
        )

    def describe(self) -> str:
        return f"Add {self.kind.lower()} {self.name} on {self.table}"


class AddUniqueIndex(AddPlainIndex):
    """CREATE UNIQUE INDEX on a column added by AddColumn."""

    kind = "UNIQUE INDEX"

    def __init__(self, table: str, name: str, column: str):
        super().__init__(table, name, [column])

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        return self.__class__.__name__, [self.table, self.name, *self.columns], {}


class Irreversible(migrations.operations.base.Operation):
    """Refuses reversal: a code rollback keeps continuation rows and markers (H4)."""

    reversible = False

    def __init__(self, why: str):
        self.why = why

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        return self.__class__.__name__, [self.why], {}

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Changes nothing."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Changes nothing."""

    def describe(self) -> str:
        return self.why
