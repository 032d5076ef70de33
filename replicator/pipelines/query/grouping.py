"""Refuse what Spark would refuse of groups only when it runs: columns of no group, and aggregates in WHERE."""

from collections.abc import Iterator

from sqlglot import exp

from replicator.pipelines.query.blocks import aggregates_in, is_grouped
from replicator.pipelines.query.definition import Definition

_OPAQUE = (exp.AggFunc, exp.Filter, exp.WithinGroup, exp.Anonymous, exp.Query, exp.Subquery, exp.Lambda)
"""What may have columns of any row: aggregates, functions that may be such, and subqueries."""


def check_groups(definition: Definition, query: exp.Query) -> None:
    """Check the groups of a resolved query.

    Raises:
        PipelineError: a column is neither one of the group nor in an aggregate, or WHERE has an aggregate.
    """
    for select in query.find_all(exp.Select):
        where = select.args.get("where")
        if where is not None and any(aggregates_in(where)):
            raise definition.error(where, "WHERE has an aggregate", "write it in HAVING, after GROUP BY")
        group = select.args.get("group")
        if not is_grouped(select) or (group is not None and _is_several(group)):
            continue
        known = [] if group is None else group.expressions
        for column in (column for part in select.expressions for column in _ungrouped(part, known)):
            name = column.meta.get("name", column.name)
            raise definition.error(
                column,
                f"{name} is neither in GROUP BY nor in an aggregate",
                f"add it to GROUP BY, or take one value of each group, as in max({name})",
            )


def _is_several(group: exp.Group) -> bool:
    several = any(value for name, value in group.args.items() if name != "expressions")
    return several or any(
        isinstance(part, (exp.Cube, exp.Rollup, exp.GroupingSets)) for part in group.expressions
    )


def _ungrouped(node: exp.Expr, known: list[exp.Expr]) -> Iterator[exp.Column]:
    """Yield the columns of an expression that have several values in a group."""
    if node in known or (isinstance(node, _OPAQUE) and not isinstance(node.parent, exp.Window)):
        return
    if isinstance(node, exp.Column):
        yield node
    for child in node.iter_expressions():
        yield from _ungrouped(child, known)
