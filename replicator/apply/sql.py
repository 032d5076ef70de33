"""SQL text for the strategies that go through Spark SQL. Pure: no session, every name quoted."""

from collections.abc import Sequence

from replicator.model.names import quoted


def merge(target: str, view: str, columns: Sequence[str], key: Sequence[str]) -> str:
    """One MERGE of net changes into `target` (already quoted).

    `view` has the key as k0, k1, …, the new row in the struct `row`, which is null for a key that is gone.
    """
    on = " AND ".join(f"t.{quoted(column)} = s.k{i}" for i, column in enumerate(key))
    update = ", ".join(f"t.{quoted(c)} = s.row.{quoted(c)}" for c in columns)
    names = ", ".join(quoted(c) for c in columns)
    values = ", ".join(f"s.row.{quoted(c)}" for c in columns)
    return (
        f"MERGE INTO {target} t USING {quoted(view)} s ON {on} "
        "WHEN MATCHED AND s.row IS NULL THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {update} "
        f"WHEN NOT MATCHED AND s.row IS NOT NULL THEN INSERT ({names}) VALUES ({values})"
    )


def fill(target: str, columns: Sequence[tuple[str, str]]) -> str:
    """An UPDATE that gives every row the same value in `columns` (name, Spark type); values are bound as v0, v1, …"""
    assignments = ", ".join(
        f"{quoted(name)} = CAST(:v{i} AS {kind})" for i, (name, kind) in enumerate(columns)
    )
    return f"UPDATE {target} SET {assignments}"


def convert(target: str, values: Sequence[tuple[str, str]]) -> str:
    """An UPDATE of every row that sets columns (name) to expressions over the row."""
    assignments = ", ".join(f"{quoted(name)} = {expression}" for name, expression in values)
    return f"UPDATE {target} SET {assignments}"


def lost_values(source: str, values: Sequence[tuple[str, str]]) -> str:
    """A query: how often each expression (second) is null where the column (first, quoted) is not."""
    counts = ", ".join(f"COUNT_IF({old} IS NOT NULL AND ({new}) IS NULL)" for old, new in values)
    return f"SELECT {counts} FROM {source}"
