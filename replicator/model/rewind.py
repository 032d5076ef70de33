"""What is recorded of a rewind: events of a table that the log has lost, and that the connector sends again."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from replicator.model.recorded import record_in, recorded
from replicator.model.table import TableId

REWIND_KEY: Final = "replicator.rewind."
"""Prefix of the properties of the `_ops` namespace that each contain the newest rewind for a table."""

_TEXT: Final = 300
"""Maximum length of a text in the record: catalogs in a database store at most 1,000 characters of a property."""


class RewindPhase(StrEnum):
    """The phases of a rewind, in order."""

    REQUESTED = "requested"
    SENDING = "sending"
    """The table skips what its topic had so far, and the connector sends events from `Rewind.file` on."""
    DONE = "done"
    FAILED = "failed"
    """The table is read again instead."""


@dataclass(frozen=True, slots=True)
class Rewind:
    """A table whose lost events the connector sends again.

    It is a property of the `_ops` namespace, described in schemas/rewind-v1.json.

    Attributes:
        reason: why its events are needed.
        file: the binlog file at whose beginning the connector begins again.
        bytes: size of that file and of all later ones when the rewind was requested.
        requested_ms: milliseconds since the epoch.
        end_file, end_pos: the end of the binlog when the connector was stopped; up to there it sends events again.
        events: number of events that the topic of the table got meanwhile; None before it is done.
        ended_ms: when it was done or failed; None before.
        problem: why it failed.
    """

    table: TableId
    reason: str
    file: str
    bytes: int
    requested_ms: int
    phase: RewindPhase = RewindPhase.REQUESTED
    end_file: str | None = None
    end_pos: int | None = None
    events: int | None = None
    ended_ms: int | None = None
    problem: str | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing is left to do."""
        return self.phase in (RewindPhase.DONE, RewindPhase.FAILED)

    def values(self) -> dict[str, Any]:
        """Return the rewind as plain values, for programs."""
        return {
            "version": 1,
            "database": self.table.database,
            "name": self.table.name,
            "reason": self.reason[:_TEXT],
            "file": self.file,
            "bytes": self.bytes,
            "requested_ms": self.requested_ms,
            "phase": str(self.phase),
            "end_file": self.end_file,
            "end_pos": self.end_pos,
            "events": self.events,
            "ended_ms": self.ended_ms,
            "problem": None if self.problem is None else self.problem[:_TEXT],
        }

    def to_json(self) -> str:
        """Return the rewind as one line of JSON."""
        return json.dumps(self.values())

    @classmethod
    @recorded("the record of a rewind")
    def from_json(cls, text: str) -> "Rewind":
        """Read what `to_json` wrote.

        Raises:
            ValueError: the text is not a rewind of this version.
        """
        value = record_in(text)
        if value.get("version") != 1:
            raise ValueError(f"rewind: unknown version {value.get('version')!r}")
        return cls(
            table=TableId(value["database"], value["name"]),
            reason=value["reason"],
            file=value["file"],
            bytes=value["bytes"],
            requested_ms=value["requested_ms"],
            phase=RewindPhase(value["phase"]),
            end_file=value["end_file"],
            end_pos=value["end_pos"],
            events=value["events"],
            ended_ms=value["ended_ms"],
            problem=value["problem"],
        )


def rewinds_in(properties: Mapping[str, str]) -> list[Rewind]:
    """Return the rewinds in the properties of the `_ops` namespace that this version can read, by table."""
    found = []
    for key, value in properties.items():
        if key.startswith(REWIND_KEY):
            with suppress(ValueError, KeyError):
                found.append(Rewind.from_json(value))
    return sorted(found, key=lambda rewind: rewind.table)


def values_of(rewinds: Iterable[Rewind]) -> list[dict[str, Any]]:
    """Return rewinds as plain values, for programs."""
    return [rewind.values() for rewind in rewinds]
