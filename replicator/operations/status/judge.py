"""Determine the state of each table relative to the source, and what to do about it."""

from collections.abc import Mapping
from datetime import UTC, datetime

from replicator.config import Config
from replicator.lake.reading.table_metadata import TableMetadata
from replicator.lake.rows.counts import row_count
from replicator.model.commit_marker import CommitMarker
from replicator.model.common import counted, now_ms
from replicator.model.compared import Comparison
from replicator.model.recorded import names_in
from replicator.model.table import SOURCE_KEY, TableId, topic_name
from replicator.model.verified import proved_ms
from replicator.operations.status.lake_state import LakeState, Trouble
from replicator.operations.status.mirror_status import TableState, TableStatus
from replicator.schema.evolution.changes import (
    KEPT_KEY,
    SCHEMA_KEY,
    UNFILLED_KEY,
    SchemaState,
    kept_from_json,
)
from replicator.sources.oldest_unread import OldestUnread, Partition
from replicator.sources.source_view import SourceView

_WAIT = "replicator run applies them; start it if it is not running"
_GRACE_S = 5.0
"""Changes that are younger than the trigger and this are on their way. Connect confirms positions every few seconds."""


class Judge:
    """Determine the state of each table relative to the source."""

    def __init__(
        self,
        config: Config,
        lake: LakeState,
        view: SourceView,
        watermarks: list[int],
        oldest: OldestUnread | None = None,
    ) -> None:
        self._config = config
        self._lake = lake
        self._view = view
        self._oldest = oldest or OldestUnread()
        self._own_topics = {
            topic for table in lake.mirrors.values() for topic in own_topic(table, view.prefix)
        }
        self._grace_s = config.apply.trigger + _GRACE_S
        self._now_ms = now_ms()
        self._requested_ms = {str(request.table): request.requested_ms for request in lake.rereads}
        self._checks = {str(check.table): check for check in lake.verified}
        self._histories = {str(history.table): history for history in lake.checks}
        self._comparisons = {str(table): found for table, found in lake.comparisons.items()}
        self._equality_files = {entry.table: entry.equality_delete_files for entry in lake.maintenance}
        read = view.offset.ts_sec * 1000 if view.offset and view.offset.ts_sec else 0
        # Changes are read in order: a table that has a change was given all older changes.
        self._read_ms = max([read, *watermarks])

    def table(self, name: str, marker: CommitMarker) -> TableStatus:
        """Return the status of one mirrored table, or of a changelog without a mirror."""
        mirror, changelog = self._lake.mirrors[name], self._lake.changelogs.get(name)
        sources = sources_of(mirror, marker, self._view.prefix)
        missing = self.unread(name, marker)
        behind = None if missing is None else sum(last - first for first, last in missing.values())
        lag = self._lag(missing, marker.watermark_ms)
        text = mirror.properties.get(SCHEMA_KEY)
        schema = None if text is None else SchemaState.from_json(text)
        unfilled = mirror.properties.get(UNFILLED_KEY)
        state = self._state(behind, lag, sources, gone=schema is not None and schema.gone is not None)
        reason, next_step = self._reason(state, behind, sources)
        if state == "current" and (doubt := self._doubt(sources)) is not None:
            state, (reason, next_step) = "may differ", doubt
        name_in_lake, source = ".".join(mirror.name()), ", ".join(sources)
        compared = self._comparisons.get(source) or Comparison(TableId("", source))
        return TableStatus(
            table=name_in_lake,
            source=source,
            state=state,
            rows=row_count(mirror),
            changes=None if changelog is None else changelog.total("total-records"),
            events_behind=behind,
            position=None if marker.position is None else str(marker.position),
            newest_change_ms=marker.watermark_ms,
            lag_seconds=None if state in ("unknown", "excluded") else lag,
            committed_ms=marker.committed_ms,
            commits=marker.sequence,
            quarantined=sum(self._lake.quarantined[source] for source in sources),
            data_files=mirror.total("total-data-files"),
            delete_files=mirror.total("total-delete-files"),
            bytes=mirror.total("total-files-size"),
            schema_changes=() if schema is None else schema.notes,
            reason=reason,
            next_step=next_step,
            unfilled=() if unfilled is None else names_in(unfilled),
            snapshots=len(mirror.snapshots),
            equality_delete_files=self._equality_files.get(name_in_lake, 0),
            equality_deletes=mirror.total("total-equality-deletes"),
            kept=kept_from_json(mirror.properties.get(KEPT_KEY)),
            proved_at=proved_ms(self._checks.get(source), self._histories.get(source)),
            compared_at=compared.compared_ms,
            differences=compared.differences,
            differed_at=compared.differed_ms,
            difference=compared.cause,
        )

    def unread(self, name: str, marker: CommitMarker) -> dict[Partition, tuple[int, int]] | None:
        """Return the partitions with events that a table lacks, each with the first offset and the end.

        None if they are unknown. Kafka may have fewer events than offsets. The topic that a table had before it was
        renamed may be another table's now.
        """
        if self._view.ends is None:
            return None
        own = own_topic(self._lake.mirrors[name], self._view.prefix)
        topics = (marker.progress.keys() | marker.topic_ids.keys() | own) - (
            self._own_topics - own if own else set()
        )
        return {
            (topic, partition): (first, end)
            for (topic, partition), end in self._view.ends.items()
            if topic in topics and end > (first := marker.next_offset(topic, partition) or 0)
        }

    def _state(self, behind: int | None, lag: float | None, sources: list[str], *, gone: bool) -> TableState:
        # Of older mirrors, the tables are known only if the prefix is: an unreadable archive has none.
        if self._view.prefix and not any(map(self._config.includes, sources)):
            return "excluded"
        if not self._lake.paused.keys().isdisjoint(sources):
            return "paused"
        complete = self._view.log_is_complete
        if behind is None or complete is None:
            return "behind" if behind else "unknown"
        if (behind or not complete) and not self._is_young(lag):
            return "behind"
        return "gone" if gone else "current"

    def _doubt(self, sources: list[str]) -> tuple[str, str] | None:
        """Return why rows may differ from the source, and the next step; None if nothing says so."""
        for source in sources:
            found = self._lake.may_differ.get(source)
            reread = next((r for r in self._lake.rereads if str(r.table) == source), None)
            if found is not None and not found.is_settled(self._checks.get(source), reread):
                return found.reason, f"run: replicator verify {source} --repair"
        return None

    def _is_young(self, lag: float | None) -> bool:
        """Whether all that is missing is younger than the trigger. While a snapshot goes on, older rows are missing."""
        offset = self._view.offset
        reads_rows = self._view.is_asked and (offset is None or offset.in_snapshot)
        return lag is not None and lag < self._grace_s and not reads_rows

    def _reason(
        self, state: TableState, behind: int | None, sources: list[str]
    ) -> tuple[str | None, str | None]:
        if state == "excluded":
            step = f"none; or delete it: replicator drop {sources[0]}"
            return "the configuration does not include it", step
        for troubles, said in (
            (self._lake.paused, "{}"),
            (self._lake.retrying, "failed and is being retried: {}"),
        ):
            for source in sources:
                if trouble := troubles.get(source):
                    return said.format(trouble.reason), self._step(trouble, source)
        if state == "unknown":
            return self._unknown()
        if state != "behind":
            return None, None
        if behind:
            return self._log_behind(behind)
        return self._connector_behind()

    def _step(self, trouble: Trouble, source: str) -> str:
        step = trouble.hint or "fix the cause, then restart replicator run"
        if trouble.heal_ms is None or self._requested_ms.get(source, 0) >= trouble.heal_ms:
            return step
        at = datetime.fromtimestamp(trouble.heal_ms / 1000, UTC)
        when = "when it runs" if trouble.heal_ms <= self._now_ms else f"at {at:%Y-%m-%dT%H:%M:%SZ}"
        return f"{step}; or wait: the mirror reads the table again {when}"

    def _log_behind(self, behind: int) -> tuple[str, str]:
        found = counted(behind, "event of the log is", "events of the log are") + " not in the lake yet"
        seen = self._view.connector
        step = seen.next_step() if seen else None
        return (f"{found}; {seen.describe()}", f"{step}; {_WAIT}") if seen and step else (found, _WAIT)

    def _unknown(self) -> tuple[str, str]:
        view = self._view
        if view.log_problem:
            return view.log_problem, "check that Kafka is running; run: replicator check"
        if view.source_problem:
            return f"has all of the log; {view.source_problem}", "run: replicator check"
        connector = "the connector is unknown" if view.connector is None else view.connector.describe()
        step = view.connector.next_step() if view.connector else None
        return f"has all of the log; {connector}", step or "run: replicator check"

    def _connector_behind(self) -> tuple[str, str]:
        view, seen = self._view, self._view.connector
        if view.offset is None:
            at = f"the connector has confirmed nothing yet, the source is at {view.end}"
        elif view.offset.in_snapshot:
            at = "the initial snapshot is not complete"
        else:
            count = view.offset.transactions_behind(view.end) if view.end else None
            later = f", {counted(count, 'transaction')} later" if count else ""
            at = f"the connector has confirmed {view.offset}, the source is at {view.end}{later}"
        step = seen.next_step() if seen else None
        state = f"{seen.describe()}; " if seen and seen.state != "RUNNING" else ""
        return f"{state}{at}", step or "none: the connector is running, and confirms every few seconds"

    def _lag(
        self, missing: Mapping[Partition, tuple[int, int]] | None, watermark_ms: int | None
    ) -> float | None:
        """Return the age of the oldest missing change. If that is unknown: the age of the newest applied change."""
        complete = self._view.log_is_complete
        if missing is None or (complete is None and not missing):
            return None
        if complete and not missing:
            return 0.0
        times = [self._oldest.in_log.get(partition, watermark_ms) for partition in missing]
        if not missing:
            times = [self._oldest.in_source_ms or self._read_ms]
        known = [at for at in times if at]
        return max(0.0, (self._now_ms - min(known)) / 1000) if known else None


def sources_of(mirror: TableMetadata, marker: CommitMarker, prefix: str) -> list[str]:
    """Return the source tables of a mirror: as recorded at its creation; for older mirrors, from its topics' names."""
    recorded = mirror.properties.get(SOURCE_KEY)
    topics = marker.progress.keys() | marker.topic_ids.keys()
    return [recorded] if recorded else sorted(topic.removeprefix(prefix) for topic in topics)


def own_topic(mirror: TableMetadata, prefix: str) -> set[str]:
    """Return the topic of the source table that is recorded for a mirror; empty if none is."""
    database, _, name = mirror.properties.get(SOURCE_KEY, "").partition(".")
    return {prefix + topic_name(TableId(database, name))} if name else set()
