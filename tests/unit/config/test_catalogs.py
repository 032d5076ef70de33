"""Every kind of catalog is complete: configuration, Spark, PyIceberg and Java libraries read from one entry.

So is every write strategy.
"""

from typing import Any, get_args

import pytest

from replicator.config import Strategy
from replicator.config.catalogs import CATALOGS, FILE_IO_JARS, CatalogName
from replicator.jvm.jars import AWS, POSTGRESQL
from replicator.jvm.settings import catalog_conf
from replicator.lake.catalog.metadata import table_location
from replicator.lake.reading.settings import catalog_properties
from replicator.lake.strategies.registry import STRATEGIES
from tests.support.config import minimal_config

_SETTINGS: dict[str, dict[str, Any]] = {
    "jdbc": {"uri": "jdbc:postgresql://db/lake", "warehouse": "s3://lake"},
    "rest": {"uri": "https://catalog"},
    "hive": {"uri": "thrift://hive:9083", "warehouse": "s3://lake"},
    "glue": {"warehouse": "s3://lake"},
}


def test_every_name_has_an_entry_and_every_entry_is_tested() -> None:
    assert set(CATALOGS) == set(get_args(CatalogName)) == set(_SETTINGS)


def test_every_strategy_has_an_entry() -> None:
    assert set(STRATEGIES) == set(get_args(Strategy))


@pytest.mark.parametrize("name", _SETTINGS)
def test_a_kind_has_all_that_the_engine_needs(name: str) -> None:
    lake = minimal_config(lake={"catalog": name, "namespace": "shop", **_SETTINGS[name]}).lake
    spark, python = catalog_conf(lake), catalog_properties(lake)
    assert spark["spark.sql.catalog.lake.type"] == name
    assert python["type"] == ("sql" if name == "jdbc" else name)
    assert ("uri" in python) == ("uri" in _SETTINGS[name])
    assert lake.folds_case == (name in ("hive", "glue"))
    assert (table_location(lake, "shop", "a b") is not None) == (name == "jdbc")


def test_every_set_of_libraries_exists() -> None:
    wanted = {jar for kind in CATALOGS.values() for jar in kind.jars}
    wanted |= {jar for kind in CATALOGS.values() for db in kind.databases.values() for jar in db.jars}
    wanted |= {jar for jars in FILE_IO_JARS.values() for jar in jars}
    assert wanted == {POSTGRESQL.name, AWS.name}
