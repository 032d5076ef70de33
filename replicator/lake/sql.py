"""Build Spark SQL statements. Pure: no session; every name is quoted."""

from collections.abc import Sequence

from replicator.model.identifiers import quoted


def merge(
    target: str, view: str, columns: Sequence[str], key: Sequence[str], others: Sequence[str] = ()
) -> str:
    """Build a MERGE of net changes into `target` (already quoted), which has `columns` and `others`.

    The columns `others` keep their values in rows that are updated, and are null in new ones. `view` has the key as k0,
    k1, … and the new row in the struct `row`, which is null if the row is deleted.
    """
    on = " AND ".join(f"t.{quoted(column)} = s.k{i}" for i, column in enumerate(key))
    update = ", ".join(f"t.{quoted(c)} = s.row.{quoted(c)}" for c in columns)
    names = ", ".join(quoted(c) for c in (*columns, *others))
    values = ", ".join([*(f"s.row.{quoted(c)}" for c in columns), *(["NULL"] * len(others))])
    return (
        f"MERGE INTO {target} t USING {quoted(view)} s ON {on} "
        "WHEN MATCHED AND s.row IS NULL THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {update} "
        f"WHEN NOT MATCHED AND s.row IS NOT NULL THEN INSERT ({names}) VALUES ({values})"
    )


def fill(target: str, columns: Sequence[tuple[str, str]]) -> str:
    """Build an UPDATE that sets `columns` (name, Spark type) to the same values, bound as v0, v1, …, in every row."""
    assignments = ", ".join(
        f"{quoted(name)} = CAST(:v{i} AS {kind})" for i, (name, kind) in enumerate(columns)
    )
    return f"UPDATE {target} SET {assignments}"


def convert(target: str, values: Sequence[tuple[str, str]]) -> str:
    """Build an UPDATE of every row that sets columns (name) to expressions over the row."""
    assignments = ", ".join(f"{quoted(name)} = {expression}" for name, expression in values)
    return f"UPDATE {target} SET {assignments}"


def delete(target: str, condition: str) -> str:
    """Build a DELETE of the rows of `target` (already quoted) for which a condition is true."""
    return f"DELETE FROM {target} WHERE {condition}"


def count_rows(source: str, conditions: Sequence[str]) -> str:
    """Build a query that counts the rows of `source` (already quoted) for which each condition is true."""
    return f"SELECT {', '.join(map(_number_of, conditions))} FROM {source}"


def lost_values(source: str, values: Sequence[tuple[str, str]]) -> str:
    """Build a query that counts, for each (quoted column, expression), the rows where only the expression is null."""
    return count_rows(source, [f"{old} IS NOT NULL AND ({new}) IS NULL" for old, new in values])


def _number_of(condition: str) -> str:
    """Return the expression for the number of rows; a count of conditions would be pushed to Iceberg, which fails."""
    return f"COALESCE(SUM(IF({condition}, 1, 0)), 0)"
