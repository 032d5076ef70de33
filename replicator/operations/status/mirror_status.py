"""The status of a mirror, its tables and its connector, as values."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from replicator.lake.reading.tags import TagStatus
from replicator.model.reread import Request
from replicator.model.verified import CheckHistory, VerifiedTable
from replicator.schema.evolution.changes import ChangeNote, KeepRows

if TYPE_CHECKING:
    from replicator.log_tables.status import LogTableStatus
    from replicator.pipelines.status import PipelineStatus

TableState = Literal["current", "may differ", "behind", "paused", "gone", "excluded", "unknown", "unreadable"]
MirrorState = Literal["starting", "running", "ended", "killed", "unknown"]


@dataclass(frozen=True, slots=True)
class RunStatus:
    """Whether the mirror runs. Times are milliseconds since the epoch.

    Attributes:
        state: starting (it does not apply changes yet), running, ended, killed, or unknown: it never ran with this
            state folder.
        pid, host: its process, or that of its last run; None if unknown.
        since_ms: when it began; if it does not run, when it ended or was last seen.
        batch_ms: when its last batch ended; None if it has made none.
        reason: why it ended; None if it was stopped by a signal, or had caught up.
    """

    state: MirrorState
    pid: int | None = None
    host: str | None = None
    since_ms: int | None = None
    batch_ms: int | None = None
    reason: str | None = None

    @property
    def is_alive(self) -> bool:
        """Whether the mirror runs."""
        return self.state in ("starting", "running")


@dataclass(frozen=True, slots=True)
class Problem:
    """What keeps all tables from being current: the reason, and the next step."""

    reason: str
    next_step: str | None


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The status of one mirrored table.

    Attributes:
        table: its name in the lake, `namespace.name`; for a table with only a changelog, the changelog's name.
        source: the source table, `database.table`.
        state: one of

            - current: has all changes of the source but those of the last seconds; of the log, if the source is not
              asked.
            - may differ: as current, but foreign keys may have changed rows without events.
            - behind: the source or the log has more changes.
            - paused: stopped, until its cause is removed.
            - gone: the source's table was dropped or renamed, and all its changes are in the lake.
            - excluded: the configuration does not include it, so it gets no changes.
            - unknown: the log, the source or the connector cannot be reached.
            - unreadable: files of the table are missing or cannot be read.
        rows: number of rows of the mirror; None if that is unknown, because it has equality deletes.
        changes: number of rows of the changelog; None if there is no changelog.
        events_behind: number of offsets in the log that the mirror does not contain; None if unknown.
        position: the latest source position that it contains.
        newest_change_ms: source time of the newest change that it contains, milliseconds since the epoch.
        lag_seconds: the age of the oldest change that is not applied, 0 if all are; None if unknown. If it cannot be
            read, it is the age of the newest applied change, which is at least as old.
        committed_ms: time of the last commit, milliseconds since the epoch.
        commits: number of commits of the mirror.
        quarantined: number of unresolved quarantined events of this table.
        data_files, delete_files, bytes: size of the mirror's current snapshot.
        schema_changes: changes made to the mirror because its source changed, oldest first; see `ChangeNote`.
        reason, next_step: why the table is not current, or is tried again, and what to do.
        unfilled: columns that the source added with an expression; older rows have null in them.
        snapshots: number of Iceberg snapshots of the mirror.
        kept: the statements that changed rows in the source without events, after which the mirror kept its rows.
        equality_delete_files, equality_deletes: how many of the delete files have keys instead of positions, and their
            number of keys. Readers compare the keys with the rows of all data files of earlier commits.
        proved_at: when all its rows were last found equal to the source's, milliseconds since the epoch; None if that
            is not recorded.
        compared_at: the same, for rows that had changed recently.
        differences: how often the running mirror found rows that differ.
        differed_at: when it last did.
        difference: what differed then.
    """

    table: str
    source: str
    state: TableState
    rows: int | None
    changes: int | None
    events_behind: int | None
    position: str | None
    newest_change_ms: int | None
    lag_seconds: float | None
    committed_ms: int
    commits: int
    quarantined: int
    data_files: int
    delete_files: int
    bytes: int
    schema_changes: tuple[ChangeNote, ...] = ()
    reason: str | None = None
    next_step: str | None = None
    unfilled: tuple[str, ...] = ()
    snapshots: int = 0
    equality_delete_files: int = 0
    equality_deletes: int = 0
    kept: tuple[KeepRows, ...] = ()
    proved_at: int | None = None
    compared_at: int | None = None
    differences: int = 0
    differed_at: int | None = None
    difference: str | None = None


@dataclass(frozen=True, slots=True)
class TableMaintenance:
    """The maintenance of one lake table: a mirror, a changelog, the quarantine, or the result of a pipeline.

    Attributes:
        table: its name in the lake, `namespace.name`.
        source: the source table, `database.table`; None for the quarantine and results of pipelines.
        data_files, delete_files, bytes: content of the current snapshot.
        snapshots: number of Iceberg snapshots.
        metadata_bytes: size of the current metadata file; None if it cannot be read.
        maintained_ms: the time of the last maintenance, milliseconds since the epoch; None if none is recorded.
        steps: each recorded step → the time of its last run.
        due: the steps that are due.
        overdue: those of them that `replicator run` does not carry out soon by itself.
        equality_delete_files, equality_deletes: as for `TableStatus`.
    """

    table: str
    source: str | None
    data_files: int
    delete_files: int
    bytes: int
    snapshots: int
    metadata_bytes: int | None
    maintained_ms: int | None
    steps: Mapping[str, int]
    due: tuple[str, ...]
    overdue: tuple[str, ...]
    equality_delete_files: int = 0
    equality_deletes: int = 0


@dataclass(frozen=True, slots=True)
class ConnectorStatus:
    """The connector of a mirror, compared with its source.

    Attributes:
        name: its name; None if there is none, or Kafka Connect cannot be reached.
        state: RUNNING, FAILED, PAUSED, STOPPED, UNASSIGNED, RESTARTING, MISSING or UNREACHABLE.
        reason, next_step: why it does not run, and what to do.
        position: the position up to which all changes are in the log, as last confirmed.
        source_position: the end of the source's binlog; None if the source cannot be reached.
        transactions_behind: number of transactions between the two; None if the source does not number them.
    """

    name: str | None
    state: str
    reason: str | None
    next_step: str | None
    position: str | None
    source_position: str | None
    transactions_behind: int | None


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """The status of a whole mirror.

    `log_problem` and `source_problem` say why the log and the source could not be queried; None if they could.
    `paused` maps each paused source table to the reason. `connector` is None if none is configured.
    """

    mirror: str
    namespace: str
    tables: tuple[TableStatus, ...]
    not_started: tuple[str, ...]
    """Source tables with events in the log but without a table in the lake."""
    paused: Mapping[str, str]
    quarantined: int
    log_problem: str | None
    source_problem: str | None = None
    connector: ConnectorStatus | None = None
    empty: tuple[str, ...] = ()
    """Source tables without rows, without events in the log and without a table in the lake."""
    unread: tuple[str, ...] = ()
    """Source tables with rows but without events in the log."""
    retrying: Mapping[str, str] = field(default_factory=dict)
    """Source tables that failed and are being retried → the reason."""
    maintenance: tuple[TableMaintenance, ...] = ()
    """All lake tables of the mirror: mirrors, changelogs, the quarantine, and results of pipelines."""
    rereads: tuple[Request, ...] = ()
    """The newest re-read of each table that was read again."""
    tags: tuple[TagStatus, ...] = ()
    """The tags of all tables at one source position, oldest first."""
    verified: tuple[VerifiedTable, ...] = ()
    """The newest check of each table that was compared with the source."""
    checks: tuple[CheckHistory, ...] = ()
    """Past checks of each table, without the newest."""
    run: RunStatus | None = None
    """Whether the mirror runs; None for an archive, which is applied up to its end."""
    problems: tuple[Problem, ...] = ()
    """What concerns all tables."""
    lag_seconds: float | None = None
    """The greatest lag of the tables that get changes; None if none is known."""
    pipelines: "tuple[PipelineStatus, ...]" = ()
    """The pipelines and their results, each after those that it reads."""

    log_tables: "tuple[LogTableStatus, ...]" = ()
    """The tables to which events of other topics are appended."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values for programs. The keys are part of version 1 of the output."""
        value = {"version": 1, **asdict(self), "rereads": [request.values() for request in self.rereads]}
        value["verified"] = [check.values() for check in self.verified]
        # Programs may expect it: earlier versions let the connector send lost events again.
        value["rewinds"] = []
        value["pipelines"] = [pipeline.to_json() for pipeline in self.pipelines]
        value["checks"] = [history.values() for history in self.checks]
        for table in value["tables"]:
            for note in table["schema_changes"]:
                note["told"] = note.pop("declared")
        return value
