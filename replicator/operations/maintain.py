"""Maintain all lake tables of a mirror on request: merge files, delete old snapshots and files without a snapshot.

Which tables need nothing is found without Java, which is started for the others only.
The mirror may run meanwhile. It then plans a batch again that conflicts with this command, and this command repeats a
step that conflicts with a batch.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from replicator.config import Config, MaintenanceConfig
from replicator.errors import CommitConflict, LakeError, LakeUnavailable, UsageError
from replicator.jvm.spark import check_java, first_line, running_session
from replicator.lake.catalog.tables import Lake
from replicator.lake.reading.folder_reader import read_folders
from replicator.lake.reading.folders import TableFolders
from replicator.lake.reading.metadata_catalog import open_metadata
from replicator.lake.reading.table_metadata import TableMetadata
from replicator.log_tables.retention import delete_expired, expired_before
from replicator.maintenance.orphans import may_have_orphans, why_orphans_stay
from replicator.maintenance.plan import MergedFiles, Step, TableFacts, due_steps
from replicator.maintenance.reports import StepReport
from replicator.maintenance.steps import Maintenance, table_facts
from replicator.maintenance.table_reader import (
    Target,
    has_many_manifests,
    mirror_tables,
    read_facts,
    read_namespaces,
    settings_of,
    steps_due,
)
from replicator.model.common import ShowProgress, matches, now_ms
from replicator.pipelines.results import result_tables

_ATTEMPTS: Final = 4
_CONFLICTS: Final = tuple(
    f"org.apache.iceberg.exceptions.{name}" for name in ("CommitFailedException", "ValidationException")
)
_CONFLICT: Final = (
    "the mirror committed meanwhile; it merges files itself while it runs, unless that is disabled"
)

_ALWAYS: Final = (Step.MANIFESTS, Step.ORPHANS)
"""Steps that find out by themselves whether they are due."""


@dataclass(frozen=True, slots=True)
class TableSize:
    """The numbers of a lake table; see `TableFacts`. They need no Java after they were read."""

    data_files: int
    delete_files: int
    rows: int
    deleted_rows: int
    bytes: int
    snapshots: int

    @staticmethod
    def of(facts: TableFacts) -> "TableSize":
        """Return the numbers of a table's facts."""
        return TableSize(
            data_files=facts.data_files,
            delete_files=facts.delete_files,
            rows=facts.rows,
            deleted_rows=facts.deleted_rows,
            bytes=facts.bytes,
            snapshots=len(facts.snapshot_ms),
        )


@dataclass(frozen=True, slots=True)
class TableReport:
    """What was found in a lake table, and what was done.

    Attributes:
        table: its name, with the namespace.
        source: the source table, `database.table`; None for the quarantine and results of pipelines.
        before, after: the numbers before and after the steps; `after` is None if nothing was to be changed.
        due: the steps that were due, apart from orphan files, which are searched in every table.
        done: the steps that were carried out.
        problems: the steps that could not be carried out → the reason.
    """

    table: str
    source: str | None
    before: TableSize
    after: TableSize | None = None
    due: tuple[Step, ...] = ()
    done: tuple[StepReport, ...] = ()
    problems: dict[Step, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for programs. The keys are part of version 1 of the output."""
        return asdict(self)


def maintain(
    config: Config,
    patterns: Collection[str] = (),
    *,
    dry_run: bool = False,
    on_progress: ShowProgress = lambda *_: None,
) -> tuple[TableReport, ...]:
    """Carry out the due maintenance of the lake tables; with `patterns`, only of source tables that one matches.

    Java is started for the tables that may need something. With `dry_run`, nothing is changed, and it is not started.
    `on_progress` is called with a text and the number of tables that are done and in all.

    Raises:
        UsageError: a pattern matches no table, or the tables belong to another mirror.
        LakeUnavailable: the catalog cannot be read.
        JavaMissing, JavaGone: Java is not installed, or ended.
    """
    found = _tables(config, patterns)
    if not found:
        return ()
    with open_metadata(config.lake):
        if dry_run:
            return tuple(_planned(config, target, table) for target, table in found)
        folders = _known_folders(config)
        reports = {target: _settled(config, target, table, folders) for target, table in found}
    if left := [target for target, report in reports.items() if report is None]:
        on_progress("starting Spark", 0, len(left))
        with running_session(config) as spark:
            maintained = maintain_tables(config, Lake(spark), left, on_progress=on_progress)
        by_name = {report.table: report for report in maintained}
        reports = {target: report or by_name.get(str(target)) for target, report in reports.items()}
    return tuple(report for report in reports.values() if report is not None)


def maintain_tables(
    config: Config,
    lake: Lake,
    targets: Sequence[Target],
    *,
    on_progress: ShowProgress = lambda *_: None,
) -> tuple[TableReport, ...]:
    """Carry out the due maintenance of some lake tables. A failure is reported; the other tables are maintained.

    Raises:
        JavaGone: Spark's Java process ended.
    """
    folders, reports = _known_folders(config), []
    for number, target in enumerate(targets):
        on_progress(str(target), number, len(targets))

        def on_step(step: Step, table: Target = target, done: int = number) -> None:
            on_progress(f"{table}: {step}", done, len(targets))

        settings, warehouse = settings_of(config, target), config.lake.warehouse
        expired = _expired(config, lake, target)
        report = maintain_table(lake, target, settings, folders, warehouse=warehouse, on_step=on_step)
        if report is not None:
            reports.append(replace(report, done=(*expired, *report.done)))
        on_progress(str(target), number + 1, len(targets))
    return tuple(reports)


def _expired(config: Config, lake: Lake, target: Target) -> list[StepReport]:
    """Delete the old partitions of a log table."""
    settings = next((s for s in config.log_tables if s.table == str(target)), None)
    before = None if settings is None else expired_before(settings, now_ms())
    table = None if before is None else lake.load(target.namespace, target.name)
    if settings is None or before is None or table is None:
        return []
    files = delete_expired(lake, table, settings, before)
    return [StepReport(Step.PARTITIONS, files)] if files else []


def _settled(
    config: Config, target: Target, table: TableMetadata, folders: Sequence[TableFolders] | LakeUnavailable
) -> TableReport | None:
    """Return the report of a table in which no step would change anything; None if that is not certain without Java.

    See `maintain_table` for `folders`.
    """
    settings, facts, now = settings_of(config, target), read_facts(table), now_ms()
    expires = any(log.table == str(target) and expired_before(log, now) for log in config.log_tables)
    if isinstance(folders, LakeUnavailable) or expires or due_steps(facts, MergedFiles(), settings, now):
        return None
    try:
        uuid, location = table.values["table-uuid"], table.values["location"]
        skipped = why_orphans_stay(
            str(target), uuid, location, table.properties.get, folders, config.lake.warehouse
        )
        searches = skipped is None and may_have_orphans(table, now - int(settings.orphan_age * 1000))
        if searches or has_many_manifests(table):
            return None
    except Exception:  # noqa: BLE001 - Java may be able to read it, or says what is wrong
        return None
    size = TableSize.of(facts)
    done = (StepReport(Step.MANIFESTS, 0), StepReport(Step.ORPHANS, 0, skipped=skipped))
    return TableReport(str(target), target.source, size, size, done=done)


def _known_folders(config: Config) -> tuple[TableFolders, ...] | LakeUnavailable:
    """Return the folders of all tables of the catalog, or why they are unknown."""
    try:
        return read_folders(config.lake)
    except LakeUnavailable as error:
        return error
    except Exception as error:  # noqa: BLE001 - the catalog may have tables of others with any metadata
        return LakeUnavailable(first_line(error))


def maintain_table(
    lake: Lake,
    target: Target,
    settings: MaintenanceConfig,
    folders: Sequence[TableFolders] | LakeUnavailable,
    warehouse: str | None = None,
    on_step: Callable[[Step], None] = lambda _: None,
) -> TableReport | None:
    """Carry out all due steps of a table, without limits of time and size. Return None if it does not exist.

    Args:
        folders: the folders of all tables of the catalog, or why they are unknown; then orphan files stay.
        warehouse: see `Maintenance`.
        on_step: called before each step.

    Raises:
        JavaGone: Spark's Java process ended.
    """
    if (table := lake.load(target.namespace, target.name)) is None:
        return None
    known, unknown = (None, folders) if isinstance(folders, LakeUnavailable) else (folders, None)
    due, done, problems = list[Step](), list[StepReport](), dict[Step, str]()
    always = _ALWAYS if unknown is None else {*_ALWAYS} - {Step.ORPHANS}
    facts = before = table_facts(table)

    def reload() -> None:
        nonlocal table
        if (found := lake.load(target.namespace, target.name)) is None:
            raise LakeUnavailable("the table was dropped or renamed meanwhile")
        table = found

    def attempt() -> StepReport:
        return Maintenance(lake, table, settings, folders=known, warehouse=warehouse).run(step)

    for step in Step:
        # The steps before may have done its work too, or may have made it due.
        is_due = step in due_steps(facts, MergedFiles(), settings, now_ms())
        if not is_due and step not in always:
            continue
        due += [step] if is_due else []
        on_step(step)
        try:
            done.append(without_conflicts(attempt, reload))
        except CommitConflict as error:
            problems[step] = error.message
        except (LakeError, PySparkException, Py4JError) as error:
            check_java(lake.spark)
            problems[step] = first_line(error)
            break
        facts = table_facts(table)
    if unknown is not None:
        problems[Step.ORPHANS] = f"the folders of the other tables are unknown: {unknown.message}"
    after = TableSize.of(table_facts(table))
    return TableReport(
        str(target), target.source, TableSize.of(before), after, tuple(due), tuple(done), problems
    )


def without_conflicts(attempt: Callable[[], StepReport], reload: Callable[[], None]) -> StepReport:
    """Carry out a step. If it conflicts with another commit, reload the table and try again, three times.

    Raises:
        CommitConflict: every attempt conflicted.
        LakeError: the step failed for another reason.
    """
    for _ in range(_ATTEMPTS):
        try:
            return attempt()
        except LakeError as error:
            if not is_conflict(error):
                raise
            reason = error
        reload()
    raise CommitConflict(f"{_CONFLICT} ({reason.message})")


def is_conflict(error: BaseException) -> bool:
    """Return whether an error, or the Java exception that caused it, says that another commit came first."""
    if isinstance(error, CommitConflict):
        return True
    cause = error.__cause__
    java: Any = cause.java_exception if isinstance(cause, Py4JJavaError) else None
    while java is not None:
        if java.getClass().getName() in _CONFLICTS:
            return True
        java = java.getCause()
    return False


def _tables(config: Config, patterns: Collection[str]) -> list[tuple[Target, TableMetadata]]:
    """Return the lake tables of the mirror, sorted by namespace and name.

    Raises:
        UsageError: a pattern matches none of them, or they belong to another mirror.
        LakeUnavailable: the catalog cannot be read.
    """
    found: list[tuple[Target, TableMetadata]] = []
    if not config.lake.is_new:
        with open_metadata(config.lake) as catalog:
            tables = list(
                mirror_tables(config, read_namespaces(config, catalog, None, result_tables(config)))
            )
        for known in tables:
            if known.mirror not in (None, config.mirror.name):
                raise UsageError(
                    f"{known.target} belongs to the mirror {known.mirror}",
                    "name the configuration of that mirror with -c",
                )
        found = [(known.target, known.table) for known in tables]
    for pattern in patterns:
        if not any(target.source and matches(target.source, [pattern]) for target, _ in found):
            raise UsageError(
                f"--table: {pattern!r} matches no source table that the lake has a table of",
                'write it as "database.table", as in "shop.orders" or "shop.*"',
            )
    if not patterns:
        return found
    return [entry for entry in found if entry[0].source and matches(entry[0].source, patterns)]


def _planned(config: Config, target: Target, table: TableMetadata) -> TableReport:
    """Return the facts about a table, and the steps that may be due: all files count, also those of the last merge."""
    due = steps_due(table, settings_of(config, target), MergedFiles(), now_ms())
    return TableReport(str(target), target.source, TableSize.of(read_facts(table)), due=due)
