"""The views that a pipeline's queries read, by name, and what all plans share of them."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import count

from sqlglot import exp

from replicator.model.common import quoted
from replicator.pipelines.query.analysis import Analysed, Parameter
from replicator.pipelines.query.definition import DIALECT
from replicator.pipelines.query.names import STATE, WEIGHT, TableName
from replicator.pipelines.query.narrow import Step


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a pipeline, with the names of its views.

    Attributes:
        name: the table, or the pattern of tables.
        tables: the table, or those that match the pattern.
        columns: those that the query names.
        key: the columns that identify a row; empty if there are none.
    """

    name: TableName
    tables: tuple[TableName, ...]
    columns: tuple[str, ...]
    key: tuple[str, ...]
    now: str
    changed: str


class Views:
    """The views of one pipeline.

    Attributes:
        analysed: the pipeline.
        inputs: its inputs, in the order of the analysed query.
        output: the view of the result before a refresh.
        spelling: column of the query → column of the result; empty for a function.
    """

    def __init__(self, analysed: Analysed) -> None:
        self.analysed = analysed
        self.inputs = tuple(
            Input(
                read.name,
                read.tables,
                read.columns,
                read.schema.key,
                self.view(f"in{n}_now"),
                self.view(f"in{n}_changed"),
            )
            for n, read in enumerate(analysed.inputs)
        )
        self.output = self.view("output")
        self.spelling = _spelling(analysed)
        self._numbers = count()

    def of(self, parameter: Parameter) -> "Views":
        """Return these views for the query of a parameter."""
        found = copy(self)
        found.analysed = replace(
            self.analysed, query=parameter.query, columns=parameter.columns, parameters=()
        )
        found.spelling = _spelling(found.analysed)
        return found

    def view(self, name: str) -> str:
        """Return the name of a view of this pipeline."""
        return f"{self.analysed.definition.name}__{name}"

    def keys_view(self) -> str:
        """Return the name of a further view, of values by which others are narrowed."""
        return self.view(f"keys{next(self._numbers)}")

    def input_of(self, table: exp.Table) -> Input:
        """Return the input that a table of the query is."""
        return self.inputs[self.analysed.inputs.index(self.analysed.input_of(table))]

    def now(self, table: exp.Table) -> exp.Expr:
        """Return the rows after the changes."""
        return _table(self.input_of(table).now)

    def changed(self, table: exp.Table) -> exp.Expr:
        """Return the changes."""
        return _table(self.input_of(table).changed)

    def either(self, table: exp.Table, columns: Sequence[str]) -> exp.Expr:
        """Return columns of the rows before or after the changes."""
        found = self.input_of(table)
        names = ", ".join(quoted(c) for c in columns) or "1 AS _1"
        text = (
            f"SELECT {names} FROM {quoted(found.now)} UNION ALL "
            f"SELECT {names} FROM {quoted(found.changed)} WHERE {quoted(WEIGHT)} < 0"
        )
        return exp.Subquery(this=exp.maybe_parse(text, dialect=DIALECT))

    def types(self, table: exp.Table) -> Mapping[str, str]:
        """Return the types of the named columns."""
        read = self.analysed.input_of(table)
        used = {name.lower() for name in read.columns}
        return {name.lower(): kind for name, kind in read.schema.columns.items() if name.lower() in used}

    @property
    def only_grow(self) -> bool:
        """Whether no row of any input is ever removed: all are log tables."""
        return all(read.schema.is_log for read in self.analysed.inputs)

    def of_sources(self, tables: Mapping[str, exp.Table], *, removed: bool) -> dict[str, tuple[str, ...]]:
        """Return the views with the rows of tables, by alias; `removed`: also those with their rows before changes."""
        inputs = {alias: self.input_of(table) for alias, table in tables.items()}
        return {alias: (i.now, i.changed) if removed else (i.now,) for alias, i in inputs.items()}

    def spelt(self, alias: str, *, state: bool = False) -> str:
        """Return the columns of the result by name, as they are spelt."""
        columns = [f"{alias}.{quoted(name)} AS {quoted(spelt)}" for name, spelt in self.spelling.items()]
        return ", ".join([*columns, *([f"{alias}.{quoted(STATE)}"] if state else [])])

    def net(self, rows: str) -> Step:
        """Return the step for the net changes of the result, from rows with their weights as `_w`."""
        columns = ", ".join(quoted(c) for c in self.analysed.columns)
        sql = (
            f"SELECT {columns}, CAST(SUM(_w) AS BIGINT) AS {quoted(WEIGHT)} FROM ({rows}) AS _c "
            f"GROUP BY {columns} HAVING SUM(_w) <> 0"
        )
        return Step(self.view("net"), sql, keep=True)


def _spelling(analysed: Analysed) -> dict[str, str]:
    if analysed.parameters:
        return {}
    return dict(zip(analysed.query.named_selects, analysed.columns, strict=True))


def _table(view: str) -> exp.Table:
    return exp.Table(this=exp.to_identifier(view, quoted=True))
