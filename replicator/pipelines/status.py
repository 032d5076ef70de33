"""What the lake says of each pipeline, and how it is kept current. Without Java."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from statistics import median
from typing import Any, Final

from pyiceberg.exceptions import NoSuchNamespaceError

from replicator.config import Config
from replicator.errors import LakeUnavailable, PipelineError, ReplicatorError
from replicator.lake.properties import PIPELINE_PAUSED_KEY, Pause, pauses_in, text_hash
from replicator.lake.reading.catalog import MetadataCatalog, load_readable, namespace_properties
from replicator.lake.reading.metadata_catalog import open_metadata
from replicator.lake.reading.table_metadata import TableMetadata, newest_marker
from replicator.lake.rows.counts import row_count
from replicator.model.table import LOG_TOPIC_KEY
from replicator.model.types import LakeType, spark_sql_name
from replicator.pipelines.checked import CheckStatus, read_checks
from replicator.pipelines.costs import COSTS_KEY, Costs
from replicator.pipelines.files import (
    Broken,
    Pipeline,
    PipelineFiles,
    chosen,
    inputs_of,
    log_tables,
    read_pipelines,
    readable_namespaces,
)
from replicator.pipelines.history.definition import History, explained_history
from replicator.pipelines.output.record import RECORD_KEY, ResultRecord, record_of
from replicator.pipelines.query.analysis import InputSchema, analyse
from replicator.pipelines.query.definition import Definition
from replicator.pipelines.query.explain import explained
from replicator.pipelines.query.graph import reads
from replicator.pipelines.query.names import STATE, TableName
from replicator.pipelines.query.plan import Plan, plan_of

NEW: Final = "new"
CURRENT: Final = "current"
PAUSED: Final = "paused"
CHANGED: Final = "changed"
INVALID: Final = "invalid"
WAITING: Final = "waiting"


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """A pipeline and its result.

    Attributes:
        state: `new`: never refreshed; `current`: refreshed by its definition; `changed`: its definition differs from
            that of the result; `paused`; `invalid`: it does not fit the lake; `waiting`: for the first result of
            another pipeline, or the first events of a log table.
        table: the table of the result.
        rule: how it is kept current; None if that is unknown.
        reads: the tables that it reads.
        boundary: up to where the result is.
        refreshed_ms: when it was, milliseconds since the epoch.
        rows: number of its rows.
        waits_for: the results and log tables that it reads and that do not exist yet.
        problem, hint: why it is paused or invalid, and the next step.
        checks: what its checks of the data found in the last day.
        refresh: what the header says: incremental, auto or full.
        seconds_changes, images: what refreshes by changes take, and how many images of changes they read.
        seconds_whole: what the result takes as a whole. All are None as long as they are unknown.
    """

    name: str
    file: str
    description: str
    state: str
    table: str
    rule: str | None
    reads: tuple[str, ...]
    boundary: str | None = None
    refreshed_ms: int | None = None
    rows: int | None = None
    waits_for: tuple[str, ...] = ()
    problem: str | None = None
    hint: str | None = None
    checks: tuple[CheckStatus, ...] = ()
    refresh: str | None = None
    seconds_changes: float | None = None
    images: int | None = None
    seconds_whole: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values for programs. The keys are part of version 1 of the output."""
        value = asdict(self)
        ms = value.pop("refreshed_ms")
        value["refreshed"] = None if ms is None else datetime.fromtimestamp(ms / 1000, UTC).isoformat()
        return value


@dataclass(frozen=True, slots=True)
class Explained:
    """A pipeline with its plan.

    Attributes:
        plan: how it is kept current, in lines; none if it is invalid.
        steps: the queries of a refresh, in their order, by the names of their views.
        full: the query for the whole result.
    """

    status: PipelineStatus
    plan: tuple[str, ...] = ()
    steps: tuple[tuple[str, str], ...] = ()
    full: str | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    """A pipeline and how it is kept current; None if it is invalid."""

    status: PipelineStatus
    plan: Plan | History | None

    def explained(self) -> Explained:
        match self.plan:
            case None:
                return Explained(self.status)
            case History():
                return Explained(self.status, tuple(explained_history(self.plan)))
        steps = tuple((step.view, step.sql) for step in (*self.plan.before, *self.plan.steps))
        return Explained(self.status, tuple(explained(self.plan)), steps, self.plan.full)


def list_pipelines(config: Config) -> list[PipelineStatus]:
    """Return all pipelines, each after those that it reads; then those whose file cannot be used.

    Raises:
        LakeUnavailable: the catalog cannot be read.
    """
    files = read_pipelines(config)
    found = [found.status for found in _read(config, files, files.pipelines)]
    return [*found, *(_broken(name, broken) for name, broken in files.broken.items())]


def show_pipeline(config: Config, name: str) -> tuple[Explained, ...]:
    """Return a pipeline with its plan, after it those that it reads and those that read it, in the order of refreshes.

    Raises:
        UsageError: there is no pipeline of the name.
        PipelineError: its file cannot be used.
        LakeUnavailable: as `list_pipelines`.
    """
    files = read_pipelines(config)
    related = _related(files, chosen(files, [name], config)[0])
    found = [known.explained() for known in _read(config, files, related)]
    return (next(e for e in found if e.status.name == name), *found)


def _related(files: PipelineFiles, wanted: Pipeline) -> list[Pipeline]:
    """Return a pipeline with those of which it is computed and those that are computed of it, in their order."""
    related, after = {pipeline.name for pipeline in files.with_inputs([wanted.name])}, [wanted.table]
    for pipeline in files.pipelines:
        if any(name.names(table) for name in inputs_of(pipeline) for table in after):
            related.add(pipeline.name)
            after.append(pipeline.table)
    return [pipeline for pipeline in files.pipelines if pipeline.name in related]


def _broken(name: str, broken: Broken) -> PipelineStatus:
    error = broken.error
    return PipelineStatus(
        name, broken.file, "", INVALID, str(broken.table), None, (), problem=error.message, hint=error.hint
    )


def _read(config: Config, files: PipelineFiles, wanted: Sequence[Pipeline]) -> list[_Found]:
    if config.lake.is_new:
        # Without a lake, nothing is known of the tables.
        return [
            _Found(_status(each, None, {}), each if isinstance(each, History) else None) for each in wanted
        ]
    with open_metadata(config.lake) as catalog:
        known = KnownTables(catalog, config, files)
        pauses = pauses_in(namespace_properties(catalog, config.lake.ops_namespace), PIPELINE_PAUSED_KEY)
        found = [_found(pipeline, known, pauses) for pipeline in wanted]
        checks = read_checks(config.lake, catalog)
    return [replace(e, status=replace(e.status, checks=checks.get(e.status.name, ()))) for e in found]


def _found(pipeline: Pipeline, known: "KnownTables", pauses: Mapping[str, Pause]) -> _Found:
    if isinstance(pipeline, History):
        return _Found(_status(pipeline, known.load(pipeline.table), pauses), pipeline)
    plan, problem = None, None
    waits_for = known.missing_results(pipeline)
    try:
        plan = plan_of(analyse(pipeline, known.schemas(pipeline)))
    except PipelineError as error:
        # The columns of a result are known when it was computed.
        problem = None if waits_for else error
    result = known.load(pipeline.table)
    return _Found(_status(pipeline, result, pauses, plan, known.lost(pipeline) or problem, waits_for), plan)


def _status(
    pipeline: Pipeline,
    result: TableMetadata | None,
    pauses: Mapping[str, Pause],
    plan: Plan | None = None,
    problem: ReplicatorError | None = None,
    waits_for: tuple[str, ...] = (),
) -> PipelineStatus:
    properties = {} if result is None else result.properties
    record = record_of(properties.get(RECORD_KEY), str(pipeline.table))
    pause = pauses.get(pipeline.name)
    costs = Costs.of(properties.get(COSTS_KEY), "" if record is None else record.fingerprint)
    images = round(median(i for i, _ in costs.changes)) if costs.changes else None
    state = WAITING if waits_for else _state(record, plan)
    boundary, refreshed_ms = _reached(result, record)
    found, hint = (None, None) if problem is None else (problem.message, problem.hint)
    if pause is not None and pause.text in (None, text_hash(pipeline.text)):
        state, found, hint = PAUSED, found or pause.reason, hint or pause.hint
    if problem is not None:
        state = INVALID
    name, table = pipeline.name, str(pipeline.table)
    if isinstance(pipeline, History):
        status = PipelineStatus(
            name,
            "configuration",
            f"history of {pipeline.mirror}",
            state,
            table,
            str(pipeline.kind),
            (str(pipeline.mirror), str(pipeline.mirror.changes)),
        )
    else:
        status = PipelineStatus(
            name,
            pipeline.file,
            pipeline.description,
            state,
            table,
            None if plan is None else str(plan.rule),
            tuple(map(str, reads(pipeline))),
            refresh=str(pipeline.refresh),
        )
    return replace(
        status,
        boundary=boundary,
        refreshed_ms=refreshed_ms,
        rows=None if result is None else row_count(result),
        waits_for=waits_for,
        problem=found,
        hint=hint,
        seconds_changes=None if images is None else costs.seconds_for(images),
        images=images,
        seconds_whole=costs.seconds_whole(),
    )


def _reached(result: TableMetadata | None, record: ResultRecord | None) -> tuple[str | None, int | None]:
    """Return up to where a result is, and when it was written."""
    marker = None if result is None else newest_marker(result)
    if record is None or marker is None:
        return None if record is None else str(record.boundary), None
    return str(marker.position or record.boundary), marker.committed_ms


def _state(record: ResultRecord | None, plan: Plan | None) -> str:
    if record is None:
        return NEW
    return CHANGED if plan is not None and plan.fingerprint != record.fingerprint else CURRENT


class KnownTables:
    """The tables of the lake that pipelines may read, loaded when they are needed."""

    def __init__(self, catalog: MetadataCatalog, config: Config, files: PipelineFiles) -> None:
        self._catalog, self._config, self._results = catalog, config, set(files.results)
        self._logged = {d.table for d in files.definitions if d.changelog}
        self._loaded: dict[TableName, TableMetadata | None] = {}
        self._unreadable: dict[str, str] = {}
        self._names: list[TableName] | None = None

    def load(self, name: TableName) -> TableMetadata | None:
        """Load a table; None if there is none."""
        if name not in self._loaded:
            self._loaded[name] = load_readable(self._catalog, name.namespace, name.name, self._unreadable)
        return self._loaded[name]

    def missing_results(self, definition: Definition) -> tuple[str, ...]:
        """Return the results of other pipelines, and the log tables, that it reads and that do not exist yet."""
        known, wanted = {*self._results, *log_tables(self._config)}, reads(definition)
        found = (result for result in known if any(name.names(result) for name in wanted))
        return tuple(sorted(str(result) for result in found if self.load(result) is None))

    def lost(self, definition: Definition) -> LakeUnavailable | None:
        """Return which of the tables of a pipeline that were loaded cannot be read, and why; None if all can be."""
        found = [
            f"{name}: {self._unreadable[str(name)]}"
            for name in self._loaded
            if str(name) in self._unreadable
            and (name == definition.table or any(wanted.names(name) for wanted in reads(definition)))
        ]
        hint = "restore the files of the lake; the other tables are not affected"
        return LakeUnavailable("; ".join(found), hint) if found else None

    def schemas(self, definition: Definition) -> dict[TableName, InputSchema]:
        """Return the schemas of the tables that a pipeline reads, and if one is missing, the names of all others."""
        found: dict[TableName, InputSchema] = {}
        for wanted in reads(definition):
            if not wanted.is_pattern and (table := self.load(wanted)) is not None:
                found[wanted] = self._schema(wanted, table)
                continue
            names = [name for name in self._every() if wanted.names(name)]
            found |= {
                name: self._schema(name, table) for name in names if (table := self.load(name)) is not None
            }
            if not names:
                found |= {name: InputSchema({}) for name in self._every() if name not in found}
        return found

    def _every(self) -> list[TableName]:
        if self._names is None:
            spaces = readable_namespaces(self._config, self._results)
            self._names = [name for space in sorted(spaces) for name in self._in(space)]
        return self._names

    def _in(self, namespace: str) -> list[TableName]:
        try:
            return sorted(TableName(namespace, found[-1]) for found in self._catalog.list_tables(namespace))
        except NoSuchNamespaceError:
            return []

    def _schema(self, name: TableName, table: TableMetadata) -> InputSchema:
        lake, fields = self._config.lake, table.schema["fields"]
        columns = {field["name"]: _sql_type(field["type"]) for field in fields}
        if name in self._results:
            record = record_of(table.properties.get(RECORD_KEY), str(name))
            columns.pop(STATE, None)
            # It is made at the next refresh, before those that read the result.
            has_changes = name in self._logged or self.load(name.changes) is not None
            return InputSchema(columns, () if record is None else record.key, has_changes, is_result=True)
        if LOG_TOPIC_KEY in table.properties:
            return InputSchema(columns, is_log=True)
        if name.namespace == lake.changes_namespace:
            return InputSchema(columns)
        key = tuple(field["name"] for field in fields if field["required"])
        has_changes = self.load(TableName(lake.changes_namespace, name.name)) is not None
        return InputSchema(columns, key, has_changes and not self._config.log.flattened)


def _sql_type(kind: Any) -> str:
    """Return the name of a type, in Iceberg's JSON form, in Spark SQL."""
    match kind:
        case {"type": "struct", "fields": fields}:
            inner = ",".join(f"{field['name']}:{_sql_type(field['type'])}" for field in fields)
            return f"struct<{inner}>"
        case {"type": "list", "element": element}:
            return f"array<{_sql_type(element)}>"
        case {"type": "map", "key": key, "value": value}:
            return f"map<{_sql_type(key)},{_sql_type(value)}>"
        case _:
            try:
                return spark_sql_name(LakeType.parse(str(kind))).replace(" ", "")
            except ValueError:
                return str(kind)
