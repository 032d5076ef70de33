"""Checks of machine and lake that need no server."""

import os
from pathlib import Path

import pytest

from replicator.config import Config
from replicator.operations.check.lake import check_lake
from replicator.operations.check.machine import GIB, disk, java, memory
from tests.support.config import minimal_config


def configured(folder: Path, warehouse: str = "lake") -> Config:
    lake = {
        "catalog": "jdbc",
        "uri": "jdbc:sqlite:lake/catalog.db",
        "warehouse": warehouse,
        "namespace": "shop",
    }
    return minimal_config(
        folder, log={"kind": "archive", "path": "recorded", "topic_prefix": "shop"}, lake=lake
    )


def test_memory_and_disk_report_insufficient_space() -> None:
    assert memory("3g", 4 * GIB).status == "ok"
    assert memory("3072m", 3 * GIB).status == "warn"
    assert disk(Path("/x"), 3 * GIB).status == "ok"
    assert disk(Path("/x"), GIB).found == "1.0 GiB free at /x"


def test_check_java_fails_when_no_java_is_installed() -> None:
    result = java(())
    assert (result.status, result.found) == ("fail", "no Java is installed")
    assert "install Java" in result.next_step


def test_check_lake_fails_when_a_file_has_the_path_of_the_lake(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("")
    assert [result.status for result in check_lake(configured(tmp_path))] == ["fail", "fail"]


def test_check_lake_reports_a_folder_that_is_not_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not by chmod, which has no effect if the tests run as root.
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "not writable" in next(iter(check_lake(configured(tmp_path)))).found


def test_check_lake_fails_when_the_file_is_not_a_catalog(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "catalog.db").write_text(
        "this is no database at all, but long enough to be read as one\n" * 9
    )
    found = list(check_lake(configured(tmp_path)))[-1]
    assert (found.name, found.status) == ("lake: catalog", "fail")
    assert "cannot be used" in found.found
