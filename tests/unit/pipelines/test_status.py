"""The state of pipelines, as `list_pipelines` tells it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from replicator.pipelines import status
from replicator.pipelines.status import list_pipelines
from tests.support.config import minimal_config


class DamagedCatalog:
    """A catalog with one table, whose metadata is gone."""

    def load_table(self, name: tuple[str, str]) -> Any:
        if name == ("shop", "orders"):
            raise FileNotFoundError("v3.metadata.json")
        raise NoSuchTableError

    def load_namespace_properties(self, _: str) -> Any:
        raise NoSuchNamespaceError

    def list_tables(self, namespace: str) -> list[tuple[str, str]]:
        return [("shop", "orders")] if namespace == "shop" else []


def test_table_that_cannot_be_read_is_named_and_others_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def opened(_: object) -> Iterator[DamagedCatalog]:
        yield DamagedCatalog()

    config = minimal_config(tmp_path)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "a.sql").write_text("SELECT id FROM shop.orders")
    (tmp_path / "pipelines" / "b.sql").write_text("SELECT id FROM shop.items")
    monkeypatch.setattr(status, "open_metadata", opened)
    monkeypatch.setattr(type(config.lake), "is_new", False)
    a, b = list_pipelines(config)
    assert a.problem == "shop.orders: its files cannot be read: v3.metadata.json"
    assert "restore the files" in str(a.hint)
    assert "no table shop.items in the lake" in str(b.problem)


def test_pipeline_over_a_table_that_is_made_later_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def opened(_: object) -> Iterator[DamagedCatalog]:
        yield DamagedCatalog()

    config = minimal_config(
        tmp_path,
        log={"kind": "kafka", "bootstrap_servers": "nowhere:9092", "topic_prefix": "shop"},
        source={"url": "mysql://root@nowhere:3306/shop", "tables": ["shop.*"]},
        log_table=[{"topic": "clicks", "table": "logs.clicks"}],
    )
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "a.sql").write_text("SELECT id FROM shop.items")
    (tmp_path / "pipelines" / "b.sql").write_text("SELECT id FROM shop_pipelines.a")
    (tmp_path / "pipelines" / "c.sql").write_text("SELECT id FROM logs.clicks")
    monkeypatch.setattr(status, "open_metadata", opened)
    monkeypatch.setattr(type(config.lake), "is_new", False)
    a, b, c = sorted(list_pipelines(config), key=lambda found: found.name)
    assert (c.state, c.waits_for, c.problem) == ("waiting", ("logs.clicks",), None)
    assert (a.state, a.waits_for) == ("invalid", ())
    assert (b.state, b.waits_for, b.problem) == ("waiting", ("shop_pipelines.a",), None)
