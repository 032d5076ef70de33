"""A source table that has another name now: the lake's tables follow it."""

from replicator import failpoints
from replicator.batch.context import MirrorContext
from replicator.model.table import SOURCE_KEY, TableId
from replicator.schema.history import BEGINNING


def renamed_to(context: MirrorContext, table: TableId, target_schema_at: int | None = None) -> TableId | None:
    """What the source's table is called now that the lake has as `table`; None where it is still called so.

    None, too, where the mirror leaves out the new name, or has a table of that name. With a place `until`, only
    renames up to there count, and only where another table has the old name since.
    """
    there, history = context.ledger.progress(table), context.schemas.history(table)
    since = BEGINNING if there.schema_at is None else there.schema_at
    names = [
        v.renamed_to
        for v in history.versions_of_current_name
        if v.renamed_to is not None
        and v.at > since
        and (target_schema_at is None or v.at <= target_schema_at)
    ]
    if target_schema_at is None and history.gone is not None and history.gone.renamed_to is not None:
        names.append(history.gone.renamed_to)
    if not names or not context.config.includes(str(names[0])):
        return None
    taken = context.ledger.progress(names[0])
    left = (there.mirror is not None and taken.mirror is None) or (
        there.changelog is not None and taken.changelog is None
    )
    return names[0] if left and (not taken.topics or is_half_renamed(context, table, names[0])) else None


def has_left(context: MirrorContext, table: TableId, new: TableId) -> bool:
    """Whether what the lake has as `table` is of the time after the source's was renamed to `new`."""
    known = context.ledger.progress(table).schema_at
    moved = context.schemas.history(new).versions_of_current_name[0].at
    return known is not None and known >= moved


def is_half_renamed(context: MirrorContext, table: TableId, new: TableId) -> bool:
    """Whether a crash left one of the two tables under the old name, and the other under the new one."""
    there, taken = context.ledger.progress(table), context.ledger.progress(new)
    return (there.mirror is None and taken.mirror is not None and taken.changelog is None) or (
        there.changelog is None and taken.changelog is not None and taken.mirror is None
    )


def rename(context: MirrorContext, table: TableId, new: TableId) -> bool:
    """Give a table's mirror and changelog the name that the source's has now; whether there was anything to rename.

    The lake must have all events of the old name.
    """
    config, found = context.config.lake, False
    for namespace in (config.changes_namespace, config.namespace):
        if context.lake.load(namespace, table.name) is not None:
            context.lake.rename(namespace, table.name, new.name)
            failpoints.reach("after-rename")
            found = True
        if (renamed := context.lake.load(namespace, new.name)) is not None:
            context.lake.set_properties(renamed, {SOURCE_KEY: str(new)})
    context.ledger.forget(table)
    context.ledger.forget(new)
    return found
