"""The views that the queries of a plan read, and the results of its steps that are kept while it runs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from replicator.lake.catalog.tables import LakeTable
from replicator.model.common import quoted
from replicator.pipelines.held import MOST_ROWS, held_frame, held_rows, spelt
from replicator.pipelines.literals import is_near
from replicator.pipelines.output.places import with_places, without_places
from replicator.pipelines.query.analysis import ORIGIN
from replicator.pipelines.query.names import TableName
from replicator.pipelines.query.narrow import Narrow, Step
from replicator.pipelines.query.plan import Plan
from replicator.pipelines.query.views import Input

Call = Callable[..., DataFrame]


@dataclass(slots=True)
class Views:
    """Temporary views of a session, for one refresh.

    Attributes:
        tables: those whose rows are read and written.
        output: the view of the result.
        frames: view → its rows.
        held: view → its rows, if the driver holds them.
        placed: rows of the result that steps read and the driver holds, with their places; see `with_places`.
        small: view of an input or the result → what returns all its rows if the driver holds them, else None.
    """

    spark: SparkSession
    tables: Sequence[LakeTable] = ()
    output: str = ""
    frames: dict[str, DataFrame] = field(default_factory=dict)
    held: dict[str, pa.Table] = field(default_factory=dict)
    placed: list[pa.Table] = field(default_factory=list)
    small: dict[str, Callable[[], pa.Table | None]] = field(default_factory=dict)
    _persisted: list[DataFrame] = field(default_factory=list)
    _read: dict[tuple[str, tuple[Narrow, ...]], DataFrame] = field(default_factory=dict)

    def add(self, name: str, rows: DataFrame, held: pa.Table | None = None) -> None:
        """Let queries read rows under a name; `held` are the same rows if the driver holds them."""
        rows.createOrReplaceTempView(quoted(name))
        self.frames[name] = rows
        if held is not None:
            self.held[name] = held

    def keep(self, name: str, rows: DataFrame) -> None:
        """Compute rows now, once, and let queries read them under a name."""
        if (few := held_rows(rows, self.tables)) is not None:
            self.add(name, held_frame(self.spark, few), few)
            return
        kept = rows.persist()
        self._persisted.append(kept)
        self.add(name, kept)

    def run(self, steps: Iterable[Step], call: Call | None) -> None:
        """Compute steps in order, so that queries can read what they give; `call` is the function of the pipeline."""
        for step in steps:
            if step.call and call is not None:
                rows = call(*(self.frames[view] for view in step.call))
            else:
                rows = self.query(step.sql, step.narrow)
            if step.keep:
                self.keep(step.view, rows)
            else:
                self.add(step.view, rows)

    def whole(self, plan: Plan, call: Call | None) -> DataFrame:
        """Return the rows of a whole result; `call` is the function of the pipeline."""
        self.run(plan.before, call)
        return self.query(plan.full)

    def query(self, text: str, narrows: Iterable[Narrow] = ()) -> DataFrame:
        """Return the rows of a query, which needs only rows of views as `narrows` says."""
        with self._narrowed(narrows):
            # A view is resolved when the query is analysed, so that another one may have its name later.
            return self.spark.sql(text)

    @contextmanager
    def _narrowed(self, narrows: Iterable[Narrow]) -> Iterator[None]:
        found: dict[str, list[Narrow]] = {}
        for narrow in narrows:
            found.setdefault(narrow.view, []).append(narrow)
        try:
            for view, its in found.items():
                self._narrower(view, tuple(its)).createOrReplaceTempView(quoted(view))
            yield
        finally:
            for view in found:
                self.frames[view].createOrReplaceTempView(quoted(view))

    def _narrower(self, view: str, narrows: tuple[Narrow, ...]) -> DataFrame:
        """Return the rows of a view that are needed; those of results are read once for all steps and the commit."""
        if (view, narrows) in self._read:
            return self._read[view, narrows]
        small = self.small[view]() if view in self.small else None
        few = None if small is None else reduce(self._near, narrows, small)
        if few is not None and few.num_rows <= MOST_ROWS:
            rows = held_frame(self.spark, few)
        else:
            conditions = [found for narrow in narrows if (found := self._condition(narrow)) is not None]
            rows = reduce(DataFrame.where, conditions, self.frames[view])
            if view != self.output or not conditions:
                return rows
            if (placed := held_rows(with_places(rows), self.tables)) is not None:
                self.placed.append(placed)
                rows = held_frame(self.spark, without_places(placed))
        self._read[view, narrows] = rows
        return rows

    def _condition(self, narrow: Narrow) -> SparkColumn | None:
        """Return the condition of a narrower view; None if the values are not held, or are no literals."""
        values = self._values(narrow)
        return None if values is None else is_near(narrow.column, values)

    def _near(self, rows: pa.Table, narrow: Narrow) -> pa.Table:
        """Return the held rows of a narrower view; all if the values are not held, or are of another type."""
        values, column = self._values(narrow), rows.column(spelt(rows, narrow.column))
        kind = column.type
        if values is None or values.type != kind or pa.types.is_floating(kind) or pa.types.is_nested(kind):
            return rows
        return rows.filter(pc.is_in(column, value_set=values))

    def _values(self, narrow: Narrow) -> pa.Array | None:
        """Return the different values by which a view is narrowed; None if they are not held."""
        rows = self.held.get(narrow.by)
        return None if rows is None else pc.unique(rows.column(spelt(rows, narrow.by_column)))

    def drop(self) -> None:
        """Remove all views, and what was kept."""
        for name in self.frames:
            self.spark.catalog.dropTempView(name)
        for kept in self._persisted:
            kept.unpersist()


def own_columns(used: Input) -> list[str]:
    """Return the columns of an input that each of its tables has."""
    return [name for name in used.columns if name != ORIGIN or not used.name.is_pattern]


def united(used: Input, parts: Sequence[tuple[TableName, DataFrame]]) -> DataFrame:
    """Return the rows of the tables of an input; those of a pattern say from which table they are."""
    if not used.name.is_pattern:
        return parts[0][1]
    marked = [rows.withColumn(ORIGIN, F.lit(str(name))) for name, rows in parts]
    return reduce(DataFrame.unionByName, marked)
