"""Change a table's schema with Iceberg's UpdateSchema, in one atomic commit."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from replicator.errors import UnsupportedChange
from replicator.lake.catalog.exact_commit import exact_change
from replicator.lake.catalog.tables import Lake, LakeTable, lake_errors
from replicator.model.changelog import CHANGE_FIELDS
from replicator.model.types import LakeType
from replicator.schema.evolution.changes import (
    FOLLOWED_KEY,
    KEPT_KEY,
    PENDING_FILLS_KEY,
    UNFILLED_KEY,
    AddColumn,
    ChangeKey,
    ChangeType,
    DeleteRows,
    DropColumn,
    MoveColumn,
    Recreate,
    RenameColumn,
    RetireColumn,
    SchemaChange,
    WidenType,
    fills_to_json,
    kept_rows,
    kept_to_json,
    pending_fills,
    renamed_fills,
    unfilled_columns,
)
from replicator.schema.evolution.own_columns import COLUMNS_KEY, change_field
from replicator.schema.evolution.plan import new_names

_MAPPING: Final = "schema.name-mapping.default"
_NONE: Final[Mapping[str, LakeType]] = {}


def alter(
    lake: Lake,
    table: LakeTable,
    changes: Sequence[SchemaChange],
    properties: Mapping[str, str],
    *,
    key: Sequence[str] = (),
    fill: bool = False,
    replaced: Mapping[str, str] | None = None,
    added: Mapping[str, str] | None = None,
    branch: str | None = None,
) -> None:
    """Apply `changes` and set `properties` in one commit, then refresh `table`.

    Args:
        lake: the catalog.
        table: the table as it was loaded for the plan; any commit since then is a conflict.
        changes: see `schema.evolution.plan`.
        properties: table properties to set in the same commit.
        key: the mirror's key after the changes; empty for a changelog, and for a table without a key.
        fill: whether to record, in the same commit, which rows must still be filled, so that a crash loses nothing.
        replaced: column that gets another type → the column with its converted values, which replaces it.
        added: added column → the column with its values, which gets its name.
        branch: the branch to publish; it must descend from the current snapshot.

    Raises:
        CommitConflict: the table was changed since it was loaded.
        UnsupportedChange: the table is partitioned or sorted by a column that would be dropped, or a column gets a name
            that data files without field ids may have for another one.
    """
    _refuse_needed_columns(table, changes)
    if branch is None:
        _refuse_mapped_names(table, changes)
    own, before = table.own_columns(), table.schema_json()
    with exact_change(table, f"table {table.namespace}.{table.name} cannot be altered") as transaction:
        if branch is not None:
            transaction.manageSnapshots().fastForwardBranch("main", branch).commit()
            transaction.manageSnapshots().removeBranch(branch).commit()
        columns = _Columns(before, own is not None and own.has_other_key(before), replaced or {}, added or {})
        _change_schema(lake, transaction, changes, key, columns)
        update = transaction.updateProperties()
        for name, value in properties.items():
            update.set(name, value)
        if own is not None:
            after = str(lake.classes.schema_parser.toJson(transaction.table().schema()))
            update.set(COLUMNS_KEY, own.followed_by(before, after).to_json())
        known = table.pending_fills()
        fills = renamed_fills(known, changes) | (pending_fills(changes) if fill else {})
        if fills:
            update.set(PENDING_FILLS_KEY, fills_to_json(fills))
        elif known:
            update.remove(PENDING_FILLS_KEY)
        _note_unfilled(table, update, changes, fill=fill)
        _note_kept(table, update, changes)
        _note_followed(update, changes)
        update.commit()


def _note_unfilled(table: LakeTable, update: Any, changes: Sequence[SchemaChange], *, fill: bool) -> None:
    """Record for `status` which columns are null in earlier rows because no event contains the value."""
    known = table.unfilled()
    unfilled = unfilled_columns(known, changes, is_empty=table.is_empty or not fill)
    if unfilled:
        update.set(UNFILLED_KEY, json.dumps(unfilled))
    elif known:
        update.remove(UNFILLED_KEY)


def _note_followed(update: Any, changes: Sequence[SchemaChange]) -> None:
    """Record the newest statement whose removed rows are deleted."""
    followed = [change.at for change in changes if isinstance(change, DeleteRows)]
    if followed:
        update.set(FOLLOWED_KEY, str(max(followed)))


def _note_kept(table: LakeTable, update: Any, changes: Sequence[SchemaChange]) -> None:
    """Record for `status` that the table has rows from before statements that changed rows without events."""
    known = table.kept_rows()
    kept = kept_rows(known, changes, is_empty=table.is_empty)
    if kept and kept != known:
        update.set(KEPT_KEY, kept_to_json(kept))
    elif known and not kept:
        update.remove(KEPT_KEY)


def add_columns(
    lake: Lake, table: LakeTable, columns: Mapping[str, LakeType], widened: Mapping[str, LakeType] = _NONE
) -> None:
    """Append the columns that the table lacks, and widen the types of others."""
    present = table.columns()
    with lake_errors(f"table {table.namespace}.{table.name} cannot be altered"):
        update = table.java.updateSchema()
        for name, lake_type in columns.items():
            if name not in present:
                update.addColumn(None, name, lake.classes.type_of(lake_type))
        for name, lake_type in widened.items():
            update.updateColumn(name, lake.classes.type_of(lake_type))
        update.commit()
        table.refresh()


def add_change_fields(lake: Lake, table: LakeTable) -> None:
    """Add the fields that the struct column of a changelog of an earlier version lacks, at its end.

    Raises:
        CommitConflict: the table was changed since it was loaded.
    """
    before, own = table.schema_json(), table.own_columns()
    if (found := change_field(before)) is None:
        return
    column, present = found
    lacking = [(name, kind) for name, kind in CHANGE_FIELDS if name not in present]
    if not lacking:
        return
    with exact_change(table, f"table {table.namespace}.{table.name} cannot be altered") as transaction:
        update = transaction.updateSchema()
        for name, kind in lacking:
            update.addColumn(column, name, lake.classes.type_of(LakeType.parse(kind)))
        update.commit()
        if own is not None:
            after = str(lake.classes.schema_parser.toJson(transaction.table().schema()))
            properties = transaction.updateProperties()
            properties.set(COLUMNS_KEY, own.followed_by(before, after).to_json()).commit()


@dataclass(frozen=True, slots=True)
class _Columns:
    """What a change of a schema needs to know of the columns.

    Attributes:
        before: the schema before it, in Iceberg's JSON.
        other_key: whether others changed the identifier fields or let key columns be null, which then stays so.
        replaced: column that gets another type → the column with its converted values, which replaces it.
        added: added column → the column with its values, which gets its name.
    """

    before: str
    other_key: bool
    replaced: Mapping[str, str]
    added: Mapping[str, str]

    def comment(self, name: str) -> str | None:
        """Return the comment of a column."""
        fields = json.loads(self.before)["fields"]
        return next((f.get("doc") for f in fields if f["name"] == name), None)

    def identifiers(self, but: Collection[str]) -> list[str]:
        """Return the names of the identifier fields that others chose, without `but`."""
        schema = json.loads(self.before)
        ids = schema.get("identifier-field-ids", ()) if self.other_key else ()
        return [f["name"] for f in schema["fields"] if f["id"] in ids and f["name"] not in but]


def _change_schema(
    lake: Lake, transaction: Any, changes: Sequence[SchemaChange], key: Sequence[str], columns: _Columns
) -> None:
    """Change names first, then all else, so that a name released in the first update can be used in the second."""
    if not changes:
        return
    new_key = any(isinstance(c, ChangeKey) for c in changes) or (
        bool(key) and any(isinstance(c, DropColumn | RetireColumn | ChangeType) for c in changes)
    )
    if new_key:
        # Iceberg refuses to drop an identifier field.
        identifiers = lake.classes.array_list()
        for name in columns.identifiers(_released(changes)):
            identifiers.add(name)
        transaction.updateSchema().setIdentifierFields(identifiers).commit()
    update = transaction.updateSchema().allowIncompatibleChanges()
    others = {c.was for c in changes if isinstance(c, ChangeType)}
    for change in changes:
        if not (isinstance(change, RenameColumn) and change.name in others):
            _give_names(update, change, columns)
    update.commit()
    update = transaction.updateSchema().allowIncompatibleChanges()
    for change in changes:
        _give_types(lake, update, change, columns)
    update.commit()
    if new_key:
        _set_key(lake, transaction, changes, key, is_chosen=not columns.other_key)


def _released(changes: Sequence[SchemaChange]) -> set[str]:
    """Return the columns, by their names before `changes`, that cannot be identifier fields afterwards."""
    names = {c.name for c in changes if isinstance(c, DropColumn | RetireColumn)}
    names |= {c.was for c in changes if isinstance(c, ChangeType)}
    before = {c.new: c.name for c in changes if isinstance(c, RenameColumn)}
    return names | {
        before.get(n, n) for c in changes if isinstance(c, ChangeKey) for n in {*c.old} - {*c.new}
    }


def _give_names(update: Any, change: SchemaChange, columns: _Columns) -> None:
    match change:
        case AddColumn(column=column) if column.name in columns.added:
            update.renameColumn(columns.added[column.name], column.name)
        case DropColumn(name=name):
            update.deleteColumn(name)
        case RetireColumn(name=name, kept=kept):
            update.makeColumnOptional(name)
            if kept != name:
                update.renameColumn(name, kept)
        case RenameColumn(name=name, new=new):
            update.renameColumn(name, new)
        case ChangeType(name=name, was=was):
            update.deleteColumn(was)
            if was in columns.replaced:
                update.renameColumn(columns.replaced[was], name)
        case _:
            pass


def _give_types(lake: Lake, update: Any, change: SchemaChange, columns: _Columns) -> None:
    match change:
        case AddColumn(column=column, after=after):
            if column.name not in columns.added:
                update.addColumn(None, column.name, lake.classes.type_of(column.type))
            _move(update, column.name, after)
        case ChangeType(name=name, was=was, new=new):
            comment = columns.comment(was)
            if was not in columns.replaced:
                update.addColumn(None, name, lake.classes.type_of(new), comment)
            elif comment is not None:
                update.updateColumnDoc(name, comment)
        case WidenType(name=name, new=new):
            update.updateColumn(name, lake.classes.type_of(new))
        case MoveColumn(name=name, after=after):
            _move(update, name, after)
        case _:
            pass


def _move(update: Any, name: str, after: str | None) -> None:
    if after is None:
        update.moveFirst(name)
    else:
        update.moveAfter(name, after)


def _set_key(
    lake: Lake, transaction: Any, changes: Sequence[SchemaChange], key: Sequence[str], *, is_chosen: bool
) -> None:
    """Let former key columns be null; if the engine chooses the key, require its columns and make them identifiers."""
    update = transaction.updateSchema().allowIncompatibleChanges()
    schema = json.loads(lake.classes.schema_parser.toJson(transaction.table().schema()))
    types = {f["name"]: f["type"] for f in schema["fields"]}
    for change in changes:
        if isinstance(change, ChangeKey):
            for name in set(change.old).intersection(types).difference(key):
                update.makeColumnOptional(name)
    if not is_chosen:
        update.commit()
        return
    identifiers = lake.classes.array_list()
    for name in key:
        update.requireColumn(name)
        if types[name] not in ("float", "double"):
            identifiers.add(name)
    update.setIdentifierFields(identifiers).commit()


def _refuse_needed_columns(table: LakeTable, changes: Sequence[SchemaChange]) -> None:
    """Check that no column by which the table is partitioned or sorted would be dropped.

    Raises:
        UnsupportedChange: such a column would be dropped or replaced.
    """
    gone = {c.name for c in changes if isinstance(c, DropColumn)}
    gone |= {c.was for c in changes if isinstance(c, ChangeType)}
    if not gone or not (table.is_partitioned or table.is_sorted):
        return
    names = {f["id"]: f["name"] for f in json.loads(table.schema_json())["fields"]}
    for field in table.java.spec().fields():
        if (name := names.get(field.sourceId())) in gone:
            raise UnsupportedChange(
                f"the table is partitioned by column {name}, which the source dropped or converted to another type",
                "remove it from partition = [...], drop the lake table (replicator drop), and bootstrap the table "
                "again",
            )
    for field in table.java.sortOrder().fields():
        if (name := names.get(field.sourceId())) in gone:
            raise UnsupportedChange(
                f"the table is sorted by column {name}, which the source dropped or converted to another type",
                f"ALTER TABLE {table.sql_name} WRITE UNORDERED, or WRITE ORDERED BY another column; then run: "
                "replicator reload",
            )


def _refuse_mapped_names(table: LakeTable, changes: Sequence[SchemaChange]) -> None:
    """Check that no column gets a name by which data files without field ids have values of another column.

    Iceberg's name mapping has names for such files; it would give those values to the new column. A table without rows
    has no such values.

    Raises:
        UnsupportedChange: a column would.
    """
    text = table.property(_MAPPING)
    if text is None or table.is_empty or any(isinstance(c, Recreate) for c in changes):
        return
    before = {c.new: c.name for c in changes if isinstance(c, RenameColumn)}
    before |= {c.kept: c.name for c in changes if isinstance(c, RetireColumn)}
    mapped = [set(entry["names"]) for entry in json.loads(text)]
    for name in new_names(changes):
        for names in mapped:
            if name in names and before.get(name) not in names:
                raise UnsupportedChange(
                    f"column {name} is new, and data files without field ids may have another column of that name",
                    "rewrite all data files with Iceberg's rewrite_data_files ('rewrite-all' = 'true'); remove the "
                    f"table property {_MAPPING}; then run: replicator reload",
                )
