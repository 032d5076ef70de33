"""How files are laid out for the server of an import, and how its connector is configured."""

from dataclasses import replace
from pathlib import Path

import pytest

from replicator.operations.binlog.scratch import (
    ScratchFolder,
    connector_settings,
    next_step,
    scratch_config,
    server_arguments,
)
from replicator.operations.stack import Endpoints
from replicator.sources.binlog.scan import scan
from tests.support.binlog_files import gtid, previous_gtids, write_file
from tests.support.config import minimal_config

ENDPOINTS = Endpoints(
    mysql_port=1, bootstrap_servers="127.0.0.1:2", connect_url="http://127.0.0.1:3", mysql_password="p"
)


def test_only_the_last_file_is_copied(tmp_path: Path) -> None:
    paths = [write_file(tmp_path, n, previous_gtids(n - 1), gtid()) for n in (1, 2)]
    folder = ScratchFolder(tmp_path / "scratch")
    folder.prepare(scan(paths).files)
    first, last = (folder.binlogs / path.name for path in paths)
    assert first.readlink() == paths[0]
    assert not last.is_symlink()
    assert last.read_bytes() == paths[1].read_bytes()
    assert folder.index.read_text().splitlines() == [str(first), str(last)]


def test_files_that_were_fetched_into_the_folder_stay_where_they_are(tmp_path: Path) -> None:
    folder = ScratchFolder(tmp_path)
    folder.binlogs.mkdir()
    paths = [write_file(folder.binlogs, n, previous_gtids(n - 1), gtid()) for n in (1, 2)]
    folder.prepare(scan(paths).files)
    assert [path.is_symlink() for path in paths] == [False, False]
    assert folder.index.read_text().splitlines() == list(map(str, paths))


@pytest.mark.parametrize(("gtids", "mode"), [(1, "ON"), (0, "OFF")])
def test_the_server_has_the_gtid_mode_of_the_files(tmp_path: Path, gtids: int, mode: str) -> None:
    (file,) = scan([write_file(tmp_path, 1)]).files
    arguments = server_arguments(ScratchFolder(tmp_path), (replace(file, gtids=gtids),))
    assert f"--gtid-mode={mode}" in arguments
    assert f"--log-bin={tmp_path}/binlogs/mysql-bin" in arguments


def test_the_connector_has_the_settings_of_the_mirror(tmp_path: Path) -> None:
    log = {
        "kind": "kafka",
        "bootstrap_servers": "kafka:9092",
        "topic_prefix": "crm",
        "transactions": True,
        "format": "avro",
        "registry_url": "http://registry/apis/ccompat/v7",
    }
    source = {
        "url": "mysql://u@h:3306/shop",
        "tables": ["shop.*"],
        "signal_table": "shop.signals",
        "exclude": ["shop.x"],
    }
    config = minimal_config(tmp_path, log=log, source=source)
    settings = connector_settings(scratch_config(config, ENDPOINTS), ENDPOINTS)
    assert settings["topic.prefix"] == "crm"
    assert settings["provide.transaction.metadata"] == "true"
    assert settings["value.converter"] == "org.apache.kafka.connect.json.JsonConverter"
    assert settings["snapshot.mode"] == "recovery"
    assert "signal.data.collection" not in settings
    assert settings["table.include.list"].startswith("(?!")
    assert (settings["database.hostname"], settings["database.port"], settings["database.password"]) == (
        "127.0.0.1",
        "1",
        "p",
    )
    assert settings["schema.history.internal.kafka.bootstrap.servers"] == "127.0.0.1:2"


@pytest.mark.parametrize(
    ("reason", "step"),
    [
        (
            "Error while deserializing binlog data of date: Invalid date 'FEBRUARY 31'",
            "the files that follow",
        ),
        ("Encountered change event for table a whose schema isn't known", "give --definitions"),
        ("something else", "repeat the command"),
    ],
)
def test_next_step_is_one_of_an_import(reason: str, step: str) -> None:
    assert step in next_step(reason)
