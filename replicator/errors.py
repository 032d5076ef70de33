"""Every error that `replicator` raises on purpose, as one tree.

    ReplicatorError                 exit 3   anything below, for one `except`
    ├── UsageError                  exit 2   the command line makes no sense
    ├── ConfigError                 exit 2   the configuration file is wrong
    ├── JavaMissing                 exit 2   no Java, or one that is too old
    ├── CheckFailed                 exit 1   the answer is no: a preflight check or comparison failed
    ├── SourceError                 exit 3   the MySQL side
    │   ├── SourceUnavailable                cannot be reached, or refused the login
    │   └── PrivilegeError                   reached, but the user may not do what is needed
    ├── LogError                    exit 3   the change log: Kafka topics or an event archive
    │   ├── LogUnavailable                   broker, archive or schema registry cannot be reached
    │   ├── DataLossError                    events that the mirror still needs are gone
    │   ├── ArchiveError                     an archive is damaged or of an unknown version
    │   └── RegistryRefused                  the schema registry was reached and does not do what is asked
    ├── LakeError                   exit 3   the Iceberg side
    │   ├── FencedError                      another writer has taken over this mirror
    │   ├── CommitConflict                   a commit lost a race and could not be repeated
    │   └── LakeUnavailable                  catalog or warehouse cannot be reached
    ├── DecodeError                 exit 3   an event that cannot be understood
    ├── SchemaError                 exit 3   one table's schema or rows, the other tables are unaffected
    │   ├── UnsupportedChange                a schema change that cannot be mirrored as configured
    │   ├── MissingKey                       a table without a key that rows can be matched by
    │   ├── UnfitColumns                     column rules that do not fit the table
    │   ├── SharedTopic                      several tables write to one topic
    │   ├── MissingRows                      changes of rows that the mirror does not have
    │   ├── UnknownPast                      a topic that was made anew and does not begin with a snapshot
    │   └── MissingSchema                    events without a schema, of a table that is not defined anywhere
    │       └── UnknownWriter                events in Avro whose writer schema the registry does not have
    ├── TablePaused                 exit 3   one table stops, as configured, until somebody looks
    ├── JavaGone                    exit 3   Spark's Java process ended under the mirror
    ├── StackError                  exit 3   the local development stack
    └── ConnectError                exit 3   Kafka Connect or the Debezium connector

`message` says what is wrong, in one line; `hint` is the next step that the reader can take. The command
line prints both and exits with `exit_code`.
"""

# ruff: noqa: N818 - the names say what happened; the word Error would only lengthen them

from typing import ClassVar


class ReplicatorError(Exception):
    """What went wrong (`message`, one line) and what to do next (`hint`)."""

    exit_code: ClassVar[int] = 3

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[type["ReplicatorError"], tuple[str, str | None]]:
        # The default would drop the hint where an error crosses a process boundary.
        return type(self), (self.message, self.hint)


class UsageError(ReplicatorError):
    """The command line makes no sense."""

    exit_code = 2


class ConfigError(ReplicatorError):
    """The configuration file is missing, unreadable or wrong."""

    exit_code = 2


class JavaMissing(ReplicatorError):
    """No Java on this machine, or one that is too old."""

    exit_code = 2


class CheckFailed(ReplicatorError):
    """The command worked; its answer is no."""

    exit_code = 1


class SourceError(ReplicatorError):
    """The MySQL side."""


class SourceUnavailable(SourceError):
    """MySQL cannot be reached, or refused the login."""


class PrivilegeError(SourceError):
    """MySQL was reached, but the user may not do what is needed."""


class LogError(ReplicatorError):
    """The change log: Kafka topics or an event archive."""


class LogUnavailable(LogError):
    """The broker, the archive or the schema registry cannot be reached."""


class DataLossError(LogError):
    """Events that the mirror still needs are gone from the log."""


class ArchiveError(LogError):
    """An event archive is damaged or of an unknown version."""


class RegistryRefused(LogError):
    """The schema registry was reached, but refuses the login, or has no such address."""


class LakeError(ReplicatorError):
    """The Iceberg side."""


class FencedError(LakeError):
    """Another writer has taken over this mirror."""


class CommitConflict(LakeError):
    """A commit lost a race and could not be repeated."""


class LakeUnavailable(LakeError):
    """The catalog or the warehouse cannot be reached."""


class DecodeError(ReplicatorError):
    """An event that cannot be understood."""


class SchemaError(ReplicatorError):
    """One table's schema or rows; the other tables are unaffected."""


class UnsupportedChange(SchemaError):
    """A schema change that cannot be mirrored as configured."""


class MissingKey(SchemaError):
    """A table without a key that rows can be matched by."""


class UnfitColumns(SchemaError):
    """Column rules that do not fit the table, or not what was written by earlier ones."""


class SharedTopic(SchemaError):
    """Several tables write to one topic."""


class MissingRows(SchemaError):
    """Changes of rows that the mirror does not have: it is not what the source was."""


class UnknownPast(SchemaError):
    """Nothing tells what happened to a table before the events that come next."""


class MissingSchema(SchemaError):
    """Events without a schema, of a table that no definition is known of."""


class UnknownWriter(MissingSchema):
    """Events in Avro of which no writer schema is known: their registry may be another one."""


class TablePaused(ReplicatorError):
    """One table stops, as it is configured to, until somebody looks at its `quarantined` events."""

    def __init__(self, message: str, hint: str | None = None, quarantined: int = 0) -> None:
        super().__init__(message, hint)
        self.quarantined = quarantined


class JavaGone(ReplicatorError):
    """Spark's Java process ended under the mirror."""


class StackError(ReplicatorError):
    """The local development stack."""


class ConnectError(ReplicatorError):
    """Kafka Connect or the Debezium connector."""
