"""What is recorded of comparisons with the source: of definitions, of rows, and of tables that may differ."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

from replicator.model.position import binlog_number
from replicator.model.recorded import fitted_json, record_in, recorded
from replicator.model.reread import Phase, Request
from replicator.model.table import TableId
from replicator.model.verified import VerifiedTable

COMPARED_DEFINITIONS_KEY: Final = "replicator.definitions"
"""Property of the `_ops` namespace: when the definitions of the tables were compared with the source."""


@dataclass(frozen=True, slots=True)
class ComparedDefinitions:
    """The last comparison of definitions; described in schemas/compared-definitions-v1.json.

    Attributes:
        at_ms: when it ended, milliseconds since the epoch; None if this run of the mirror has not compared any.
        problem: why definitions cannot be compared now; None if they can.
    """

    at_ms: int | None
    problem: str | None = None

    def to_json(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps({"version": 1, "at_ms": self.at_ms, "problem": self.problem})


def compared_definitions_in(properties: Mapping[str, str]) -> ComparedDefinitions | None:
    """Return what is recorded in the properties of a namespace; None if there is nothing that can be read."""
    try:
        value = json.loads(properties[COMPARED_DEFINITIONS_KEY])
        at_ms, problem = value["at_ms"], value["problem"]
    except (KeyError, ValueError, TypeError):
        return None
    is_valid = isinstance(at_ms, int | None) and isinstance(problem, str | None)
    return ComparedDefinitions(at_ms, problem) if is_valid else None


COMPARED_KEY: Final = "replicator.compared."
"""Prefix of the properties of the `_ops` namespace that each contain the comparisons of a table."""
_TEXT: Final = 300


@dataclass(frozen=True, slots=True)
class Comparison:
    """How rows of a table were compared with the source.

    It is a property of the `_ops` namespace, described in schemas/compared-v1.json.

    Attributes:
        compared_ms: when rows that had changed recently were last compared, milliseconds since the epoch; None: never.
        keys: number of rows that had changed recently and were compared so far.
        differences: how often rows differed.
        differed_ms: when they last did.
        cause: what differed then, and why, as far as that is known.
        upto: the key at which the comparison of the whole table goes on, as texts; empty if it has not begun.
        rows: number of rows before that key that were compared.
    """

    table: TableId
    compared_ms: int | None = None
    keys: int = 0
    differences: int = 0
    differed_ms: int | None = None
    cause: str | None = None
    upto: tuple[str, ...] = ()
    rows: int = 0

    def values(self) -> dict[str, Any]:
        """Return it as plain values, for programs."""
        return {
            "version": 1,
            "database": self.table.database,
            "name": self.table.name,
            "compared_ms": self.compared_ms,
            "keys": self.keys,
            "differences": self.differences,
            "differed_ms": self.differed_ms,
            "cause": self.cause,
            "upto": list(self.upto),
            "rows": self.rows,
        }

    def to_json(self) -> str:
        """Return it as one line of JSON."""
        return fitted_json(self.values(), ("cause",), most=_TEXT, ending="…")

    @classmethod
    @recorded("the record of comparisons")
    def from_json(cls, text: str) -> "Comparison":
        """Read what `to_json` wrote.

        Raises:
            ValueError: the text is not a record of this version.
        """
        value = record_in(text)
        if value.get("version") != 1:
            raise ValueError("record of comparisons: unknown version")
        return cls(
            TableId(value["database"], value["name"]),
            value["compared_ms"],
            value["keys"],
            value["differences"],
            value["differed_ms"],
            value["cause"],
            tuple(value["upto"]),
            value["rows"],
        )


def comparisons_in(properties: Mapping[str, str]) -> dict[TableId, Comparison]:
    """Return the comparisons in the properties of the `_ops` namespace that this version can read."""
    found = {}
    for key, value in properties.items():
        if key.startswith(COMPARED_KEY):
            with suppress(ValueError):
                record = Comparison.from_json(value)
                found[record.table] = record
    return found


MAY_DIFFER_KEY: Final = "replicator.may-differ."
"""Prefix of the properties of the `_ops` namespace that each tell of a table why its rows may differ."""


@dataclass(frozen=True, slots=True)
class MayDiffer:
    """A transaction that may have changed rows of a table without events, and that the mirror does not follow.

    Attributes:
        reason: what it was.
        file, pos: the place in the binlog after it.
        noted_ms: when it was noted, milliseconds since the epoch.
    """

    reason: str
    file: str
    pos: int
    noted_ms: int

    def to_json(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps({"version": 1, **asdict(self)})

    @classmethod
    @recorded("the record of rows that may differ")
    def from_json(cls, text: str) -> "MayDiffer":
        """Read what `to_json` wrote.

        Raises:
            ValueError: the text is not a record of this version.
        """
        value = record_in(text)
        if value["version"] != 1:
            raise ValueError("record of rows that may differ: unknown version")
        binlog_number(value["file"])
        return cls(value["reason"], value["file"], value["pos"], value["noted_ms"])

    def is_settled(self, check: VerifiedTable | None, reread: Request | None) -> bool:
        """Return whether the newest check, or the newest re-read, of the table shows that its rows are the source's."""
        done = reread is not None and reread.phase is Phase.DONE and reread.requested_ms >= self.noted_ms
        if reread is not None and done and reread.narrowed is None:
            return True
        if check is None or check.sampled or not self._is_before(check):
            return False
        if check.verdict == "equal":
            return True
        repaired = reread is not None and done and reread.requested_ms >= check.ended_ms
        return repaired and reread is not None and (reread.changed or 0) >= check.differing

    def _is_before(self, check: VerifiedTable) -> bool:
        """Return whether a check compared all rows later; one in parts, without offsets, began at another place."""
        if check.topic_id is not None and not check.offsets:
            return False
        file, _, pos = check.position.partition("/")[0].rpartition(":")
        try:
            return (binlog_number(file), int(pos)) >= (binlog_number(self.file), self.pos)
        except ValueError:
            return False


def may_differ_in(properties: Mapping[str, str]) -> dict[str, MayDiffer]:
    """Return what the properties of the `_ops` namespace say, by source table, as far as this version can read it."""
    found = {}
    for key, value in properties.items():
        if key.startswith(MAY_DIFFER_KEY):
            with suppress(ValueError):
                found[key.removeprefix(MAY_DIFFER_KEY)] = MayDiffer.from_json(value)
    return found
