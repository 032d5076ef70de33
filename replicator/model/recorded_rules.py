"""Column rules recorded in the properties of lake tables, so that a change of the rules is detected."""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from replicator.errors import UnfitColumns
from replicator.model.column_history import ColumnHistory
from replicator.model.column_rules import EXCLUDED, NO_HISTORIES, ColumnRules, strictness, unexplained
from replicator.model.recorded import texts_in
from replicator.model.table import TableSchema

RULES_KEY: Final = "replicator.column-rules"
"""Table property: JSON of column → rule; only columns that have a rule."""


def rules_in_force(schema: TableSchema) -> dict[str, str]:
    """Return column → rule from a schema made by `ColumnRules.transformed`; only columns that have a rule."""
    transforms = {c.name: str(c.transform) for c in schema.columns if c.transform is not None}
    return transforms | dict.fromkeys(schema.left_out, EXCLUDED)


def rules_to_json(rules: Mapping[str, str]) -> str:
    return json.dumps(dict(rules), sort_keys=True, ensure_ascii=False)


def rules_from_json(text: str | None) -> dict[str, str]:
    """Read what `rules_to_json` wrote; None means no rules."""
    return {} if text is None else texts_in(text)


def check_unchanged(
    recorded: Mapping[str, str],
    present: Iterable[str],
    schema: TableSchema,
    table: str,
    histories: Mapping[str, ColumnHistory] = NO_HISTORIES,
) -> dict[str, str]:
    """Return the rules to record for a lake table that gets rows of `schema`.

    Args:
        recorded: the rules that the table records so far.
        present: the table's columns.
        schema: the schema of the rows, with its transforms.
        table: the source table, for messages.
        histories: the names that columns had, for messages.

    Raises:
        UnfitColumns: the rule of an existing column was changed, which would mix values of both rules in it.
    """
    wanted = rules_in_force(schema)
    known = {*recorded, *present}
    changed = sorted(
        name
        for name in {*schema.names, *schema.left_out}
        if name in known and recorded.get(name) != wanted.get(name)
    )
    if changed:
        was = ", ".join(
            f"{name} ({recorded.get(name, 'unchanged')}{_other_names(name, histories)})" for name in changed
        )
        raise UnfitColumns(
            f"the column rules of {table} were changed, but the lake has rows written under the previous rules: {was}",
            "restore the previous rules, for every name that the column has or had; or drop the table and its "
            "changelog in the lake and start again, with a log or a new snapshot that has all rows",
        )
    return dict(recorded) | wanted


def _other_names(name: str, histories: Mapping[str, ColumnHistory]) -> str:
    history = next((h for h in histories.values() if name in {n.name for n in h.names}), None)
    others = sorted({n.name for n in history.names} - {name}) if history is not None else []
    return f", also called {' and '.join(others)}" if others else ""


def check_known(
    recorded: Mapping[str, str],
    present: Iterable[str],
    schema: TableSchema,
    names: Collection[str],
    rules: ColumnRules,
    table: str,
) -> dict[str, str]:
    """Return the rules `recorded` for a lake table with columns `present`, without those of columns dropped long ago.

    `names` are the column names of all known versions of the source table. If a column with a rule is not among them,
    a column that is new to the lake may be the same one, renamed.

    Raises:
        UnfitColumns: there is such a new column, and its rule is less strict.
    """
    if not schema.columns:
        return dict(recorded)
    lost = [n for n in recorded if n not in names]
    known = {*recorded, *present}
    for column in schema.columns:
        if column.name in known or rules.allows(column.source_name):
            continue
        own = strictness(None if column.transform is None else str(column.transform))
        if was := next((n for n in lost if strictness(recorded[n]) > own), None):
            raise unexplained(column.source_name.name, was, table)
    gone = set(lost).difference(present)
    return {name: rule for name, rule in recorded.items() if name not in gone}
