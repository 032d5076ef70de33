"""`replicator record --binlog` as a user calls it, up to where servers start."""

import json
from pathlib import Path
from typing import Any

import pytest

from replicator.operations.binlog import Imported, ImportRequest
from replicator.sources.binlog.scan import scan
from tests.support.binlog_files import gtid, previous_gtids, query, write_file


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--binlog",), "no binary log file was given"),
        (("mysql-bin.000001",), "are for binary logs"),
        (("--definitions", "x.sql"), "are for binary logs"),
        (("--binlog", "--from-server"), "--from-server fetches the files itself"),
        (("--from-server", "mysql-bin.000001"), "--from-server fetches the files itself"),
        (("--binlog", "mysql-bin.000001", "--until-caught-up"), "ends at the end of the files"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    cli: Any, config: Path, arguments: tuple[str, ...], reason: str
) -> None:
    ran = cli("record", "--to", "archive", *arguments)
    assert ran.code == 2
    assert reason in ran.err
    assert not (config.parent / "archive").exists()


def test_files_are_checked_before_anything_starts(cli: Any, config: Path) -> None:
    folder = config.parent
    write_file(folder, 1, previous_gtids(0), gtid())
    write_file(folder, 3, previous_gtids(1))
    ran = cli("record", "--to", "archive", "--binlog", "mysql-bin.000001", "mysql-bin.000003")
    assert ran.code == 3
    assert "mysql-bin.000002 is missing" in ran.err
    (folder / "mysql-bin.000002").write_bytes(b"\xfdbin" + bytes(512))
    ran = cli("record", "--to", "archive", "--binlog", "mysql-bin.000001", "mysql-bin.000002")
    assert ran.code == 3
    assert "is encrypted" in ran.err
    assert "--from-server" in ran.err
    assert not (folder / "archive").exists()


def test_tables_without_a_definition_are_named(cli: Any, config: Path) -> None:
    write_file(config.parent, 1, gtid(), query("ALTER TABLE orders ADD note TEXT"))
    ran = cli("record", "--to", "archive", "--binlog", "mysql-bin.000001")
    assert ran.code == 3
    assert "shop.orders" in ran.err
    assert "--definitions FILE" in ran.err
    assert not (config.parent / "archive").exists()


def test_an_import_reports_files_and_events(cli: Any, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_file(config.parent, 1, previous_gtids(0), gtid(), query("BEGIN")[:-3])
    asked: list[ImportRequest] = []

    def imported(_: Any, request: ImportRequest, *, on_progress: Any, stop: Any) -> Imported:
        asked.append(request)
        on_progress("reading", 1, 2)
        return Imported(scan(request.files).files, 1_234, complete=not stop.is_set())

    monkeypatch.setattr("replicator.operations.binlog.import_binlog", imported)
    ran = cli("record", "--to", "archive", "--binlog", path.name, "--definitions", "x.sql", "--mysql", "8.0")
    assert ran.code == 0
    assert asked == [ImportRequest("archive", (Path(path.name),), definitions=Path("x.sql"), mysql="8.0")]
    assert "1 transaction), recorded 1,234 events into archive." in ran.out
    assert "incomplete from offset" in ran.out
    shown = json.loads(cli("record", "--to", "archive", "--binlog", path.name, "--json").out)
    assert (shown["events"], shown["complete"], shown["files"][0]["name"]) == (1_234, True, path.name)
