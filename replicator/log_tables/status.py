"""Read the state of log tables: without Spark, and without a running mirror."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from replicator.config import Config, KafkaLog
from replicator.config.log_tables import LogTableConfig
from replicator.errors import LogUnavailable
from replicator.lake.properties import LOG_TABLE_PAUSED_KEY, Pause, pauses_in
from replicator.lake.reading.catalog import load_readable, namespace_properties
from replicator.lake.reading.metadata_catalog import open_metadata
from replicator.lake.reading.table_metadata import TableMetadata, newest_marker
from replicator.lake.rows.counts import row_count
from replicator.log_tables.progress import lacks
from replicator.sources.kafka.topic_states import TopicState, topic_states

NEW: Final = "new"
CURRENT: Final = "current"
BEHIND: Final = "behind"
PAUSED: Final = "paused"
UNKNOWN: Final = "unknown"
UNREADABLE: Final = "unreadable"


@dataclass(frozen=True, slots=True)
class LogTableStatus:
    """The state of a log table. All times are milliseconds since the epoch.

    Attributes:
        state: `new`: it has no events yet; `current`: it has all events of the topic; `behind`; `paused`; `unknown`:
            Kafka does not answer; `unreadable`: the files of the table are missing.
        events_behind: number of events that it lacks; None if that is unknown.
        watermark_ms: the newest time of an event, if it has a column for that.
        committed_ms: when the newest commit was made.
        quarantined: number of its events that wait in the quarantine.
        reason, next_step: why it is not current, and what to do.
    """

    table: str
    topic: str
    state: str
    rows: int | None = None
    events_behind: int | None = None
    watermark_ms: int | None = None
    committed_ms: int | None = None
    commits: int = 0
    data_files: int = 0
    bytes: int = 0
    quarantined: int = 0
    reason: str | None = None
    next_step: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values for programs. The keys are part of version 1 of the output."""
        return asdict(self)


def list_log_tables(config: Config, quarantined: Counter[str | None]) -> tuple[LogTableStatus, ...]:
    """Return the state of each log table; `quarantined` has the number of events that wait, by table.

    Raises:
        LakeUnavailable: the catalog cannot be read.
    """
    if not config.log_tables or not isinstance(config.log, KafkaLog):
        return ()
    states, problem = _topics(config.log, {settings.topic for settings in config.log_tables})
    if config.lake.is_new:
        return tuple(_status(settings, None, None, states, problem, 0) for settings in config.log_tables)
    with open_metadata(config.lake) as catalog:
        pauses = pauses_in(namespace_properties(catalog, config.lake.ops_namespace), LOG_TABLE_PAUSED_KEY)
        found = []
        for settings in config.log_tables:
            unreadable: dict[str, str] = {}
            name = settings.table
            table = load_readable(catalog, settings.namespace, settings.name, unreadable)
            if (reason := unreadable.get(name)) is not None:
                step = "restore the files of the lake; the other tables are not affected"
                found.append(LogTableStatus(name, settings.topic, UNREADABLE, reason=reason, next_step=step))
            else:
                waiting = quarantined[name]
                found.append(_status(settings, table, pauses.get(name), states, problem, waiting))
        return tuple(found)


def _topics(log: KafkaLog, topics: set[str]) -> tuple[Mapping[str, TopicState], str | None]:
    # Few mirrors have log tables.
    from replicator.sources.kafka.admin import QUICK_S, KafkaAdmin  # noqa: PLC0415

    try:
        admin = KafkaAdmin(log, timeout_s=QUICK_S)
        return topic_states(admin, topics.__contains__), None
    except LogUnavailable as error:
        return {}, error.message


def _status(
    settings: LogTableConfig,
    table: TableMetadata | None,
    pause: Pause | None,
    states: Mapping[str, TopicState],
    problem: str | None,
    quarantined: int,
) -> LogTableStatus:
    marker = None if table is None else newest_marker(table)
    state = states.get(settings.topic)
    behind = None if state is None else lacks(state, settings.topic, marker)
    found, reason, step = _judged(settings, behind, problem, pause, is_new=marker is None)
    return LogTableStatus(
        settings.table,
        settings.topic,
        found,
        rows=None if table is None else row_count(table),
        events_behind=behind,
        watermark_ms=None if marker is None else marker.watermark_ms,
        committed_ms=None if marker is None else marker.committed_ms,
        commits=0 if marker is None else marker.sequence,
        data_files=0 if table is None else table.total("total-data-files"),
        bytes=0 if table is None else table.total("total-files-size"),
        quarantined=quarantined,
        reason=reason,
        next_step=step,
    )


def _judged(
    settings: LogTableConfig, behind: int | None, problem: str | None, pause: Pause | None, *, is_new: bool
) -> tuple[str, str | None, str | None]:
    """Return the state of a table, the reason if it is not current, and the next step."""
    if pause is not None:
        return PAUSED, pause.reason, pause.hint
    if problem is not None:
        return UNKNOWN, problem, "check that Kafka is running; run: replicator check"
    if behind is None:
        return NEW, f"Kafka has no topic {settings.topic}", "it is read once it exists"
    if behind:
        return BEHIND, None, "replicator run appends them; start it if it is not running"
    return (NEW if is_new else CURRENT), None, None
