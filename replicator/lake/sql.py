"""Build Spark SQL statements. Pure: no session; every name is quoted."""

from collections.abc import Sequence

from replicator.model.common import quoted


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


def delete(target: str, condition: str) -> str:
    """Build a DELETE of the rows of `target` (already quoted) for which a condition is true."""
    return f"DELETE FROM {target} WHERE {condition}"
