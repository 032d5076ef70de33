"""`replicator maintain` as a user calls it."""

import json
from pathlib import Path
from typing import Any

import pytest

from replicator.config import Config, load
from replicator.errors import UsageError
from replicator.maintenance.plan import Step
from replicator.maintenance.reports import StepReport
from replicator.operations.maintain import TableReport, TableSize
from tests.support.command_line import replace_module

BEFORE = TableSize(30, 29, 1200, 29, 2_500_000, 3)
AFTER = TableSize(1, 0, 1171, 0, 900_000, 4)
PLANNED = TableReport("shop.orders", "shop.orders", BEFORE, due=(Step.MERGE_DATA, Step.MERGE_DELETES))
DONE = TableReport(
    "shop.orders",
    "shop.orders",
    BEFORE,
    AFTER,
    (Step.MERGE_DATA, Step.MERGE_DELETES),
    (
        StepReport(Step.MERGE_DATA, 30, 1, 2_400_000),
        StepReport(Step.MANIFESTS, 0),
        StepReport(Step.ORPHANS, 0, skipped="shop.before has files in the same folder, lake/shop/orders"),
    ),
)
FAILED = TableReport("shop.log", "shop.log", AFTER, AFTER, problems={Step.MERGE_DATA: "the disk is full"})


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Config, list[str], bool]]:
    """The calls of the operation; the pattern `shop.log` makes it fail."""
    made: list[tuple[Config, list[str], bool]] = []

    def maintain(config: Config, patterns: Any, *, dry_run: bool, on_progress: Any) -> Any:
        made.append((config, list(patterns), dry_run))
        if "shop.none" in patterns:
            raise UsageError("--table: 'shop.none' matches no source table", "write it as database.table")
        if "shop.new" in patterns:
            return ()
        on_progress("shop.orders", 0, 1)
        return (PLANNED,) if dry_run else (DONE, FAILED) if "shop.log" in patterns else (DONE,)

    replace_module(monkeypatch, "replicator.operations.maintain", maintain=maintain)
    return made


def test_maintain_prints_each_table_before_and_after(cli: Any, config: Path, calls: list[Any]) -> None:
    ran = cli("maintain")
    assert (ran.code, calls) == (0, [(load(config), [], False)])
    head, row, summary, note = ran.out.splitlines()
    assert summary.startswith("1 table maintained in ")
    assert summary.endswith("1 changed: 29 data files, -1 snapshots and 1.6 MB of live files fewer.")
    assert ran.err.splitlines() == ["reading the lake", "shop.orders (0 of 1 done)"]
    assert " ".join(head.split()) == "table data files delete files deleted rows snapshots size done"
    assert " ".join(row.split()) == (
        "shop.orders 30 → 1 29 → 0 29 → 0 3 → 4 2.5 MB → 0.9 MB merge data files (30 → 1)"
    )
    assert note == (
        "shop.orders: delete orphan files does not apply: "
        "shop.before has files in the same folder, lake/shop/orders"
    )


def test_maintain_exits_with_1_when_a_step_could_not_be_done(
    cli: Any, config: Path, calls: list[Any]
) -> None:
    ran = cli("maintain", "shop.orders", "--table", "shop.log")
    assert (ran.code, calls[0][1]) == (1, ["shop.orders", "shop.log"])
    assert ran.out.splitlines()[-1] == "shop.log: merge data files failed: the disk is full"


def test_maintain_json_has_the_published_keys(cli: Any, config: Path, calls: list[Any]) -> None:
    found = json.loads(cli("maintain", "--table", "shop.log", "--json").out)
    assert found["version"] == 1
    first, second = found["tables"]
    assert first.keys() >= {"table", "source", "before", "after", "due", "done", "problems"}
    facts = {"data_files", "delete_files", "rows", "deleted_rows", "bytes", "snapshots"}
    assert first["before"].keys() >= facts
    assert first["done"][0] == {
        "step": "merge data files",
        "rewritten": 30,
        "added": 1,
        "bytes": 2_400_000,
        "complete": True,
        "skipped": None,
    }
    assert second["problems"] == {"merge data files": "the disk is full"}
