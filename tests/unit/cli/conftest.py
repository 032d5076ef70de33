"""Calls of the command line, and a configuration for them."""

from pathlib import Path
from typing import Any

import pytest

from replicator.cli import main
from tests.support.command_line import CommandResult


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REPLICATOR_DEBUG", raising=False)
    monkeypatch.delenv("REPLICATOR_CONFIG", raising=False)

    def run(*arguments: str) -> CommandResult:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        captured = capsys.readouterr()
        return CommandResult(int(ended.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def config(cli: Any, tmp_path: Path) -> Path:
    """Return a configuration with an empty archive and no lake."""
    from replicator.sources.archive.writer import ArchiveWriter

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
