"""A mirror of an archive, and its lake."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from replicator.config import CATALOG_NAME, Config
from replicator.lake.reading.settings import sqlalchemy_uri
from replicator.sources.archive.format import Event
from replicator.sources.archive.writer import ArchiveWriter
from tests.support.archived_events import append_event
from tests.support.config import minimal_config
from tests.support.marked_lake import TOPIC


@pytest.fixture
def config(tmp_path: Path) -> Config:
    with ArchiveWriter(tmp_path / "recorded", topic_prefix="p", encoding="json") as writer:
        for offset in range(10):
            append_event(writer, Event(TOPIC, 0, offset, 0, None, b"{}", ()))
        append_event(writer, Event("p.shop.new", 0, 0, 0, None, b"{}", ()))
        append_event(writer, Event("p.shop.left_out", 0, 0, 0, None, b"{}", ()))
        append_event(writer, Event("p", 0, 0, 0, None, b"{}", ()))
    return minimal_config(
        tmp_path,
        source={"tables": ["shop.*"], "exclude": ["shop.left_out"]},
        log={"kind": "archive", "path": "recorded"},
    )


@pytest.fixture
def lake(config: Config, tmp_path: Path) -> Iterator[SqlCatalog]:
    """Create a lake with empty namespaces, and open it for writing."""
    (tmp_path / "lake").mkdir()
    catalog = SqlCatalog(
        CATALOG_NAME, uri=sqlalchemy_uri(config.lake.uri or ""), warehouse=f"file://{config.lake.warehouse}"
    )
    for namespace in ("shop", "shop_changes", "shop_ops"):
        catalog.create_namespace(namespace)
    yield catalog
    catalog.close()
