"""Which tables foreign keys change, at any depth."""

import pytest

from replicator.model.table import TableId
from replicator.schema.ddl.dml import ChangedTables
from replicator.sources.binlog.deviations import Cascade, changed_children

A, B, C, D = (TableId("shop", name) for name in "abcd")
NOTHING = ChangedTables()


def tables(*names: TableId) -> ChangedTables:
    return ChangedTables(frozenset(names))


@pytest.mark.parametrize(
    ("cascades", "deleted", "updated", "children"),
    [
        pytest.param([Cascade(A, B)], tables(A), NOTHING, tables(B), id="delete"),
        pytest.param([Cascade(A, B)], NOTHING, tables(A), NOTHING, id="update of a key without ON UPDATE"),
        pytest.param(
            [Cascade(A, B, on_delete=False, on_update=True)], NOTHING, tables(A), tables(B), id="update"
        ),
        pytest.param(
            [Cascade(A, B), Cascade(B, C), Cascade(C, D)], tables(A), NOTHING, tables(B, C, D), id="depth"
        ),
        pytest.param(
            [Cascade(A, B, deletes=False), Cascade(B, C), Cascade(B, D, on_delete=False, on_update=True)],
            tables(A),
            NOTHING,
            tables(B, D),
            id="SET NULL updates the child",
        ),
        pytest.param([Cascade(A, A)], tables(A), NOTHING, tables(A), id="a tree"),
        pytest.param([Cascade(A, B), Cascade(B, A)], tables(B), NOTHING, tables(A, B), id="a circle"),
        pytest.param([Cascade(A, B)], tables(C), tables(B), NOTHING, id="no parent"),
        pytest.param([Cascade(TableId("Shop", "A"), B)], tables(A), NOTHING, tables(B), id="letter case"),
        pytest.param(
            [Cascade(A, B)], ChangedTables(databases=frozenset({"shop"})), NOTHING, tables(B), id="database"
        ),
    ],
)
def test_children_change_with_their_parents(
    cascades: list[Cascade], deleted: ChangedTables, updated: ChangedTables, children: ChangedTables
) -> None:
    assert changed_children(cascades, deleted, updated) == children
