"""The schema of a JDBC catalog: V1 in a new catalog, and updated from V0 in an old one."""

import logging
import sqlite3
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from replicator.config import CATALOG_NAME, Config
from replicator.lake.reading.settings import catalog_properties
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import DEFINITION, created


def with_old_schema(lake: LakeHarness) -> Config:
    """Return the configuration of a catalog with the schema that Iceberg creates by default."""
    options: dict[str, Any] = {
        "catalog": "jdbc",
        "uri": "jdbc:sqlite:lake/catalog.db",
        "warehouse": "lake",
        "namespace": "shop",
        "options": {"jdbc.schema-version": "V0"},
    }
    return lake.config(lake=options)


def catalog_columns(lake: LakeHarness) -> list[str]:
    with sqlite3.connect(lake.folder / "lake" / "catalog.db") as database:
        found = [str(row[1]) for row in database.execute("PRAGMA table_info(iceberg_tables)")]
    database.close()
    return found


def table_ids(lake: LakeHarness) -> list[int]:
    """Return the ids in the table, read by PyIceberg with its warnings enabled."""
    catalog = load_catalog(CATALOG_NAME, **catalog_properties(lake.config().lake))
    try:
        rows = catalog.load_table(("shop", "orders")).scan().to_arrow().to_pylist()
    finally:
        catalog.close()
    return sorted(row["id"] for row in rows)


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture, quiet: None) -> pytest.LogCaptureFixture:
    """Capture the warnings of PyIceberg, which the other tests here disable."""
    logging.disable(logging.NOTSET)
    caplog.set_level(logging.WARNING, "pyiceberg")
    caplog.set_level(logging.WARNING, "pyiceberg.catalog.sql")
    return caplog


def test_new_jdbc_catalog_has_schema_v1(lake: LakeHarness, warnings: pytest.LogCaptureFixture) -> None:
    lake.write([DEFINITION, created(1)])
    lake.catch_up()
    assert "iceberg_type" in catalog_columns(lake)
    warnings.clear()
    warnings.set_level(logging.WARNING, "pyiceberg.catalog.sql")
    assert table_ids(lake) == [1]
    assert warnings.records == []


def test_jdbc_catalog_of_schema_v0_is_updated_to_v1(
    lake: LakeHarness, warnings: pytest.LogCaptureFixture
) -> None:
    old = with_old_schema(lake)
    lake.write([DEFINITION, created(1)])
    lake.catch_up(old)
    assert "iceberg_type" not in catalog_columns(lake)
    assert [row["id"] for row in lake.rows("orders")] == [1]
    lake.write([created(2)])
    lake.catch_up()
    assert "iceberg_type" in catalog_columns(lake)
    # Another mirror of this catalog may choose no schema.
    lake.write([created(3)])
    lake.catch_up(old)
    warnings.clear()
    warnings.set_level(logging.WARNING, "pyiceberg.catalog.sql")
    assert table_ids(lake) == [1, 2, 3]
    assert warnings.records == []
