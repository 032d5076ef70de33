"""Recognizes a lake table before it is changed: whose it is, and what others changed in its columns."""

from collections.abc import Mapping
from dataclasses import dataclass

from replicator.batch.context import MirrorContext
from replicator.batch.values import BatchSchema
from replicator.lake.catalog.tables import LakeTable
from replicator.lake.others import refuse_changed_columns, refuse_foreign, refuse_rollback
from replicator.lake.strategies.registry import MERGE
from replicator.model.roles import LakeRole
from replicator.model.types import LakeType
from replicator.schema.evolution.changes import SchemaState
from replicator.schema.evolution.own_columns import COLUMNS_KEY, OwnColumns
from replicator.schema.history.versions import SchemaHistory


@dataclass(frozen=True, slots=True)
class Recognized:
    """A lake table of the mirror.

    Attributes:
        properties: the table properties that it needs because of its columns.
        columns: the columns that the engine made, with their types now.
    """

    properties: Mapping[str, str]
    columns: Mapping[str, LakeType]


def recognize(
    context: MirrorContext,
    schema: BatchSchema,
    present: LakeTable,
    role: LakeRole,
    known: SchemaState | None,
    *,
    restated: bool,
) -> Recognized:
    """Return what is known of a lake table that gets rows of a schema; see `refuse_changed_columns` for `restated`.

    `known` is its recorded schema state.

    Raises:
        ForeignTable: the table is not the mirror's.
        ForeignColumns: others changed columns that the engine made, or added some that it cannot write.
        ForeignChange: others replaced the table by one with other columns.
    """
    refuse_foreign(present, context.config.mirror.name)
    is_mirror = role is LakeRole.MIRROR
    recorded, schema_json = present.own_columns(), present.schema_json()
    own = recorded or OwnColumns.of(schema_json, _names_of_engine(schema, known))
    found = own.differences(schema_json)
    if found and not restated:
        # A table that was replaced may have other columns too; then its rows are the first concern.
        refuse_rollback(context.lake, present, is_mirror=is_mirror)
    refuse_changed_columns(present, found, is_mirror=is_mirror, restated=restated)
    properties = {} if recorded else {COLUMNS_KEY: own.to_json()}
    if is_mirror and own.users(schema_json):
        # The rows of such a table are changed with MERGE, whatever its strategy.
        properties |= MERGE.properties
    return Recognized(properties, own.types(schema_json))


def _names_of_engine(schema: BatchSchema, known: SchemaState | None) -> set[str] | None:
    """Return the names that columns of the engine may have; None if an early part of the history is unknown."""
    versions = schema.history.versions
    if known is None or not versions or versions[0].at > known.at:
        return None
    return {*names_in(schema.history), *schema.decoded.names, *known.retired}


def names_in(history: SchemaHistory) -> set[str]:
    """Return the names of all columns that a table has or had, in the source and in the lake."""
    columns = [c for version in history.versions for c in version.schema.columns]
    return {c.name for c in columns} | {c.source_name.name for c in columns} | {c.written for c in columns}
