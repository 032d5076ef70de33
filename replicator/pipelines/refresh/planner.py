"""Plan pipelines for the tables that the lake has now."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from replicator.errors import PipelineError, PipelineUnfit, Unsettled
from replicator.jvm.spark import check_java, first_line
from replicator.lake.files.spark_tables import rows_of
from replicator.model.common import quoted
from replicator.pipelines.files import log_tables
from replicator.pipelines.inputs.tables import InputKind, InputTable, InputTables
from replicator.pipelines.query.analysis import InputSchema, analyse
from replicator.pipelines.query.definition import Definition
from replicator.pipelines.query.graph import reads
from replicator.pipelines.query.names import TableName
from replicator.pipelines.query.plan import Plan, plan_of
from replicator.pipelines.refresh.function import Function
from replicator.pipelines.refresh.views import Views, own_columns, united


@dataclass(frozen=True, slots=True)
class Planned:
    """A pipeline that can be refreshed.

    Attributes:
        inputs: the tables that it reads, as they were loaded.
        function: what computes the result; None for a SELECT.
    """

    definition: Definition
    plan: Plan
    inputs: Mapping[TableName, InputTable]
    function: Function | None = None


_Known = tuple[Definition, Mapping[TableName, InputSchema], Plan, Function | None]


@dataclass(slots=True)
class Planner:
    """Plans pipelines. A plan is made again only if the definition or the columns of an input changed.

    The code of a function is run then, and the function is called with empty inputs.
    """

    tables: InputTables
    _plans: dict[str, _Known] = field(default_factory=dict)

    def plan(self, definition: Definition) -> Planned:
        """Return a pipeline with its plan and its inputs.

        Raises:
            PipelineUnfit: it does not fit the tables that the lake has.
            Unsettled: a log table has no events yet, or an input is just being made.
            PipelineError: its function fails.
            ForeignTable: an input is not a table of this mirror.
            LakeUnavailable: the catalog failed.
        """
        inputs = {table.name: table for table in self._inputs(definition)}
        schemas = {name: self._schema(table) for name, table in inputs.items()}
        if empty := [name for name, schema in schemas.items() if not schema.columns]:
            raise Unsettled(
                f"{empty[0]} has no columns yet", "it is settled after the next batch of `replicator run`"
            )
        missing = [name for name in reads(definition) if not any(name.names(known) for known in inputs)]
        for name in missing:
            if any(name.names(log) for log in log_tables(self.tables.config)):
                raise Unsettled(
                    f"there is no {name} yet: its topic has no events", "replicator status shows the topic"
                )
        if missing:
            # For the error, which names a similar one.
            schemas |= {name: InputSchema({}) for name in self.tables.every() if name not in schemas}
        known = self._plans.get(definition.name)
        if known is None or known[0] != definition or known[1] != schemas:
            try:
                plan = plan_of(analyse(definition, schemas))
            except PipelineError as error:
                raise PipelineUnfit(error.message, error.hint) from error
            known = definition, schemas, *self._with_function(definition, plan, inputs)
            self._plans[definition.name] = known
        used = {name for found in known[2].inputs for name in found.tables}
        return Planned(definition, known[2], {name: inputs[name] for name in used}, known[3])

    def _with_function(
        self, definition: Definition, plan: Plan, inputs: Mapping[TableName, InputTable]
    ) -> tuple[Plan, Function | None]:
        """Return a plan with the function of its pipeline, None for a SELECT; it is called with empty inputs.

        Only what it returns tells the spelling of columns that the header names.
        """
        if not definition.inputs:
            return plan, None
        function, views = Function.load(definition), Views(self.tables.lake.spark)
        try:
            for used in plan.inputs:
                parts = [(name, self._empty(inputs[name], own_columns(used))) for name in used.tables]
                views.add(used.now, united(used, parts))
            spelt = {name.lower(): name for name in views.whole(plan, function).columns}
        except (PySparkException, Py4JJavaError) as error:
            check_java(self.tables.lake.spark)
            # Without rows, nothing but the code can fail.
            raise PipelineError(
                f"{definition.file}: {first_line(error)}",
                f"correct the function, then: replicator pipeline run {definition.name}",
            ) from error
        finally:
            views.drop()
        return replace(plan, key=tuple(spelt[name.lower()] for name in plan.key)), function

    def _empty(self, table: InputTable, columns: Sequence[str]) -> DataFrame:
        lake = self.tables.lake
        named = rows_of(lake, table.table).select(*(quoted(name) for name in columns))
        return lake.spark.createDataFrame([], named.schema)

    def _inputs(self, definition: Definition) -> Iterator[InputTable]:
        for wanted in reads(definition):
            found = [] if wanted.is_pattern else self._settled([wanted])
            yield from found or self._settled(self.tables.matching(wanted))

    def _settled(self, names: Iterable[TableName]) -> list[InputTable]:
        return [table for name in names if (table := self.tables.load_settled(name)) is not None]

    def _schema(self, table: InputTable) -> InputSchema:
        has_images = table.kind is InputKind.RESULT or not self.tables.config.log.flattened
        has_changes = table.kind is InputKind.LOG or (table.changelog is not None and has_images)
        return InputSchema(
            table.columns(self.tables.lake),
            table.key,
            has_changes,
            is_result=table.kind is InputKind.RESULT,
            is_log=table.kind is InputKind.LOG,
        )
