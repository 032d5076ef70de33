"""Define every error that `replicator` raises deliberately, as one tree.

The base classes say what failed: `SourceError` MySQL, `LogError` Kafka or an archive, `LakeError` Iceberg,
`ConnectError` Kafka Connect. A `SchemaError` concerns one table; the others are unaffected.

`message` describes the error in one line; `hint` is the next step for the operator. The command
line prints both and exits with `exit_code`.
"""

# ruff: noqa: N818 - the names say what happened; the word Error would only lengthen them

from enum import Enum, auto
from typing import ClassVar


class Remedy(Enum):
    """What ends the condition of a table that an error reports."""

    OPERATOR = auto()
    """The operator changes something, or runs a command."""
    REREAD = auto()
    """The table is read again from the source, which the mirror does by itself if it can."""
    WAIT = auto()
    """What is missing may still come: the table is tried again."""


class ReplicatorError(Exception):
    """Base class of all errors: `message` describes the error in one line, `hint` proposes the next step."""

    exit_code: ClassVar[int] = 3
    remedy: ClassVar[Remedy] = Remedy.OPERATOR
    stays_paused: ClassVar[bool] = False
    """Whether a table that pauses because of it stays paused at a restart, until it is read again."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[type["ReplicatorError"], tuple[str, str | None]]:
        # The default implementation would drop the hint when an error crosses a process boundary.
        return type(self), (self.message, self.hint)


class UsageError(ReplicatorError):
    """The command line is invalid."""

    exit_code = 2


class MirrorRuns(UsageError):
    """Another process on this machine runs the mirror."""


class ConfigError(ReplicatorError):
    """The configuration file is missing, unreadable or invalid."""

    exit_code = 2


class PipelineError(ConfigError):
    """A pipeline file cannot be used, or not with the tables that it reads."""

    @classmethod
    def at(
        cls, file: str, line: int, column: int | None, reason: str, hint: str | None = None
    ) -> "PipelineError":
        """Return the error for a place in a file; lines and columns are counted from 1."""
        place = f"{file}:{line}" if column is None else f"{file}:{line}:{column}"
        return cls(f"{place}: {reason}", hint or f"edit line {line} of {file}")


class PipelineUnfit(PipelineError):
    """A pipeline that does not fit the tables which the lake has now; other tables may come."""


class JavaMissing(ReplicatorError):
    """Java is missing on this machine, or too old."""

    exit_code = 2


class CheckFailed(ReplicatorError):
    """The command ran successfully, and its result is negative."""

    exit_code = 1


class NotCaughtUp(CheckFailed):
    """The run ended before the mirror was known to have reached the source's position at the start of the run."""


class SourceError(ReplicatorError):
    """Errors of MySQL."""

    remedy = Remedy.WAIT


class SourceUnavailable(SourceError):
    """MySQL cannot be reached, or refused the login."""


class LoginRefused(SourceUnavailable):
    """The source was reached, and refused the user or the password."""


class PrivilegeError(SourceError):
    """MySQL was reached, but the user lacks a privilege."""


class NoSuchTable(SourceError):
    """A table that the source does not have."""


class RowsChanged(SourceError):
    """The changes of a table while it was read cannot be followed, so it must be read from the beginning."""


class LogError(ReplicatorError):
    """Errors of the change log: Kafka topics or an event archive."""


class LogUnavailable(LogError):
    """The broker, the archive or the schema registry cannot be reached."""


class DataLossError(LogError):
    """The log no longer has events that the mirror needs."""


class ArchiveError(LogError):
    """An event archive is damaged or of an unknown version."""


class BinlogError(LogError):
    """Binary log files cannot be imported: damaged, incomplete, encrypted, or without the definitions of tables."""


class RegistryRefused(LogError):
    """The schema registry was reached, but refused the login or does not serve this URL."""


class LakeError(ReplicatorError):
    """Errors of Iceberg."""


class FencedError(LakeError):
    """Another writer has taken over this mirror."""


class CommitConflict(LakeError):
    """A commit conflicted with another commit and could not be repeated."""

    remedy = Remedy.WAIT


class CursorExpired(LakeError):
    """The lake no longer tells which changes a consumer lacks, because it was away for too long."""


class Unsettled(LakeError):
    """The mirror and the changelog of a table do not agree at the moment, so changes cannot follow the rows."""


class NoProgress(LakeError):
    """A batch applied changes, and the table's marker does not contain them."""


class LakeUnavailable(LakeError):
    """The catalog or the warehouse cannot be reached."""


class DecodeError(ReplicatorError):
    """An event cannot be decoded."""


class SchemaError(ReplicatorError):
    """Errors in the schema or rows of one table; other tables are unaffected."""


class UnsupportedChange(SchemaError):
    """A schema change that cannot be mirrored as configured."""


class UnknownValues(UnsupportedChange):
    """A schema change gave existing rows values that no log contains."""

    remedy = Remedy.REREAD


class UnloggedChange(UnsupportedChange):
    """A statement of the source changed rows of a table, and no event tells which."""

    remedy = Remedy.REREAD


class UnorderedTruncate(UnsupportedChange):
    """A TRUNCATE came in a topic of several partitions, so it is not known which changes are from before it."""

    remedy = Remedy.REREAD


class MissingKey(SchemaError):
    """A table has no key to match rows by."""


class UnfitColumns(SchemaError):
    """Column rules do not fit the table, or conflict with data written under earlier rules."""


class SharedTopic(SchemaError):
    """Several tables write to one topic."""


class NameTaken(SchemaError):
    """Another source table of the same name is mirrored to the same namespace."""


class MissingRows(SchemaError):
    """Events change rows that the mirror does not have, so the mirror differed from the source before them."""

    remedy = Remedy.REREAD


class ForeignTable(SchemaError):
    """A lake table has the name of one of the mirror's, and is not the mirror's."""


class ForeignChange(SchemaError):
    """Others changed a lake table in a way that the mirror cannot follow."""


class MirrorRolledBack(ForeignChange):
    """Others rolled a mirror back, or replaced it, so that its rows are not those of the last commit."""

    remedy = Remedy.REREAD


class ForeignColumns(SchemaError):
    """Others changed the columns of a lake table, or added columns whose values would be lost."""


class ColumnsDiffer(SchemaError):
    """The source table has other columns than its known definition, because one of them is newer."""


class UnknownPast(SchemaError):
    """The changes of a table before the next events are unknown."""

    remedy = Remedy.REREAD


class EventsLost(SchemaError):
    """The log no longer has events of a table that the lake needs."""

    remedy = Remedy.REREAD


class TailLost(EventsLost):
    """The log has lost its newest events. Once it has new ones, that cannot be noticed any more."""

    stays_paused = True


class TopicCompacted(SchemaError):
    """The topic of a table is compacted, so it may lack events, deletes among them."""

    stays_paused = True


class TransactionsNotNumbered(SchemaError):
    """An event of a compressed transaction may have been sent again, or be one of another statement.

    Once the source has deleted its binlog, it cannot tell any more that the transaction is compressed.
    """

    remedy = Remedy.REREAD
    stays_paused = True


class TransactionInterrupted(SchemaError):
    """A fail-over interrupted a transaction: its events may have been sent twice, or not at all."""

    remedy = Remedy.REREAD
    stays_paused = True


class PartitionsAdded(SchemaError):
    """The topic of a table has more partitions than before: the order of changes of one row is unknown."""

    remedy = Remedy.REREAD
    stays_paused = True


class EventsWrong(SchemaError):
    """The events of a table do not show its rows: an XA transaction was rolled back, or a statement or a foreign key
    changed rows without events.

    The binlog tells that only once.
    """

    remedy = Remedy.REREAD
    stays_paused = True


class ValuesDiffer(SchemaError):
    """Rows of a table differ from the source's again, soon after others were corrected.

    Whatever makes them differ would make the mirror read the table all the time.
    """

    stays_paused = True


class EventsRejected(SchemaError):
    """The connector cannot process events of a table, and leaves the table out."""

    stays_paused = True


class DefinitionWrong(EventsWrong):
    """The connector has another definition of a table than the source, so its events may have wrong values."""


class DefinitionUnclear(SchemaError):
    """The same as `DefinitionWrong`, and the connector cannot read all definitions again, or has done so in vain."""


class SourceChanged(SchemaError):
    """The connector took its snapshot again, perhaps of another server: changes from before may be missing."""

    remedy = Remedy.REREAD


class SnapshotLacksTable(SchemaError):
    """The connector took its snapshot again without rows of a table, and the mirror has rows from before."""

    remedy = Remedy.REREAD


class LateDefinition(SchemaError):
    """Events or the lake show a later definition of a table than is known, and the definition may still arrive."""

    remedy = Remedy.WAIT


class BeginningMissing(SchemaError):
    """An archive has only changes of a table from some moment on, and the lake has nothing of it."""


class OtherLog(SchemaError):
    """The lake has events of a table from another log than this archive, and their offsets cannot be compared."""


class MissingSchema(SchemaError):
    """Events have no schema, and no definition of their table is known."""

    remedy = Remedy.WAIT


class UnknownWriter(MissingSchema):
    """The writer schema of Avro events is unknown; their registry may be a different one."""


class TablePaused(ReplicatorError):
    """One table is paused, as configured, until the operator resolves its `quarantined` events."""

    def __init__(self, message: str, hint: str | None = None, quarantined: int = 0) -> None:
        super().__init__(message, hint)
        self.quarantined = quarantined


class JavaGone(ReplicatorError):
    """Spark's Java process ended while the mirror was running."""


class StackError(ReplicatorError):
    """Errors of the local development stack."""


class ConnectError(ReplicatorError):
    """Errors of Kafka Connect or the Debezium connector."""
