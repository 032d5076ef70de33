"""Calls of the command line, and a configuration for them."""

from pathlib import Path
from typing import Any

import pytest

from replicator.cli import main


class Ran:
    """What one call printed and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REPLICATOR_DEBUG", raising=False)
    monkeypatch.delenv("REPLICATOR_CONFIG", raising=False)

    def run(*arguments: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        captured = capsys.readouterr()
        return Ran(int(ended.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def config(cli: Any, tmp_path: Path) -> Path:
    """A configuration of an empty archive and no lake."""
    from replicator.archive import ArchiveWriter

    ArchiveWriter(tmp_path / "recorded", topic_prefix="shop", encoding="json").close()
    file = tmp_path / "replicator.toml"
    file.write_text(
        """
[mirror]
name = "shop"
[source]
tables = ["shop.*"]
[log]
kind = "archive"
path = "recorded"
topic_prefix = "shop"
[lake]
catalog = "jdbc"
uri = "jdbc:sqlite:lake/catalog.db"
warehouse = "lake"
namespace = "shop"
"""
    )
    return file
