"""What a consumer gets: batches of rows, each with the cursor after it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from replicator.consumer.cursor import Cursor
from replicator.errors import CursorExpired
from replicator.schema.evolution.steps import STEPS_KEY, SchemaSteps

_TOLD: Final = {"at", "unlogged", "known_from"}
"""Parts of a step whose outcome a re-read adds to the changes."""


class BatchKind(StrEnum):
    """What the rows of a batch are."""

    ROWS = "rows"
    """Rows of the mirror at the state where the consumer started; they have the columns of the mirror."""
    CHANGES = "changes"
    """Changes, in their order; they have the columns of the changelog."""
    SCHEMA = "schema"
    """No rows: the columns of the changes that follow."""


@dataclass(frozen=True, slots=True)
class ColumnNotice:
    """A column of the changelog.

    Attributes:
        id: Iceberg's id of the column, which stays if the column is renamed.
        type: its Iceberg type.
    """

    id: int
    name: str
    type: str


@dataclass(frozen=True, slots=True)
class SchemaNotice:
    """The columns of the changelog from now on.

    Attributes:
        columns: the columns, without the struct column. Those that the source dropped remain.
        steps: what changed since the last notice, oldest first, as in schemas/schema-steps-v1.json: values that
            existing rows of the source got without an event, conversions, renamed columns, another key, rows that were
            removed.
    """

    columns: tuple[ColumnNotice, ...]
    steps: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """Something that a consumer gets.

    Attributes:
        kind: what it is.
        rows: the rows.
        cursor: where the consumer continues after it. Store it in the same transaction as what you make of the rows.
        change: the name of the struct column with kind, position and offset of a change; None for rows of the mirror.
        schema: the columns; None unless the kind is SCHEMA.
    """

    kind: BatchKind
    rows: pa.Table
    cursor: Cursor
    change: str | None = None
    schema: SchemaNotice | None = None


def schema_notice(table: Table, schema: Schema, change: str, since: int) -> tuple[SchemaNotice, int]:
    """Return the columns of a loaded changelog with the schema steps after binlog key `since`, and the newest one."""
    columns = tuple(
        ColumnNotice(field.field_id, field.name, str(field.field_type))
        for field in schema.fields
        if field.name != change
    )
    steps = steps_after(table, since)
    return SchemaNotice(columns, steps), max((int(step["at"]) for step in steps), default=since)


def untold_steps(table: Table, since: int) -> Sequence[Mapping[str, Any]]:
    """Return the schema steps of a loaded changelog after binlog key `since` that changes do not tell.

    The columns may be the same after such a step, for instance if it only removed rows.
    """
    return [step for step in steps_after(table, since) if step.keys() - _TOLD]


def steps_after(table: Table, since: int) -> tuple[Mapping[str, Any], ...]:
    """Return the schema steps of a loaded changelog after binlog key `since`.

    Raises:
        CursorExpired: the changelog has only the newer ones of them.
    """
    text = table.properties.get(STEPS_KEY)
    if text is None:
        return ()
    # As whole steps first: the catalog may say anything.
    SchemaSteps.from_json(text)
    recorded = json.loads(text)
    if recorded.get("forgotten", since) > since:
        raise CursorExpired(
            f"{'.'.join(table.name())} had so many statements that it does not tell what each of them did to rows",
            "start again, with the rows of the mirror: --from mirror",
        )
    return tuple(step for step in recorded["steps"] if int(step["at"]) > since)
