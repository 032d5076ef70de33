"""Renames the lake tables of a source table that was renamed."""

from replicator import failpoints
from replicator.batch.context import MirrorContext
from replicator.lake.catalog.exact_commit import set_properties
from replicator.model.roles import COMMIT_ORDER
from replicator.model.table import SOURCE_KEY, TableId
from replicator.schema.history.versions import BEGINNING


def renamed_to(context: MirrorContext, table: TableId, target_schema_at: int | None = None) -> TableId | None:
    """Return the new name of a source table that the lake has as `table`; None if it was not renamed.

    It is also None if the configuration excludes the new name, or if the lake has another table of that name. With
    `target_schema_at`, it is the name up to that binlog key, and None unless another table has the old name since.
    """
    present, history = context.ledger.progress(table), context.schemas.history(table)
    since = BEGINNING if present.schema_at is None else present.schema_at
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
    new = context.ledger.progress(names[0])
    unfinished = (present.mirror is not None and new.mirror is None) or (
        present.changelog is not None and new.changelog is None
    )
    if not _takes_over(context, table, names[0]):
        return None
    return names[0] if unfinished and (not new.topics or is_half_renamed(context, table, names[0])) else None


def _takes_over(context: MirrorContext, table: TableId, new: TableId) -> bool:
    """Return whether no other table had the name `new`: its topic would have the events of both tables.

    A table that gets its own name back continues.
    """
    versions = context.schemas.history(new).versions_of_current_name
    return bool(versions) and (
        versions[0].renamed_from == table or any(version.replaced == new for version in versions)
    )


def former_names(context: MirrorContext, table: TableId) -> frozenset[TableId]:
    """Return the names that a table had before, without those of tables that took over its name."""
    versions = context.schemas.history(table).versions
    return frozenset(v.renamed_from for v in versions if v.renamed_from is not None)


def lost_name(context: MirrorContext, table: TableId) -> TableId | None:
    """Return the name under which a table was mirrored before, if the lake has another table's rows there by now."""
    for old in sorted(former_names(context, table)):
        if context.ledger.progress(old).mirror is not None and has_left(context, old, table):
            return old
    return None


def has_left(context: MirrorContext, table: TableId, new: TableId) -> bool:
    """Return whether the lake tables called `table` belong to a later source table than the one renamed to `new`."""
    known = context.ledger.progress(table).schema_at
    renamed_at = context.schemas.history(new).versions_of_current_name[0].at
    return known is not None and known >= renamed_at


def is_half_renamed(context: MirrorContext, table: TableId, new: TableId) -> bool:
    """Return whether a crash left one of the two lake tables with the old name and the other with the new one."""
    old_name, new_name = context.ledger.progress(table), context.ledger.progress(new)
    return (old_name.mirror is None and new_name.mirror is not None and new_name.changelog is None) or (
        old_name.changelog is None and new_name.changelog is not None and new_name.mirror is None
    )


def rename(context: MirrorContext, table: TableId, new: TableId) -> bool:
    """Rename the mirror and the changelog of `table` to `new`. Return whether either of them existed.

    The lake must have all events of the old name. After a crash it can be repeated.

    Raises:
        SchemaError: a lake table of either name is not the mirror's, or was rolled back.
        LakeUnavailable: the catalog failed, or cannot rename tables.
    """
    for name in (table, new):
        if (problem := context.ledger.progress(name).problem) is not None:
            raise problem
    config, found = context.config.lake, False
    for namespace in map(config.namespace_of, COMMIT_ORDER):
        if context.lake.load(namespace, table.name) is not None:
            context.lake.rename(namespace, table.name, new.name)
            failpoints.reach("after-rename")
            found = True
        if (renamed := context.lake.load(namespace, new.name)) is not None:
            set_properties(renamed, {SOURCE_KEY: str(new)})
    context.ledger.forget(table)
    context.ledger.forget(new)
    return found
