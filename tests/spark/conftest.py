"""One Spark session for all tests in this folder; each test has a separate lake."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from pyspark.sql import SparkSession

from replicator.lake.catalog.tables import Lake
from tests.support.lake_harness import LakeHarness, spark_session
from tests.support.rebuilt_lake import assert_rebuilds_equal_mirrors


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Disable log lines during the tests."""
    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()
    logging.disable(logging.NOTSET)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[LakeHarness]:
    """A lake. With REPLICATOR_CHECK_REBUILDS, its mirrors must equal those that are rebuilt after the test."""
    lake = LakeHarness(spark, tmp_path)
    yield lake
    if os.environ.get("REPLICATOR_CHECK_REBUILDS") and (tmp_path / "lake" / "catalog.db").exists():
        config = lake.config()
        with lake.catalog() as catalog:
            assert_rebuilds_equal_mirrors(catalog, Lake(lake.session(config)), config)
