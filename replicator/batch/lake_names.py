"""A source table that has another name now: the lake's tables follow it."""

from replicator.batch.work import Engine
from replicator.failpoints import reach
from replicator.model.lineage import BEGINNING
from replicator.model.table import SOURCE_KEY, TableId


def renamed_to(engine: Engine, table: TableId, until: int | None = None) -> TableId | None:
    """What the source's table is called now that the lake has as `table`; None where it is still called so.

    None, too, where the mirror leaves out the new name, or has a table of that name. With a place `until`, only
    renames up to there count, and only where another table has the old name since.
    """
    there, line = engine.ledger.progress(table), engine.book.line(table)
    since = BEGINNING if there.schema_at is None else there.schema_at
    names = [
        v.left_as
        for v in line.own_versions
        if v.left_as is not None and v.at > since and (until is None or v.at <= until)
    ]
    if until is None and line.gone is not None and line.gone.renamed_to is not None:
        names.append(line.gone.renamed_to)
    if not names or not engine.config.includes(str(names[0])):
        return None
    taken = engine.ledger.progress(names[0])
    left = (there.mirror is not None and taken.mirror is None) or (
        there.changelog is not None and taken.changelog is None
    )
    return names[0] if left and (not taken.topics or is_half_renamed(engine, table, names[0])) else None


def has_left(engine: Engine, table: TableId, new: TableId) -> bool:
    """Whether what the lake has as `table` is of the time after the source's was renamed to `new`."""
    known = engine.ledger.progress(table).schema_at
    moved = engine.book.line(new).own_versions[0].at
    return known is not None and known >= moved


def is_half_renamed(engine: Engine, table: TableId, new: TableId) -> bool:
    """Whether a crash left one of the two tables under the old name, and the other under the new one."""
    there, taken = engine.ledger.progress(table), engine.ledger.progress(new)
    return (there.mirror is None and taken.mirror is not None and taken.changelog is None) or (
        there.changelog is None and taken.changelog is not None and taken.mirror is None
    )


def rename(engine: Engine, table: TableId, new: TableId) -> bool:
    """Give a table's mirror and changelog the name that the source's has now; whether there was anything to rename.

    The lake must have all events of the old name.
    """
    config, found = engine.config.lake, False
    for namespace in (config.changes_namespace, config.namespace):
        if engine.lake.load(namespace, table.name) is not None:
            engine.lake.rename(namespace, table.name, new.name)
            reach("after-rename")
            found = True
        if (renamed := engine.lake.load(namespace, new.name)) is not None:
            engine.lake.set_properties(renamed, {SOURCE_KEY: str(new)})
    engine.ledger.forget(table)
    engine.ledger.forget(new)
    return found
