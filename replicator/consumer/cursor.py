"""How far a consumer of a changelog has come, as a value that it stores with its results.

The JSON form is described in schemas/consumer-cursor-v1.json.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Self

from pydantic import BeforeValidator, PlainSerializer

from replicator.errors import UsageError
from replicator.model.commit_marker import CommitMarker
from replicator.model.recorded import Part, Record, versioned

CURSOR_VERSION: Final = 1

Offsets = Mapping[str, Mapping[int, int]]
"""Topic → partition → the first offset that is not contained."""


_SnapshotId = Annotated[
    int,
    BeforeValidator(int),
    # A number of 64 bits: not every reader of JSON has these.
    PlainSerializer(str),
]


@dataclass(frozen=True, slots=True)
class Point(Part):
    """A state of a changelog.

    Attributes:
        snapshot_id: the Iceberg snapshot with its rows; None before the first row.
        sequence_number: Iceberg's sequence number of that snapshot; 0 before the first row.
        commit: number of the commit (`CommitMarker.sequence`); 0 before the first one.
        offsets: the offsets that it contains.
        topic_ids: topic → its id, where it is known.
    """

    WHAT = "a cursor"
    snapshot_id: _SnapshotId | None = None
    sequence_number: int = 0
    commit: int = 0
    offsets: Offsets = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def is_of_same_topics(self, other: "Point") -> bool:
        """Return whether offsets of both points are of the same, single topic, which was not recreated in between."""
        return (
            len(other.offsets) == 1
            and self.offsets.keys() <= other.offsets.keys()
            and all(other.topic_ids.get(topic, known) == known for topic, known in self.topic_ids.items())
        )


def offsets_of(marker: CommitMarker) -> dict[str, dict[int, int]]:
    """Return the offsets that a table with this marker contains."""
    return {t: {p: reached.next_offset for p, reached in ps.items()} for t, ps in marker.progress.items()}


@dataclass(frozen=True, slots=True)
class Within:
    """A part of a snapshot: the first `rows` of its rows, in the order of delivery."""

    snapshot_id: _SnapshotId
    rows: int


@dataclass(frozen=True, slots=True)
class Cursor(Record):
    """How far a consumer has come.

    Attributes:
        table: the source table, ``database.table``, when the consumer started.
        changelog: Iceberg's UUID of the changelog.
        at: everything up to here was delivered.
        within: how much of the first snapshot with rows after `at` was delivered, or of the rows of `scan` from
            `at.offsets` on; None for nothing.
        scan: a state of which the rows from `at.offsets` on are being delivered, in the order of offsets; None if rows
            are delivered commit by commit.
        image: how much of a snapshot of the mirror was delivered, while it is; all rows of changes follow.
        schema_id: Iceberg's id of the changelog's schema that was announced last; None for none.
        steps_at: binlog key of the newest schema step that was announced.
    """

    WHAT = "a cursor"
    VERSION = CURSOR_VERSION
    table: str
    changelog: str
    at: Point = Point()
    within: Within | None = None
    scan: Point | None = None
    image: Within | None = None
    schema_id: int | None = None
    steps_at: int = -1

    @property
    def reached(self) -> Point:
        """The newest state of the changelog of which rows were delivered."""
        return self.scan or self.at

    def to_json(self) -> str:
        """Return the cursor as one line of JSON."""
        return json.dumps(self.values(), separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote.

        Raises:
            UsageError: the text is not a cursor, or a newer version wrote it.
        """
        try:
            return cls.of_values(versioned(text, cls.WHAT, CURSOR_VERSION))
        except ValueError as error:
            raise UsageError(
                f"this is not a cursor of a consumer: {error}",
                "give a file that `replicator consume TABLE --cursor CURSOR` of this version wrote",
            ) from error

    def at_end_of(self, point: Point) -> "Cursor":
        """Return the cursor after everything up to `point`."""
        return replace(self, at=point, within=None, scan=None)


def advanced(offsets: Offsets, reached: Mapping[int, int], topics: Offsets) -> Offsets:
    """Return offsets after rows of `reached` (partition → next offset) were delivered.

    `topics` are the offsets of the changelog. Rows do not say of which topic they are, so with several topics nothing
    is known.
    """
    if len(topics) != 1:
        return offsets
    (topic,) = topics
    known = offsets.get(topic, {})
    return {topic: {**known, **{p: max(known.get(p, 0), offset) for p, offset in reached.items()}}}
