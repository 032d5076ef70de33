"""A `drop` that was interrupted, and what it did."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from replicator import failpoints
from replicator.config import Config
from replicator.errors import LakeUnavailable, UsageError
from replicator.operations.check.lake import check_lake
from replicator.operations.check.result import CheckResult
from replicator.operations.drop import drop, plan_drop
from tests.support.dropped_lake import files, folder_of, names, ops, run, write
from tests.support.lake_schemas import validate_properties

PROGRAM = """
import sys
from pathlib import Path
from replicator.config import load
from replicator.operations.drop import drop, plan_drop
config = load(Path(sys.argv[1]))
drop(config, plan_drop(config, "shop.orders", purge=True))
"""


@pytest.mark.parametrize(
    ("point", "registered", "recorded"),
    [
        ("after-unregister", 1, 2),
        ("during-purge:30", 0, 2),
        ("after-purge", 0, 2),
    ],
)
def test_killed_drop_is_finished_by_the_same_command(
    config: Config, lake: SqlCatalog, tmp_path: Path, point: str, registered: int, recorded: int
) -> None:
    for number in range(60):
        # More folders than the command deletes at the same time.
        part = folder_of(config, "shop", "orders") / f"data/p={number}"
        part.mkdir()
        (part / "0.parquet").touch()
    left = killed_at(point, config, tmp_path)
    assert left < 78 or point == "after-unregister"
    assert len(names(lake)) == registered + 2
    assert len(ops(lake)) == recorded
    validate_properties("namespace", ops(lake))
    report = run(config)
    assert (len(report.dropped), report.deleted_files) == (registered, left)
    assert (names(lake), ops(lake)) == ({"shop.log", "shop_changes.log"}, {})
    assert not folder_of(config, "shop", "orders").exists()
    assert not folder_of(config, "shop_changes", "orders").exists()
    assert not plan_drop(config, "shop.orders", purge=True)


def killed_at(point: str, config: Config, tmp_path: Path) -> int:
    """Run the command in a process that is killed at a crash point. Return the number of files that are left."""
    file = tmp_path / "replicator.toml"
    file.write_text(
        '[mirror]\nname = "shop"\nstate_dir = "state"\n[source]\ntables = ["shop.*"]\n'
        '[log]\nkind = "archive"\npath = "archive"\n'
        '[lake]\ncatalog = "jdbc"\nuri = "jdbc:sqlite:lake/catalog.db"\nwarehouse = "lake"\nnamespace = "shop"\n'
    )
    environment = os.environ | {"REPLICATOR_CRASH_AT": point}
    ended = subprocess.run([sys.executable, "-c", PROGRAM, str(file)], env=environment, check=False)
    assert ended.returncode == -9
    return sum(len(files(folder_of(config, space, "orders"))) for space in ("shop", "shop_changes"))


def interrupted(config: Config) -> None:
    """Interrupt a drop of shop.orders before it deletes files."""

    def stop(point: str) -> None:
        if point == "during-purge":
            raise KeyboardInterrupt

    with failpoints.on_reach(stop), pytest.raises(KeyboardInterrupt):
        run(config)


def test_interrupted_purge_also_deletes_the_table_that_the_mirror_created_since(
    config: Config, lake: SqlCatalog
) -> None:
    interrupted(config)
    write(lake, "shop", "orders")
    plan = plan_drop(config, "shop.orders", purge=True)
    assert ([table.name for table in plan.tables], len(plan.recorded)) == (["shop.orders"], 2)
    assert drop(config, plan).dropped == ("shop.orders",)
    assert not folder_of(config, "shop", "orders").exists()


def test_check_names_a_table_whose_purge_was_interrupted(config: Config, lake: SqlCatalog) -> None:
    def dropped() -> list[CheckResult]:
        return [result for result in check_lake(config) if result.name == "lake: dropped tables"]

    assert dropped() == []
    interrupted(config)
    (result,) = dropped()
    assert result.status == "warn"
    assert result.found == "a drop did not delete all files of shop.orders"
    assert result.next_step == "run: replicator drop shop.orders --purge -c FILE"
    run(config)
    assert dropped() == []


def test_interrupted_purge_spares_a_table_that_took_the_folder(config: Config, lake: SqlCatalog) -> None:
    interrupted(config)
    write(lake, "shop", "other", location=f"file://{folder_of(config, 'shop', 'orders')}")
    with pytest.raises(UsageError, match=r"shop\.other has files in the same folder"):
        plan_drop(config, "shop.orders", purge=True)
    report = run(config, purge=False)
    assert (report.dropped, len(report.remaining_folders)) == ((), 2)
    assert ops(lake) == {}
    assert len(lake.load_table(("shop", "other")).scan().to_arrow()) == 4


def test_failed_purge_says_how_to_continue(config: Config, lake: SqlCatalog) -> None:
    folder = folder_of(config, "shop", "orders")
    plan = plan_drop(config, "shop.orders", purge=True)

    def add_file(point: str) -> None:
        if point == "during-purge" and (folder / "data").exists():
            (folder / "data" / "late").touch()

    with failpoints.on_reach(add_file), pytest.raises(LakeUnavailable) as raised:
        drop(config, plan)
    assert (
        raised.value.hint
        == "fix the cause, then run the same command again; it deletes the files that are left"
    )
    assert run(config).deleted_files == 1
    assert not folder.exists()
