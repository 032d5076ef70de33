"""Read the lake tables of a mirror and what maintenance they need, without Java."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

from replicator.config import Config, MaintenanceConfig
from replicator.lake.catalog.metadata import has_deletion_vectors
from replicator.lake.properties import PIPELINE_CHECKS, QUARANTINE
from replicator.lake.reading.catalog import MetadataCatalog, load_readable, readable_tables_in
from replicator.lake.reading.manifests import read_manifests
from replicator.lake.reading.table_metadata import MAIN_BRANCH, TableMetadata, newest_marker
from replicator.lake.rows.counts import equality_delete_files
from replicator.maintenance.history import MAINTAINED_KEY, StepRuns, merged_files, step_runs
from replicator.maintenance.plan import (
    MOST_MANIFESTS,
    MergedFiles,
    Step,
    TableFacts,
    due_steps,
    overdue_steps,
)
from replicator.model.commit_marker import CommitMarker
from replicator.model.common import now_ms
from replicator.model.table import LOG_TOPIC_KEY, RESULT_KEY, SOURCE_KEY

_PARALLEL_READS: Final = 8

Namespaces = Mapping[str, Mapping[str, TableMetadata]]
"""Namespace → name → table."""


@dataclass(frozen=True, slots=True)
class Target:
    """A lake table to maintain; `source` is its source table, None for the quarantine and results of pipelines."""

    namespace: str
    name: str
    source: str | None

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"


@dataclass(frozen=True, slots=True)
class MirrorTable:
    """A lake table, and the mirror that writes it; None for the quarantine, which has no marker."""

    target: Target
    table: TableMetadata
    mirror: str | None


@dataclass(frozen=True, slots=True)
class TableCondition:
    """The maintenance of one lake table: what it has, what was done last, and what is due.

    Attributes:
        facts: see `TableFacts`; all snapshots count, also those that a tag or a branch keeps.
        equality_files: number of equality-delete files in the current snapshot.
        metadata_bytes: size of the current metadata file; None if it cannot be read.
        runs: the last run of each step.
        due: the steps that are due since the last merge.
        overdue: those of them that `replicator run` does not carry out soon by itself.
    """

    target: Target
    facts: TableFacts
    equality_files: int
    metadata_bytes: int | None
    runs: StepRuns
    due: tuple[Step, ...]
    overdue: tuple[Step, ...]


def read_namespaces(
    config: Config,
    catalog: MetadataCatalog,
    unreadable: dict[str, str] | None = None,
    results: Iterable[tuple[str, str]] = (),
) -> Namespaces:
    """Load all tables of the mirror's namespaces, its log tables, and the `results` that exist.

    See `load_readable` for `unreadable`.
    """
    found = {name: readable_tables_in(catalog, name, unreadable) for name in config.lake.namespaces}
    for namespace, name in (*config.log_table_names, *results):
        if (table := load_readable(catalog, namespace, name, unreadable)) is not None:
            found.setdefault(namespace, {})[name] = table
    return found


def mirror_tables(config: Config, namespaces: Namespaces) -> Iterator[MirrorTable]:
    """Yield what a mirror has committed to, with log tables and results, and tables of the namespace `_ops`.

    Raises:
        LakeUnavailable: a newer version of the engine wrote a marker.
    """
    ops = config.lake.ops_namespace
    for namespace, name, table in ((n, name, t) for n in namespaces for name, t in namespaces[n].items()):
        if namespace != ops and (marker := newest_marker(table)) is not None:
            yield MirrorTable(Target(namespace, name, _source(config, table, marker)), table, marker.mirror)
    for name in (QUARANTINE, PIPELINE_CHECKS):
        if name in (own := namespaces.get(ops, {})):
            yield MirrorTable(Target(ops, name, None), own[name], None)


def settings_of(config: Config, target: Target) -> MaintenanceConfig:
    """Return the settings of a lake table: those of its source table, or the mirror's for others."""
    return config.maintenance if target.source is None else config.table(target.source).maintenance


def read_conditions(config: Config, tables: Sequence[MirrorTable]) -> tuple[TableCondition, ...]:
    """Read the condition of each table, in parallel: the size of its metadata, and the list of its manifests.

    Of tables with equality deletes, the manifests of delete files are read too.
    """
    now = now_ms()
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        return tuple(pool.map(lambda found: _condition(config, found, now), tables))


def _condition(config: Config, found: MirrorTable, now: int) -> TableCondition:
    table, settings = found.table, settings_of(config, found.target)
    summaries = [(known.timestamp_ms, known.summary) for known in table.snapshots]
    runs = step_runs(summaries, table.properties.get(MAINTAINED_KEY))
    last = max((run.ms for run in runs.values()), default=0)
    due = steps_due(table, settings, merged_files(runs), now)
    # `replicator run` does not maintain the quarantine.
    automatic = settings.enabled and found.mirror is not None
    commits = sum(ms > last for ms, _ in summaries)
    return TableCondition(
        found.target,
        read_facts(table),
        equality_delete_files(table),
        _metadata_bytes(table),
        runs,
        due,
        overdue_steps(due, commits, settings) if automatic else due,
    )


def steps_due(
    table: TableMetadata, settings: MaintenanceConfig, merged: MergedFiles, now: int
) -> tuple[Step, ...]:
    """Return the steps that are due in a table, in order; without orphan files, which only a search can find."""
    facts = replace(read_facts(table), snapshot_ms=_expirable(table))
    due = due_steps(facts, merged, settings, now)
    if table.properties.get("gc.enabled", "").lower() == "false":
        due = tuple(step for step in due if step is not Step.EXPIRE)
    return (*due, Step.MANIFESTS) if has_many_manifests(table) else due


def has_many_manifests(table: TableMetadata) -> bool:
    """Return whether the manifests of the current snapshot are to be rewritten. Raises as `read_manifests`."""
    snapshot = table.snapshot
    return snapshot is not None and len(read_manifests(table.files, snapshot.manifest_list)) > MOST_MANIFESTS


def read_facts(table: TableMetadata) -> TableFacts:
    """Read the facts about a table."""
    times = tuple(known.timestamp_ms for known in table.snapshots)
    return TableFacts.of(table.total, times, has_vectors=has_deletion_vectors(table.format_version))


def _expirable(table: TableMetadata) -> tuple[int, ...]:
    """Return the times of the snapshots that no tag and no other branch keeps."""
    kept = {ref["snapshot-id"] for name, ref in table.refs.items() if name != MAIN_BRANCH}
    kept.discard(0 if table.snapshot is None else table.snapshot.id)
    return tuple(known.timestamp_ms for known in table.snapshots if known.id not in kept)


def _metadata_bytes(table: TableMetadata) -> int | None:
    """Return the size of the table's current metadata file; None if the catalog alone can read it."""
    try:
        return None if table.location is None else table.files.size(table.location)
    except OSError:
        return None


def _source(config: Config, table: TableMetadata, marker: CommitMarker) -> str | None:
    """Return a lake table's source table: as recorded at its creation; for older tables, from its topic's name."""
    if RESULT_KEY in table.properties or LOG_TOPIC_KEY in table.properties:
        return None
    recorded = table.properties.get(SOURCE_KEY)
    if recorded is not None:
        return recorded
    prefix = config.log.topic_prefix
    topic = min(marker.progress, default=None)
    return None if prefix is None or topic is None else topic.removeprefix(f"{prefix}.")
