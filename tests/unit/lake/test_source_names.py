"""The tables of the source by the names that the lake has."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest

from replicator.errors import LakeUnavailable
from replicator.lake.reading import source_names
from replicator.lake.reading.source_names import mirrored_tables
from replicator.model.table import TableId
from tests.support.config import minimal_config


@pytest.mark.parametrize(
    ("folds", "in_lake", "wanted"),
    [
        (True, ["Orders", "bills"], ["Orders", "users"]),
        (True, ["orders", "Users"], ["orders", "Users"]),
        (True, None, ["orders", "users"]),
        (False, ["Orders"], ["orders", "users"]),
    ],
)
def test_tables_have_the_lakes_spelling_if_the_source_ignores_case(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    folds: bool,
    in_lake: list[str] | None,
    wanted: list[str],
) -> None:
    @contextmanager
    def catalog(_lake: object) -> Iterator[Mock]:
        if in_lake is None:
            raise LakeUnavailable("there is no catalog yet")
        yield Mock(list_tables=lambda namespace: [(namespace, name) for name in in_lake])

    tables = [TableId("shop", "orders"), TableId("shop", "users")]
    monkeypatch.setattr(source_names, "included_tables", lambda _config: tables)
    monkeypatch.setattr(source_names, "ignores_case", lambda _config: folds)
    monkeypatch.setattr(source_names, "open_catalog", catalog)
    assert mirrored_tables(minimal_config(tmp_path)) == [TableId("shop", name) for name in wanted]
