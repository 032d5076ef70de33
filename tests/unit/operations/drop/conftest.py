"""A lake with the tables of two source tables."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from replicator.config import CATALOG_NAME, Config
from replicator.lake.reading.settings import sqlalchemy_uri
from tests.support.config import minimal_config
from tests.support.dropped_lake import write


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "lake").mkdir()
    return minimal_config(tmp_path, source={"tables": ["shop.*"], "exclude": ["shop.log"]})


@pytest.fixture
def lake(config: Config) -> Iterator[SqlCatalog]:
    """A lake with the tables of shop.orders and shop.log, open for writing."""
    uri = sqlalchemy_uri(config.lake.uri or "")
    catalog = SqlCatalog(CATALOG_NAME, uri=uri, warehouse=f"file://{config.lake.warehouse}")
    for namespace in ("shop", "shop_changes", "shop_ops"):
        catalog.create_namespace(namespace)
    for name in ("orders", "log"):
        write(catalog, "shop", name)
        write(catalog, "shop_changes", name)
    yield catalog
    catalog.close()
