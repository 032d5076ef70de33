"""What is recorded of comparisons with the source: of definitions, of rows, and of tables that may differ."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import AfterValidator

from replicator.model.position import binlog_number, checked_name
from replicator.model.recorded import Record, records_in
from replicator.model.reread import Phase, Request
from replicator.model.table import TableId
from replicator.model.verified import VerifiedTable

COMPARED_DEFINITIONS_KEY: Final = "replicator.definitions"
"""Property of the `_ops` namespace: when the definitions of the tables were compared with the source."""


@dataclass(frozen=True, slots=True)
class ComparedDefinitions(Record):
    """The last comparison of definitions; described in schemas/compared-definitions-v1.json.

    Attributes:
        at_ms: when it ended, milliseconds since the epoch; None if this run of the mirror has not compared any.
        problem: why definitions cannot be compared now; None if they can.
    """

    WHAT = "the record of compared definitions"
    at_ms: int | None
    problem: str | None = None


def compared_definitions_in(properties: Mapping[str, str]) -> ComparedDefinitions | None:
    """Return what is recorded in the properties of a namespace; None if there is nothing that can be read."""
    return records_in(properties, COMPARED_DEFINITIONS_KEY, ComparedDefinitions.from_json).get("")


COMPARED_KEY: Final = "replicator.compared."
"""Prefix of the properties of the `_ops` namespace that each contain the comparisons of a table."""


@dataclass(frozen=True, slots=True)
class Comparison(Record):
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

    WHAT = "the record of comparisons"
    CUT = ("cause",)
    ENDING = "…"
    table: TableId
    compared_ms: int | None = None
    keys: int = 0
    differences: int = 0
    differed_ms: int | None = None
    cause: str | None = None
    upto: tuple[str, ...] = ()
    rows: int = 0


def comparisons_in(properties: Mapping[str, str]) -> dict[TableId, Comparison]:
    """Return the comparisons in the properties of the `_ops` namespace that this version can read."""
    return {
        found.table: found for found in records_in(properties, COMPARED_KEY, Comparison.from_json).values()
    }


MAY_DIFFER_KEY: Final = "replicator.may-differ."
"""Prefix of the properties of the `_ops` namespace that each tell of a table why its rows may differ."""


@dataclass(frozen=True, slots=True)
class MayDiffer(Record):
    """A transaction that may have changed rows of a table without events, and that the mirror does not follow.

    Attributes:
        reason: what it was.
        file, pos: the place in the binlog after it.
        noted_ms: when it was noted, milliseconds since the epoch.
    """

    WHAT = "the record of rows that may differ"
    reason: str
    file: Annotated[str, AfterValidator(checked_name)]
    pos: int
    noted_ms: int

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
    return records_in(properties, MAY_DIFFER_KEY, MayDiffer.from_json)
