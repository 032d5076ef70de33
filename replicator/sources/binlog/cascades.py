"""Find the tables whose rows foreign keys change when rows of their parents are deleted or updated. Pure."""

from collections.abc import Collection
from dataclasses import dataclass

from replicator.model.table import TableId
from replicator.schema.ddl.rows import ChangedTables


@dataclass(frozen=True, slots=True)
class Cascade:
    """A foreign key that changes rows of `child` when those of `parent` change.

    Attributes:
        on_delete: whether it does if a row of the parent is deleted.
        on_update: whether it does if the referenced columns of a row of the parent change.
        deletes: whether it deletes the row of the child when that of the parent is deleted, rather than set NULL.
    """

    parent: TableId
    child: TableId
    on_delete: bool = True
    on_update: bool = False
    deletes: bool = True


def changed_children(
    cascades: Collection[Cascade], deleted: ChangedTables, updated: ChangedTables
) -> ChangedTables:
    """Return the tables whose rows may change because rows of others are `deleted` or `updated`, at any depth.

    It is not known which columns of a row are updated: every update counts.
    """
    children: set[TableId] = set()
    while True:
        gone = [c for c in cascades if c.on_delete and deleted.may_have(c.parent)]
        changed = [c for c in cascades if c.on_update and updated.may_have(c.parent)]
        children.update(c.child for c in [*gone, *changed])
        more_deleted = deleted | ChangedTables(frozenset(c.child for c in gone if c.deletes))
        more_updated = updated | ChangedTables(
            frozenset(c.child for c in [*changed, *(c for c in gone if not c.deletes)])
        )
        if (more_deleted, more_updated) == (deleted, updated):
            return ChangedTables(frozenset(children))
        deleted, updated = more_deleted, more_updated
