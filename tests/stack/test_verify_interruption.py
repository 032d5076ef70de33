"""A check that must end does not wait for its statements, and leaves none behind on the server."""

import threading
import time
from pathlib import Path

import pytest
from sqlalchemy.exc import DBAPIError

from replicator.config import load
from replicator.errors import SourceUnavailable
from replicator.verify.interruption import Interruption, ending_statements
from replicator.verify.source_side import open_source
from tests.support.source import SourceDatabase

pytestmark = pytest.mark.stack

MARK = "replicator_interrupted"


def test_a_statement_ends_once_the_check_must_end(source_database: SourceDatabase, tmp_path: Path) -> None:
    file = tmp_path / "mirror.toml"
    file.write_text(source_database.config_text(tmp_path))
    config, interruption = load(file), Interruption()
    threading.Timer(0.5, interruption.set).start()
    began = time.monotonic()
    with (
        pytest.raises((DBAPIError, SourceUnavailable)),
        open_source(config, 2) as (connections, _),
        ending_statements(interruption, config.source, connections),
    ):
        connections[1].exec_driver_sql(f"SELECT SLEEP(60) AS {MARK}")
    assert time.monotonic() - began < 10
    shown = source_database.rows("SHOW FULL PROCESSLIST")
    assert not [row for row in shown if MARK in str(row[7])]


def test_a_check_that_ends_by_itself_keeps_its_connections(
    source_database: SourceDatabase, tmp_path: Path
) -> None:
    file = tmp_path / "mirror.toml"
    file.write_text(source_database.config_text(tmp_path))
    config = load(file)
    with open_source(config) as (connections, _):
        with ending_statements(Interruption(), config.source, connections):
            pass
        assert connections[0].exec_driver_sql("SELECT 7").scalar() == 7
