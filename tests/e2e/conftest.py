"""A source with tables that writers change, its connector, and the mirror's configuration."""

from pathlib import Path

import pytest

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
