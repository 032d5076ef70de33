"""What a pipeline's header says of columns must be columns of its result."""

from collections.abc import Iterator, Sequence

import sqlglot
from sqlglot import exp

from replicator.pipelines.query.definition import DIALECT, Definition
from replicator.pipelines.query.functions import non_deterministic
from replicator.pipelines.query.names import similar


def check_header(definition: Definition, columns: Sequence[str]) -> None:
    """Refuse columns in the header that the result does not have, and checks that are not of a row alone.

    Raises:
        PipelineError: the header has one.
    """
    known = {column.lower() for column in columns}
    for line, column in _named(definition):
        if column.lower() not in known:
            reason = f"{line}: the result has no column {column}"
            hint = similar(column, columns) or f"its columns are {', '.join(columns)}"
            raise definition.header_error(line, reason, hint)
    for line, condition in _conditions(definition):
        for node in condition.walk():
            if (refused := non_deterministic(node)) is not None:
                raise definition.header_error(line, f"{line}: {node.sql(DIALECT)} {refused[0]}", refused[1])
            if isinstance(node, (exp.AggFunc, exp.Window)):
                reason = f"{line}: {node.sql(DIALECT)} is not a value of one row"
                raise definition.header_error(
                    line, reason, "compute it as a column of the SELECT, and check that"
                )


def _named(definition: Definition) -> Iterator[tuple[str, str]]:
    """Yield the columns that the header names, with the header key."""
    yield from (("key", column) for column in definition.key)
    yield from (("by key", column) for column in definition.by_key)
    yield from (("partition", field.column) for field in definition.partition)
    for line, condition in _conditions(definition):
        yield from ((line, column.parts[0].name) for column in condition.find_all(exp.Column))


def _conditions(definition: Definition) -> Iterator[tuple[str, exp.Expr]]:
    for check in definition.expectations:
        yield f"expect {check.name}", sqlglot.parse_one(check.condition, dialect=DIALECT)
