"""How far a consumer of a changelog has come, as a value that it stores with its results.

The JSON form is described in schemas/consumer-cursor-v1.json.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from replicator.errors import UsageError
from replicator.model.commit_marker import CommitMarker
from replicator.model.recorded import checked, reading, record_in, recorded

CURSOR_VERSION: Final = 1

Offsets = Mapping[str, Mapping[int, int]]
"""Topic → partition → the first offset that is not contained."""


@dataclass(frozen=True, slots=True)
class Point:
    """A state of a changelog.

    Attributes:
        snapshot_id: the Iceberg snapshot with its rows; None before the first row.
        sequence_number: Iceberg's sequence number of that snapshot; 0 before the first row.
        commit: number of the commit (`CommitMarker.sequence`); 0 before the first one.
        offsets: the offsets that it contains.
        topic_ids: topic → its id, where it is known.
    """

    snapshot_id: int | None = None
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

    def to_json(self) -> dict[str, Any]:
        return {
            "snapshot_id": None if self.snapshot_id is None else str(self.snapshot_id),
            "sequence_number": self.sequence_number,
            "commit": self.commit,
            "offsets": {t: {str(p): offset for p, offset in ps.items()} for t, ps in self.offsets.items()},
            "topic_ids": dict(self.topic_ids),
        }

    @classmethod
    @recorded("a cursor")
    def from_json(cls, value: Mapping[str, Any]) -> "Point":
        return cls(
            None if value["snapshot_id"] is None else int(value["snapshot_id"]),
            value["sequence_number"],
            value["commit"],
            {t: {int(p): offset for p, offset in ps.items()} for t, ps in value["offsets"].items()},
            dict(value["topic_ids"]),
        )


def offsets_of(marker: CommitMarker) -> dict[str, dict[int, int]]:
    """Return the offsets that a table with this marker contains."""
    return {t: {p: reached.next_offset for p, reached in ps.items()} for t, ps in marker.progress.items()}


@dataclass(frozen=True, slots=True)
class Within:
    """A part of a snapshot: the first `rows` of its rows, in the order of delivery."""

    snapshot_id: int
    rows: int


@dataclass(frozen=True, slots=True)
class Cursor:
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

    def values(self) -> dict[str, Any]:
        """Return the cursor as plain values."""
        return {
            "version": CURSOR_VERSION,
            "table": self.table,
            "changelog": self.changelog,
            "at": self.at.to_json(),
            "within": _within_to_json(self.within),
            "scan": None if self.scan is None else self.scan.to_json(),
            "image": _within_to_json(self.image),
            "schema_id": self.schema_id,
            "steps_at": self.steps_at,
        }

    @classmethod
    def from_json(cls, text: str) -> "Cursor":
        """Read what `to_json` wrote.

        Raises:
            UsageError: the text is not a cursor, or a newer version wrote it.
        """
        try:
            value = record_in(text)
            if value["version"] != CURSOR_VERSION:
                raise UsageError(
                    f"the cursor has version {value['version']!r}, this version reads {CURSOR_VERSION}",
                    "use the version of replicator that wrote it",
                )
            with reading("a cursor"):
                return checked(
                    cls(
                        value["table"],
                        value["changelog"],
                        Point.from_json(value["at"]),
                        _within_from_json(value["within"]),
                        None if value["scan"] is None else Point.from_json(value["scan"]),
                        _within_from_json(value["image"]),
                        value["schema_id"],
                        value["steps_at"],
                    )
                )
        except (ValueError, KeyError) as error:
            raise UsageError(
                "this is not a cursor of a consumer",
                "give a file that `replicator consume TABLE --cursor CURSOR` wrote",
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


def _within_to_json(within: Within | None) -> dict[str, Any] | None:
    return None if within is None else {"snapshot_id": str(within.snapshot_id), "rows": within.rows}


def _within_from_json(value: Mapping[str, Any] | None) -> Within | None:
    return None if value is None else Within(int(value["snapshot_id"]), value["rows"])
