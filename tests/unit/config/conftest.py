"""Fixture of the configuration tests."""

from pathlib import Path

import pytest


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the path of a configuration file that does not exist yet."""
    return tmp_path / "shop.toml"
