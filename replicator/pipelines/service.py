"""The pipelines of a mirror: refresh all of them, or some, to one boundary of the source.

A pipeline that cannot be refreshed stops only those that read its result.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import SparkSession

from replicator.config import Config
from replicator.errors import (
    CommitConflict,
    FencedError,
    ForeignTable,
    JavaGone,
    LakeUnavailable,
    PipelineUnfit,
    ReplicatorError,
    Unsettled,
    UnsupportedChange,
)
from replicator.jvm.spark import compile_plans, first_line
from replicator.lake.catalog.tables import Lake
from replicator.lake.others import refuse_foreign
from replicator.lake.pauses import Pauses
from replicator.lake.properties import PIPELINE_PAUSED_KEY, Pause, text_hash
from replicator.lake.recent_changes import RecentChanges
from replicator.lake.rows.locations import RowLocationCache
from replicator.lake.tags import create_tag
from replicator.model.common import retried
from replicator.pipelines.files import Pipeline, PipelineFiles, chosen, inputs_of, of_log_tables
from replicator.pipelines.history.definition import History
from replicator.pipelines.history.refresh import HistoryRefresh
from replicator.pipelines.inputs.boundary import Boundary
from replicator.pipelines.inputs.log_ends import LogEnds
from replicator.pipelines.inputs.tables import InputKind, InputTable, InputTables, recorded_result
from replicator.pipelines.output.changelog import ResultChangelog
from replicator.pipelines.output.check_log import CheckCounts, CheckLog
from replicator.pipelines.output.record import ResultRecord
from replicator.pipelines.output.table import ResultTables
from replicator.pipelines.query.definition import Definition
from replicator.pipelines.query.names import TableName
from replicator.pipelines.refresh.planner import Planner
from replicator.pipelines.refresh.refresh import Outcome, Refresh, Refreshed
from replicator.telemetry import get_logger

_INTERPRETED: Final = 500_000
"""For inputs with at most this many rows, plans are not worth compiling: a refresh that reads all of them is faster."""
_PASSING: Final = (PipelineUnfit, UnsupportedChange, LakeUnavailable)
"""Errors that may end without another file: the pipeline is tried at each refresh."""

_LOG: Final = get_logger("replicator.pipelines")
OnPipeline = Callable[[str, int, int], None]
"""Called with the name of a pipeline, and the number of pipelines that are done and in all."""


@dataclass(frozen=True, slots=True)
class NotRefreshed:
    """A pipeline that was not refreshed.

    Attributes:
        reason, hint: why, and the next step.
        waits: whether it is tried again without a change by the operator.
    """

    pipeline: str
    table: TableName
    reason: str
    hint: str | None = None
    waits: bool = False


Result = Refreshed | NotRefreshed


@dataclass(slots=True)
class Pipelines:
    """Refreshes pipelines, one after the other."""

    config: Config
    lake: Lake
    files: PipelineFiles
    recent: RecentChanges = field(default_factory=RecentChanges)
    inputs: InputTables = field(init=False)
    planner: Planner = field(init=False)
    tables: ResultTables = field(init=False)
    pauses: Pauses = field(init=False)
    _counted: dict[str, Sequence[CheckCounts]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.inputs = InputTables(self.config, self.lake, self.files.results)
        self.planner = Planner(self.inputs)
        index = RowLocationCache(self.config.mirror.state_dir, self.config.apply.max_index_size)
        self.tables = ResultTables(self.config, self.lake, index, recent=self.recent)
        self.pauses = Pauses(self.lake, self.config.lake.ops_namespace, PIPELINE_PAUSED_KEY)

    @classmethod
    def open(
        cls, config: Config, spark: SparkSession, files: PipelineFiles, recent: RecentChanges | None = None
    ) -> "Pipelines":
        """Return pipelines that use `spark`, which nothing else may use: views have the names of pipelines.

        `recent` are the changes that this process commits to mirrors.

        Raises:
            LakeUnavailable: the catalog does not answer.
        """
        # The source's names of columns differ in more than letter case, and SQL does not tell it.
        spark.conf.set("spark.sql.caseSensitive", "false")
        lake = Lake(spark)
        # A mirror that has not run yet has no namespace for pauses.
        lake.ensure_namespace(config.lake.ops_namespace)
        return cls(config, lake, files, recent or RecentChanges())

    def refresh(
        self,
        ends: LogEnds,
        names: Collection[str] = (),
        *,
        rebuild: Collection[str] = (),
        retry: bool = True,
        on_pipeline: OnPipeline = lambda *_: None,
    ) -> list[Result]:
        """Bring pipelines to the boundary of `ends`: the named ones and those that they read, by default all.

        Args:
            rebuild: the pipelines whose results are computed as a whole in any case.
            retry: try paused pipelines too.

        Raises:
            UsageError: there is no pipeline of a name.
            LakeUnavailable: the catalog does not answer.
        """
        refreshing = self._wanted(names)
        total = len(refreshing)
        paused = self.pauses.read()
        refreshed: dict[TableName, Boundary] = {}
        results: list[Result] = [] if names else list(self._broken())
        stopped = {broken.table: name for name, broken in self.files.broken.items()}
        for number, pipeline in enumerate(refreshing):
            on_pipeline(pipeline.name, number, total)
            pause = paused.get(pipeline.name)
            result = (
                self._waits(pipeline, stopped)
                or self._paused(pipeline, None if retry else pause)
                or self._refreshed(pipeline, ends, refreshed, pause, rebuild=pipeline.name in rebuild)
            )
            results.append(result)
            if isinstance(result, NotRefreshed):
                stopped[result.table] = pipeline.name
        on_pipeline("", total, total)
        self._note_checks(ends.boundary)
        return results

    def of_log_tables(self, names: Collection[str] = ()) -> list[str]:
        """Return which of those that `refresh` refreshes have no position in the source.

        Raises:
            UsageError: there is no pipeline of a name.
        """
        found = of_log_tables(self.files, self.config)
        return [pipeline.name for pipeline in self._wanted(names) if pipeline.name in found]

    def unreached(self, names: Collection[str], error: ReplicatorError) -> list[Result]:
        """Return, as `refresh` does, that no boundary is known, because of `error`; results of log tables need none.

        Raises:
            UsageError: there is no pipeline of a name.
        """
        others = of_log_tables(self.files, self.config)
        return [
            NotRefreshed(wanted.name, wanted.table, error.message, error.hint, waits=True)
            for wanted in self._wanted(names)
            if wanted.name not in others
        ]

    def mirrors(self, names: Collection[str] = ()) -> list[InputTable]:
        """Return the mirrors and changelogs that are read by the pipelines that `refresh` refreshes.

        Raises:
            UsageError: there is no pipeline of a name.
            LakeUnavailable: the catalog failed.
        """
        wanted = {
            existing
            for pipeline in self._wanted(names)
            for name in inputs_of(pipeline)
            for existing in (self.inputs.matching(name) if name.is_pattern else (name,))
        }
        found: list[InputTable] = []
        for name in wanted.difference(self.files.results):
            # The refresh tells what is wrong with one.
            with suppress(ForeignTable):
                table = self.inputs.load(name)
                if table is not None and table.kind is not InputKind.LOG:
                    found.append(table)
        return found

    def boundaries(self, names: Collection[str] = ()) -> list[Boundary]:
        """Return where the results of the pipelines are that `refresh` refreshes.

        Raises:
            UsageError: there is no pipeline of a name.
            LakeUnavailable: the catalog failed.
        """
        results = [pipeline.table for pipeline in self._wanted(names)]
        records = [recorded_result(self.lake.load(name.namespace, name.name)) for name in results]
        return [record.boundary for record in records if record is not None]

    def _wanted(self, names: Collection[str]) -> list[Pipeline]:
        """Return the named pipelines and those that they read, by default all, in their order."""
        chosen(self.files, names, self.config)
        return self.files.with_inputs(names)

    def _note_checks(self, boundary: Boundary) -> None:
        """Append what was counted to the table of it; what another process hinders is only in the log."""
        lake = self.config.lake
        with suppress(CommitConflict, FencedError):
            CheckLog(self.lake, lake.ops_namespace, self.config.mirror.name).add(self._counted, boundary)
        self._counted.clear()

    def _broken(self) -> Iterator[NotRefreshed]:
        for name, broken in self.files.broken.items():
            yield NotRefreshed(name, broken.table, broken.error.message, broken.error.hint)

    def drop(self, definition: Pipeline) -> str | None:
        """Drop the result of a pipeline with its files; return the name of its table, None if there is none.

        Raises:
            ForeignTable: the table is not one of this mirror.
            LakeUnavailable: the catalog failed.
        """
        name = definition.table
        table = self.lake.load(name.namespace, name.name)
        if table is not None:
            refuse_foreign(table, self.config.mirror.name)
            self.lake.drop(name.namespace, name.name)
            ResultChangelog(self.tables, name).drop()
        self.pauses.resume(definition.name)
        return None if table is None else str(name)

    def _paused(self, definition: Pipeline, pause: Pause | None) -> NotRefreshed | None:
        """Return why a pipeline is not tried again; another text of its file is."""
        if pause is None or pause.text != text_hash(definition.text):
            return None
        return NotRefreshed(definition.name, definition.table, pause.reason, pause.hint)

    def _waits(self, definition: Pipeline, stopped: Mapping[TableName, str]) -> NotRefreshed | None:
        """Return why a pipeline waits for another one; `stopped` are the tables of those that were not refreshed."""
        for wanted in inputs_of(definition):
            for table, name in stopped.items():
                if wanted.names(table):
                    reason = f"it reads {table}, and the pipeline {name} was not refreshed"
                    return NotRefreshed(definition.name, definition.table, reason, waits=True)
        return None

    def _refreshed(
        self,
        definition: Pipeline,
        ends: LogEnds,
        refreshed: dict[TableName, Boundary],
        pause: Pause | None,
        *,
        rebuild: bool,
    ) -> Result:
        table = definition.table
        try:
            # Another process may refresh it, or maintenance commit, in between: then it is planned on top of that.
            result = retried(
                lambda: self._once(definition, ends, refreshed, rebuild=rebuild), CommitConflict, FencedError
            )
        except (Unsettled, CommitConflict, FencedError) as error:
            if pause is not None and pause.text is None:
                self.pauses.resume(definition.name)
            return NotRefreshed(definition.name, table, error.message, error.hint, waits=True)
        except JavaGone:
            raise
        except Exception as error:  # noqa: BLE001 - one of no known class concerns this pipeline only, too
            return self._failed(definition, error, pause)
        if pause is not None:
            self.pauses.resume(definition.name)
        refreshed[table] = result.boundary
        if result.outcome is Outcome.SAME:
            record = recorded_result(self.tables.load(table))
            refreshed[table] = result.boundary if record is None else record.boundary
        return result

    def _failed(self, definition: Pipeline, error: Exception, pause: Pause | None) -> NotRefreshed:
        """Pause a pipeline because of an error.

        Raises:
            LakeUnavailable: the catalog does not answer, so no pipeline can be refreshed.
        """
        self.pauses.read()
        known = error if isinstance(error, ReplicatorError) else _unexpected(error)
        if pause is None or pause.reason != known.message:
            if known is not error:
                _LOG.error("unexpected error of a pipeline", pipeline=definition.name, exc_info=error)
            # The source may get a table or a column at any time, or have it again; a table may be read again, and the
            # storage of one may answer again.
            again = known is not error or isinstance(known, _PASSING)
            self.pauses.pause(definition.name, known, None if again else text_hash(definition.text))
        return NotRefreshed(definition.name, definition.table, known.message, known.hint)

    def _once(
        self,
        definition: Pipeline,
        ends: LogEnds,
        refreshed: Mapping[TableName, Boundary],
        *,
        rebuild: bool,
    ) -> Refreshed:
        if isinstance(definition, History):
            result = self._refresh_history(definition, ends, rebuild=rebuild)
        else:
            result = self._refresh(definition, ends, refreshed, rebuild=rebuild)
        if ends.tag is not None:
            self._tag(result.table, ends.boundary, ends.tag)
        return result

    def _tag(self, name: TableName, boundary: Boundary, tag: str) -> None:
        """Tag a result that was refreshed to a boundary, unless another process has refreshed it further since."""
        table = self.tables.load(name)
        record = recorded_result(table)
        if table is not None and record is not None and self.is_before(record, boundary):
            create_tag(table, tag)

    def is_before(self, record: ResultRecord, boundary: Boundary) -> bool:
        """Return whether the changes that a result has are from before a boundary; those of log tables are."""
        return boundary.covers(record.boundary) or record.name in of_log_tables(self.files, self.config)

    def _refresh(
        self,
        definition: Definition,
        ends: LogEnds,
        refreshed: Mapping[TableName, Boundary],
        *,
        rebuild: bool,
    ) -> Refreshed:
        planned = self.planner.plan(definition)
        for table in planned.inputs.values():
            ends.check_reached(table)
        self._choose_plans(planned.inputs.values())
        refresh = Refresh(self.tables, planned, ends.boundary, refreshed, rebuild)
        try:
            return refresh.run()
        finally:
            self._counted[definition.name] = refresh.checks

    def _choose_plans(self, inputs: Iterable[InputTable]) -> None:
        rows = max((each.table.total_rows for each in inputs), default=0)
        compile_plans(self.lake.spark, self.config, worth_it=rows > _INTERPRETED)

    def mirror_of(self, history: History) -> InputTable:
        """Load the mirror of a history.

        Raises:
            Unsettled: there is none yet.
            ForeignTable: it is not one of this mirror.
        """
        mirror = self.inputs.load(history.mirror)
        if mirror is None:
            raise Unsettled(
                f"there is no table {history.mirror} yet", "replicator status shows what it waits for"
            )
        return mirror

    def _refresh_history(self, history: History, ends: LogEnds, *, rebuild: bool) -> Refreshed:
        mirror = self.mirror_of(history)
        ends.check_reached(mirror)
        self._choose_plans([mirror])
        return HistoryRefresh(self.tables, history, mirror, ends.boundary, rebuild).run()


def _unexpected(error: Exception) -> ReplicatorError:
    return ReplicatorError(first_line(error), "the log has the place in the code; it is tried again")
