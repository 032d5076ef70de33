"""What a check found."""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Final

from replicator.model.reread import Narrowed
from replicator.schema.types.table import Form
from replicator.verify.canonical import ComparedColumn
from replicator.verify.lake_rows import Row

SHOWN: Final = 200
"""Number of characters of a value that are shown at most."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Verdict(StrEnum):
    """The result of a check."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNDECIDED = "undecided"


class Kind(StrEnum):
    """How a row differs."""

    MISSING = "missing"
    """The source has it, the mirror does not."""
    UNEXPECTED = "unexpected"
    """The mirror has it, the source does not; or the mirror has it several times."""
    DIFFERENT = "different"
    """Both have it, with other values."""


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A row that differs.

    Attributes:
        key: key column → value, as text. Empty for a table without a key.
        columns: the columns that differ; empty unless the kind is DIFFERENT.
        source, lake: column → value, as text; None on the side that does not have the row. NULL is None.
        later: the row changed after the position. `source` is then its row after the last change, by the changelog.
    """

    kind: Kind
    key: Mapping[str, str | None]
    columns: tuple[str, ...]
    source: Mapping[str, str | None] | None
    lake: Mapping[str, str | None] | None
    later: bool = False


class Severity(StrEnum):
    """What a finding about columns means."""

    DIFFERENT = "different"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class SchemaFinding:
    """Something about the columns or the key of a table."""

    severity: Severity
    text: str


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """The checksums of a chunk.

    Attributes:
        first, last: the keys that bound it, as text; None without bound, and for buckets.
        source_rows, lake_rows: number of its rows at the position.
        equal: whether the checksums are equal.
        seconds: how long the source took.
    """

    first: str | None
    last: str | None
    source_rows: int
    lake_rows: int
    equal: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class TableResult:
    """What was found in a table.

    Attributes:
        verdict: the result.
        reason: why it is undecided, or why its rows were not compared; None otherwise.
        source_rows, lake_rows: number of rows at the position, in the part that was checked.
        chunks: the chunks that were checked.
        by: how rows are divided: "ranges" of keys, "buckets" of hashes, or "keys" that changed.
        counts: kind → number of rows that differ.
        complete: whether all rows that differ were counted; if not, there may be more.
        rows: the first of them.
        schema: findings about columns and key.
        fetched: number of rows of the source that were fetched.
        later: number of images of later changes that were undone.
        is_sampled: whether only a part of the rows was checked.
        excluded, masked: columns that are not compared.
        seconds: how long the check took.
        position: the binlog position before which all changes were compared; None if nothing was compared.
        checks: how often the table was checked.
        repaired: number of rows that a re-read corrected before this check; None if there was none.
        since: since when the keys that were checked changed; None if keys were not chosen by changes.
        earlier: number of rows of the source that a check compared that was interrupted, at an earlier position.
        offsets, topic_id: as those of `VerifiedTable`.
        narrowed: the part of the table in which all rows are that differ; None if that is not known.
        upto: the key up to which it was checked, as texts, if rows behind it are left.
        passing: whether it is undecided for a reason that passes, so that it may be checked again.
        results: the results of pipelines that are computed of it, if it may differ.
    """

    table: str
    verdict: Verdict
    reason: str | None = None
    source_rows: int = 0
    lake_rows: int = 0
    by: str = "ranges"
    chunks: Sequence[ChunkResult] = ()
    counts: Mapping[Kind, int] = field(default_factory=dict)
    complete: bool = True
    rows: Sequence[RowDifference] = ()
    schema: Sequence[SchemaFinding] = ()
    fetched: int = 0
    later: int = 0
    is_sampled: bool = False
    excluded: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    seconds: float = 0.0
    position: str | None = None
    checks: int = 1
    repaired: int | None = None
    since: str | None = None
    earlier: int = 0
    offsets: Mapping[int, int] = field(default_factory=dict)
    topic_id: str | None = None
    narrowed: Narrowed | None = None
    passing: bool = False
    upto: tuple[str, ...] = ()
    results: tuple[str, ...] = ()

    @property
    def differing(self) -> int:
        """Number of rows that differ."""
        return sum(self.counts.values())


def repaired_part(result: TableResult) -> Narrowed | None:
    """Return the part of a table that must be read again to correct its mirror; None for all of it."""
    wrong = any(finding.severity is Severity.DIFFERENT for finding in result.schema)
    return None if wrong else result.narrowed


def settled(earlier: TableResult | None, result: TableResult) -> TableResult:
    """Return the result of a table that was checked several times, of which `result` is the newest.

    Rows that are undecided, because later changes cannot be undone, differ if the check after the next position of the
    source finds them in the same way.
    """
    if earlier is None:
        return result
    result = replace(result, checks=earlier.checks + 1)
    if not result.passing or not result.rows or not result.complete:
        return result
    known = {_identity(row) for row in earlier.rows}
    if not all(_identity(row) in known for row in result.rows):
        return result
    reason = f"its changes cannot be undone, but its rows differed in the same way in {result.checks} checks"
    return replace(result, verdict=Verdict.DIFFERENT, reason=reason, passing=False)


def _identity(row: RowDifference) -> str:
    return json.dumps(asdict(row))


@dataclass(frozen=True, slots=True)
class Report:
    """What a check found.

    Attributes:
        mirror: the name of the mirror.
        version: the version of the engine.
        server_version: the version of the source.
        position: the binlog position before which all changes were compared, at the first check of the tables.
        gtids: the GTIDs that the source had executed then; None if it has none.
        began_ms, ended_ms: when the check began and ended, milliseconds since the epoch.
        tables: the results, in the order of names.
        options: what was asked for, as text.
    """

    mirror: str
    version: str
    server_version: str
    position: str
    gtids: str | None
    began_ms: int
    ended_ms: int
    tables: Sequence[TableResult]
    options: Mapping[str, str | int | float | None] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """The result: a difference weighs more than a table that is undecided."""
        order = (Verdict.EQUAL, Verdict.UNDECIDED, Verdict.DIFFERENT)
        return max((table.verdict for table in self.tables), key=order.index, default=Verdict.EQUAL)


def shown(columns: Sequence[ComparedColumn], row: Row) -> dict[str, str | None]:
    """Return canonical forms as source column → text for people."""
    return {c.source: shown_value(c, value) for c, value in zip(columns, row, strict=True)}


def shown_value(column: ComparedColumn, value: bytes | None) -> str | None:
    """Return a canonical form as text for people, cut to `SHOWN` characters; None for NULL."""
    if value is None:
        return None
    text = _shown(column, value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"


def _shown(column: ComparedColumn, value: bytes) -> str:
    try:
        match column.form:
            case Form.DAYS:
                return (date(1970, 1, 1) + timedelta(days=int(value))).isoformat()
            case Form.MICROS if column.type.name == "long":
                return _time(int(value))
            case Form.MICROS:
                moment = _EPOCH + timedelta(microseconds=int(value))
                zone = " UTC" if column.type.name == "timestamptz" else ""
                return moment.replace(tzinfo=None).isoformat(" ") + zone
            case Form.DOUBLE:
                return repr(struct.unpack("<d", value)[0])
            case Form.BYTES:
                return value.hex()
    except (OverflowError, ValueError, struct.error):
        pass  # MySQL has days before the year 1
    return value.decode("utf-8", "replace")


def _time(micros: int) -> str:
    seconds, rest = divmod(abs(micros), 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{'-' if micros < 0 else ''}{text}{f'.{rest:06d}' if rest else ''}"
