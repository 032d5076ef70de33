"""A source with tables that writers change, its connector, and the mirror's configuration."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from replicator.operations.stack import Endpoints
from tests.support.mirrored_database import MirroredDatabaseBuilder
from tests.support.source import SourceDatabase


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.stack)


@pytest.fixture
def mirror_database(source_database: SourceDatabase, tmp_path: Path) -> MirroredDatabaseBuilder:
    return MirroredDatabaseBuilder(source_database, tmp_path)


@pytest.fixture
def builder_on(
    source_database: SourceDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Endpoints], MirroredDatabaseBuilder]:
    """Provide what returns the builder of a database on another server."""

    def build(server: Endpoints) -> MirroredDatabaseBuilder:
        monkeypatch.setenv("REPLICATOR_TEST_PASSWORD", server.mysql_password)
        there = replace(source_database, server=server)
        replace(there, name="mysql").execute(f"CREATE DATABASE `{there.name}` CHARACTER SET utf8mb4")
        return MirroredDatabaseBuilder(there, tmp_path)

    return build
