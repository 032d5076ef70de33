"""Checks of the files of pipelines."""

from pathlib import Path

from replicator.operations.check import check_pipelines
from tests.support.config import minimal_config


def test_files_that_cannot_be_used_are_named_without_running_code(tmp_path: Path) -> None:
    config, folder = minimal_config(tmp_path), tmp_path / "pipelines"
    assert list(check_pipelines(config)) == []
    folder.mkdir()
    (folder / "a.sql").write_text("SELECT id FROM shop.orders")
    (folder / "b.py").write_text(
        "# input rows: shop.orders\nraise SystemExit\ndef model(rows):\n    return rows\n"
    )
    (found,) = check_pipelines(config)
    assert (found.status, found.found) == ("ok", "2 pipelines")
    (folder / "b.py").write_text("# input rows: shop.orders\ndef model(row):\n    return row\n")
    (found,) = check_pipelines(config)
    assert (found.name, found.status) == ("pipelines: b", "warn")
    assert found.found.endswith("b.py:2: the header has no input row")
    assert found.next_step
