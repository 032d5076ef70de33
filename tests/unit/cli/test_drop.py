"""`replicator drop` as a user calls it, on a real lake."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from replicator.config import CATALOG_NAME
from replicator.model.commit_marker import MARKER_KEY, CommitMarker, PartitionProgress
from replicator.model.table import SOURCE_KEY

ASK_IN_TERMINAL = "from replicator.cli import main; import sys; main(sys.argv[1:])"


@pytest.fixture
def lake(config: Path, tmp_path: Path) -> Iterator[SqlCatalog]:
    """A lake with the mirror and the changelog of shop.orders."""
    (tmp_path / "lake").mkdir()
    catalog = SqlCatalog(
        CATALOG_NAME, uri=f"sqlite:///{tmp_path}/lake/catalog.db", warehouse=f"file://{tmp_path}/lake"
    )
    marker = CommitMarker("shop", 1, 1, {"shop.shop.orders": {0: PartitionProgress(1)}}, None, None, 1)
    rows = pa.table({"id": [1, 2]})
    catalog.create_namespace("shop_ops")
    for namespace in ("shop", "shop_changes"):
        catalog.create_namespace(namespace)
        properties = {MARKER_KEY: marker.to_json(), SOURCE_KEY: "shop.orders"}
        catalog.create_table((namespace, "orders"), rows.schema, properties=properties).append(rows)
    yield catalog
    catalog.close()


def in_terminal(config: Path, answer: str, *arguments: str) -> tuple[int, str, str]:
    """Run `replicator drop` with a terminal as its input, and type an answer. Return exit code, output and errors."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        ended = subprocess.run(
            [sys.executable, "-c", ASK_IN_TERMINAL, "drop", *arguments],
            stdin=theirs,
            capture_output=True,
            text=True,
            check=False,
            cwd=config.parent,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    return ended.returncode, ended.stdout, ended.stderr


def test_drop_asks_first_and_does_nothing_if_the_answer_is_no(config: Path, lake: SqlCatalog) -> None:
    code, out, asked = in_terminal(config, "n", "shop.orders", "--purge")
    assert (code, out) == (1, "")
    lines = [" ".join(line.split()) for line in asked.splitlines()]
    folder = f"file://{config.parent}/lake"
    size = lines[2].split(" MB")[0].split()[-1]
    assert lines[:3] == [
        "Lake tables of shop.orders:",
        "table rows files size folder",
        f"shop_changes.orders 2 1 {size} MB {folder}/shop_changes/orders",
    ]
    assert lines[4] == "All files in these folders are deleted, of all snapshots."
    assert (
        "the next `replicator run` creates it again, from the source or, if the mirror reads no new tables, "
        "from the first event" in lines[5]
    )
    assert lines[6].startswith("Drop shop.orders and delete its files? [y/n] (n):")
    assert lake.table_exists(("shop", "orders"))


def test_drop_needs_yes_without_a_terminal(
    cli: Any, config: Path, lake: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        ran = cli("drop", "shop.orders")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines()[-1] == "next:  add --yes"
    assert lake.table_exists(("shop", "orders"))


def test_drop_with_yes_purges_and_says_how_many_files(cli: Any, config: Path, lake: SqlCatalog) -> None:
    ran = cli("drop", "shop.orders", "--purge", "--yes")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[:2] == [
        "Dropped: shop_changes.orders, shop.orders.",
        "10 files were deleted.",
    ]
    assert not (config.parent / "lake" / "shop" / "orders").exists()


def test_drop_json_has_the_published_keys(cli: Any, config: Path, lake: SqlCatalog) -> None:
    found = json.loads(cli("drop", "shop.orders", "--purge", "--yes", "--json").out)
    assert found.keys() >= {"version", "table", "dropped", "purged", "deleted_files", "remaining_folders"}
    assert found.keys() >= {"quarantined", "selected"}
    assert (found["version"], found["table"], found["deleted_files"]) == (1, "shop.orders", 10)


def test_drop_exits_with_2_when_the_name_has_no_database(cli: Any, config: Path, lake: SqlCatalog) -> None:
    ran = cli("drop", "orders", "--yes")
    assert (ran.code, ran.err.splitlines()[0]) == (2, "error: 'orders' is not a table")
