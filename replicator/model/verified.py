"""What is recorded of checks of a mirror: the newest one of each table."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from replicator.model.table import TableId

VERIFIED_KEY: Final = "replicator.verified."
"""Prefix of the properties of the `_ops` namespace that each contain the newest check of a table."""
_TEXT: Final = 300
"""Maximum length of a text: catalogs in a database store at most 1,000 characters of a property."""


@dataclass(frozen=True, slots=True)
class VerifiedTable:
    """The newest check of a table.

    It is a property of the `_ops` namespace, described in schemas/verified-v1.json.

    Attributes:
        verdict: equal, different or undecided.
        position: the binlog position before which all changes were compared.
        ended_ms: when it ended, milliseconds since the epoch.
        rows: number of rows of the source that were checked.
        differing: number of rows that differ, as far as they were counted.
        sampled: whether only a part of the rows was checked.
        reason: why it is undecided.
        offsets: partition → the first offset of the table's topic that the mirror lacked when the check began; a later
            check of changed keys begins there.
        topic_id: the id of the topic.
    """

    table: TableId
    verdict: str
    position: str
    ended_ms: int
    rows: int
    differing: int
    sampled: bool = False
    reason: str | None = None
    offsets: Mapping[int, int] = field(default_factory=dict)
    topic_id: str | None = None

    def values(self) -> dict[str, Any]:
        """Return it as plain values, for programs."""
        return {
            "version": 1,
            "database": self.table.database,
            "name": self.table.name,
            "verdict": self.verdict,
            "position": self.position,
            "ended_ms": self.ended_ms,
            "rows": self.rows,
            "differing": self.differing,
            "sampled": self.sampled,
            "reason": None if self.reason is None else self.reason[:_TEXT],
            "offsets": {str(partition): offset for partition, offset in self.offsets.items()},
            "topic_id": self.topic_id,
        }

    def to_json(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps(self.values())

    @classmethod
    def from_json(cls, text: str) -> "VerifiedTable":
        """Read what `to_json` wrote.

        Raises:
            ValueError: the text is not a check of this version.
        """
        value = json.loads(text)
        if value.get("version") != 1:
            raise ValueError(f"check of a table: unknown version {value.get('version')!r}")
        return cls(
            TableId(value["database"], value["name"]),
            value["verdict"],
            value["position"],
            value["ended_ms"],
            value["rows"],
            value["differing"],
            value["sampled"],
            value["reason"],
            {int(partition): offset for partition, offset in value["offsets"].items()},
            value["topic_id"],
        )


def verified_in(properties: Mapping[str, str]) -> list[VerifiedTable]:
    """Return the checks in the properties of the `_ops` namespace that this version can read, by table."""
    found = []
    for key, value in properties.items():
        if key.startswith(VERIFIED_KEY):
            with suppress(ValueError, KeyError):
                found.append(VerifiedTable.from_json(value))
    return sorted(found, key=lambda check: check.table)
