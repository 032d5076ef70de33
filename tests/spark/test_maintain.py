"""`replicator maintain`: the lake becomes small, and its content stays the same."""

import base64
import contextlib
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from replicator.config import Config
from replicator.errors import LakeUnavailable, UsageError
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.reading.folder_reader import read_folders
from replicator.maintenance.plan import Step
from replicator.maintenance.steps import Maintenance
from replicator.maintenance.table_reader import Target
from replicator.operations import maintain as operation
from replicator.operations.drop import plan_drop
from replicator.operations.maintain import TableReport, maintain_table, maintain_tables
from replicator.operations.status.mirror_status import TableMaintenance
from replicator.operations.status.read import read_status
from tests.oracle.model import Record
from tests.support.config_files import ARCHIVE_MIRROR
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import DEFINITION, ORDERS, created, event

DAY = 86_400
MIRROR = Target("shop", "orders", "shop.orders")
CHANGELOG = Target("shop_changes", "orders", "shop.orders")
LARGE = created(-1, base64.b85encode(random.Random(1).randbytes(200_000)).decode())
"""A row whose data file is not merged with small ones: delete files that are newer stay until they are merged too."""
CONFIG = (
    ARCHIVE_MIRROR.replace("[source]", 'state_dir = "state"\n[source]')
    + """\
[maintenance]
enabled = false
merge_files = 3
delete_ratio = 0.5
[spark]
master = "local[1]"
driver_memory = "512m"
conf = { "spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" }
"""
)


def disabled(lake: LakeHarness, **maintenance: Any) -> Config:
    return lake.config(maintenance={"enabled": False, "delete_ratio": 0.5, **maintenance})


def updated(pos: int, number: int, before: str, after: str) -> Record:
    return event("u", pos, before={"id": number, "name": before}, after={"id": number, "name": after})


def write_commits(lake: LakeHarness, config: Config, count: int, *first: Record) -> None:
    """Make `count` commits to `orders`: each inserts two rows and, but for the first, changes one of an earlier one.

    The events `first` are in a commit before these.
    """
    commits = [list(first)] if first else []
    for n in range(count):
        batch = [event("c", 1000 + 10 * n + i, after={"id": 2 * n + i, "name": "new"}) for i in range(2)]
        commits.append([*batch, updated(1005 + 10 * n, 2 * n - 1, "new", f"changed {n}")] if n else batch)
    lake.write([DEFINITION, *(record for commit in commits for record in commit)])
    mirror, end = lake.mirror(config), 0
    for commit in commits:
        end += len(commit)
        mirror.advance({ORDERS: {0: end}})


def table(lake: LakeHarness, target: Target = MIRROR) -> Table:
    with lake.catalog() as catalog:
        return catalog.load_table((target.namespace, target.name))


def loaded(lake: Lake, target: Target = MIRROR) -> LakeTable:
    found = lake.load(target.namespace, target.name)
    assert found is not None
    return found


def maintained(lake: LakeHarness, config: Config, *targets: Target) -> dict[str, TableReport]:
    reports = maintain_tables(config, Lake(lake.session(config)), targets or (MIRROR, CHANGELOG))
    return {report.table: report for report in reports}


def step(report: TableReport, wanted: Step) -> Any:
    return next(done for done in report.done if done.step is wanted)


def contents(lake: LakeHarness) -> list[list[str]]:
    return [sorted(map(repr, lake.rows("orders", t.namespace))) for t in (MIRROR, CHANGELOG)]


def files(lake: LakeHarness) -> set[Path]:
    return {path for path in (lake.folder / "lake").rglob("*") if path.is_file()}


def orphan(found: Table, name: str, days: float) -> Path:
    """Write a file of this age into a table's folder."""
    path = Path(found.location().removeprefix("file:")) / "data" / name
    path.write_bytes(b"no snapshot has this file")
    os.utime(path, (time.time() - days * DAY,) * 2)
    return path


def test_maintain_merges_small_commits_and_the_mirror_continues(lake: LakeHarness) -> None:
    config = disabled(lake, merge_files=6)
    write_commits(lake, config, 8, LARGE)
    before = contents(lake)
    old, young = orphan(table(lake), "old.parquet", 4), orphan(table(lake), "young.parquet", 2)
    reports = maintained(lake, config)
    for report in reports.values():
        assert report.before.data_files >= 8
        assert report.due[0] is Step.MERGE_DATA
        assert report.problems == {}
        assert report.after is not None
        assert (report.after.data_files, report.after.delete_files) == (2, 0)
    assert contents(lake) == before
    assert (old.exists(), young.exists()) == (False, True)
    assert step(reports["shop.orders"], Step.ORPHANS).rewritten == 1

    lake.write([created(5000), updated(9000, 0, "new", "later")])
    lake.catch_up(config)
    rows = {row["id"]: row["name"] for row in lake.rows("orders")}
    assert (rows[5000], rows[0], len(rows)) == ("new", "later", 18)
    assert len(lake.rows("orders", "shop_changes")) == len(before[1]) + 3


def test_maintain_as_a_command_shows_what_is_due_then_does_it(lake: LakeHarness) -> None:
    config = disabled(lake, merge_files=3)
    write_commits(lake, config, 4)
    (lake.folder / "replicator.toml").write_text(CONFIG)
    before, known = contents(lake), files(lake)

    def command(*options: str) -> list[dict[str, Any]]:
        program = "import sys; from replicator.cli import main; main(sys.argv[1:])"
        done = subprocess.run(
            [sys.executable, "-c", program, "maintain", "--json", *options],
            cwd=lake.folder,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout)["tables"])

    planned = command("--dry-run")
    assert [entry["table"] for entry in planned] == ["shop.orders", "shop_changes.orders"]
    assert planned[0]["due"] == ["merge data files", "merge delete files"]
    assert (planned[0]["before"]["data_files"], planned[0]["after"]) == (4, None)
    assert files(lake) == known
    done = command()
    assert [(entry["after"]["data_files"], entry["problems"]) for entry in done] == [(1, {}), (1, {})]
    # The merge of data files dropped the delete files but that of the newest commit: there was nothing to merge.
    assert done[0]["after"]["delete_files"] == 1
    assert "write.delete.granularity" not in table(lake).properties
    assert contents(lake) == before


def test_a_lake_that_needs_nothing_has_the_same_report_without_spark(
    lake: LakeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first maintenance, and after one that merged files, applied deletes and deleted snapshots."""
    idle = disabled(lake, merge_files=100, max_snapshots=100)
    write_commits(lake, idle, 6, LARGE)
    opened = Lake(lake.session(idle))
    started: list[Config] = []

    def reports() -> tuple[TableReport, ...]:
        for path in files(lake):
            os.utime(path, (time.time() - 4 * DAY,) * 2)
        return operation.maintain(idle)

    def session(config: Config) -> Any:
        started.append(config)
        return contextlib.nullcontext(opened.spark)

    monkeypatch.setattr(operation, "running_session", session)
    without_spark = reports()
    assert started == []
    assert without_spark == tuple(maintained(lake, idle).values())
    maintained(lake, disabled(lake, merge_files=2, max_snapshots=2, delete_ratio=0.01))
    without_spark = reports()
    assert started == []
    assert without_spark == tuple(maintained(lake, idle).values())

    old = orphan(table(lake), "old.parquet", 4)
    (checksum := old.with_name(".old.parquet.crc")).touch()
    found = reports()
    assert len(started) == 1
    assert step(found[0], Step.ORPHANS).rewritten == 1
    assert found[1] == without_spark[1]
    assert not old.exists()
    # Hadoop removes the checksum with its file. One without a file is none of its files.
    assert not checksum.exists()
    checksum.touch()
    reports()
    assert len(started) == 1
    assert step(maintained(lake, idle)["shop.orders"], Step.ORPHANS).rewritten == 0
    assert checksum.exists()


def test_maintain_repeats_a_step_when_the_mirror_commits_meanwhile(
    lake: LakeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = disabled(lake, merge_files=2)
    write_commits(lake, config, 3)
    opened = Lake(lake.session(config))
    stale = loaded(opened)
    lake.write([updated(9000, 0, "new", "later"), updated(9001, 2, "new", "later")])
    lake.catch_up(config)
    before, loads = contents(lake), list[LakeTable]()

    def load(_: str, __: str) -> LakeTable:
        loads.append(newest if loads else stale)
        return loads[-1]

    newest = loaded(opened)
    monkeypatch.setattr(opened, "load", load)
    report = maintain_table(opened, MIRROR, config.maintenance, read_folders(config.lake))
    assert report is not None
    assert report.problems == {}
    assert len(loads) == 2
    assert step(report, Step.MERGE_DATA).rewritten == 4
    assert contents(lake) == before


def test_maintain_keeps_old_files_when_another_table_has_the_same_folder(lake: LakeHarness) -> None:
    """The catalog gives a new table the folder of the one that was renamed."""
    config = disabled(lake)
    write_commits(lake, config, 1)
    file = orphan(table(lake), "old.parquet", 4)
    opened = Lake(lake.session(config))
    schema = loaded(opened).schema_json()
    opened.rename("shop", "orders", "orders_before")
    opened.create("shop", "orders", schema, None, {})
    reports = maintained(lake, config, MIRROR, Target("shop", "orders_before", "shop.orders_before"))
    skipped = [step(report, Step.ORPHANS).skipped for report in reports.values()]
    assert [text.split(" has files in the same folder, ")[0] for text in skipped] == [
        "shop.orders_before",
        "shop.orders",
    ]
    assert file.exists()
    assert all(report.problems == {} for report in reports.values())


@pytest.mark.fault(
    "A lake table is given the folder of other files (`SET LOCATION`)",
    area="Other writers",
    on="a local lake",
    outcome="`maintain` and `drop --purge` delete none of them, and say why",
)
def test_files_of_others_stay_when_a_table_is_given_their_folder(lake: LakeHarness, tmp_path: Path) -> None:
    config = disabled(lake)
    write_commits(lake, config, 1)
    home = tmp_path / "home" / "alice"
    thesis = home / "data" / "thesis.tex"
    thesis.parent.mkdir(parents=True)
    thesis.write_text("mine")
    os.utime(thesis, (time.time() - 40 * DAY,) * 2)
    found = loaded(Lake(lake.session(config)))
    created = str(found.java.location())
    assert found.property("replicator.created-in") == created
    found.java.updateLocation().setLocation(f"file:{home}").commit()
    report = maintained(lake, config, MIRROR)["shop.orders"]
    skipped = step(report, Step.ORPHANS).skipped
    assert skipped.startswith(f"the table's location is file:{home}: it is not in the warehouse")
    assert "ALTER TABLE shop.orders SET TBLPROPERTIES ('replicator.created-in'=" in skipped
    with pytest.raises(UsageError, match=f"the folder is file:{home}"):
        plan_drop(config, "shop.orders", purge=True)
    assert thesis.read_text() == "mine"

    loaded(Lake(lake.session(config))).java.updateLocation().setLocation(created).commit()
    old = orphan(table(lake), "old.parquet", 4)
    assert step(maintained(lake, config, MIRROR)["shop.orders"], Step.ORPHANS).rewritten == 1
    assert not old.exists()


@pytest.mark.long
def test_rewrite_manifests_joins_them_when_there_are_more_than_a_hundred(lake: LakeHarness) -> None:
    config = disabled(lake)
    write_commits(lake, config, 1)
    opened = Lake(lake.session(config))
    found = loaded(opened)
    found.java.updateProperties().set("commit.manifest-merge.enabled", "false").commit()
    (file,) = found.java.currentSnapshot().addedDataFiles(found.java.io())
    for _ in range(100):
        found.java.newFastAppend().appendFile(file).commit()
    work = Maintenance(opened, found, config.maintenance)
    found.refresh()
    manifests = found.java.currentSnapshot().allManifests(found.java.io()).size()
    assert manifests == 101
    report = work.run(Step.MANIFESTS)
    assert (report.rewritten, report.added) == (101, 1)
    assert work.run(Step.MANIFESTS).rewritten == 0
    assert table(lake).scan().to_arrow().num_rows == 2 * 101


def test_orphans_stay_when_the_folders_of_other_tables_are_unknown(lake: LakeHarness) -> None:
    config = disabled(lake)
    write_commits(lake, config, 1)
    file = orphan(table(lake), "old.parquet", 4)
    opened = Lake(lake.session(config))
    unknown = LakeUnavailable("the metadata of x.y is damaged")
    report = maintain_table(opened, MIRROR, config.maintenance, unknown)
    assert report is not None
    assert report.problems == {
        Step.ORPHANS: "the folders of the other tables are unknown: the metadata of x.y is damaged"
    }
    alone = Maintenance(opened, loaded(opened), config.maintenance).run(Step.ORPHANS)
    assert alone.skipped == "the folders of the other tables are unknown"
    assert file.exists()


def test_orphans_stay_when_the_table_keeps_all_its_files(lake: LakeHarness) -> None:
    config = disabled(lake)
    write_commits(lake, config, 1)
    file = orphan(table(lake), "old.parquet", 4)
    loaded(Lake(lake.session(config))).java.updateProperties().set("gc.enabled", "false").commit()
    report = maintained(lake, config, MIRROR)["shop.orders"]
    assert step(report, Step.ORPHANS).skipped == "the table property gc.enabled is false"
    assert file.exists()


def test_maintenance_is_recorded_in_the_commits_that_it_makes_anyway(lake: LakeHarness) -> None:
    config = disabled(lake, merge_files=2, max_snapshots=2, target_file_size="0.15 MB")
    write_commits(lake, config, 6, LARGE)
    before = {str(target): status_of(config, target) for target in (MIRROR, CHANGELOG)}
    assert all(found.maintained_ms is None for found in before.values())
    assert before["shop.orders"].due == ("merge data files", "merge delete files", "delete snapshots")
    started = round(time.time() * 1000)
    opened = Lake(lake.session(config))
    commits: dict[Step, int] = {}
    for step in (Step.MERGE_DATA, Step.MERGE_DELETES, Step.EXPIRE):
        first = version(lake)
        work = Maintenance(opened, loaded(opened), config.maintenance)
        report = work.run(step)
        assert report.rewritten
        commits[step] = version(lake) - first
        found = status_of(config, MIRROR)
        assert found.steps[step] >= started
        assert found.maintained_ms == found.steps[step]
    assert commits[Step.MERGE_DATA] == 1
    assert commits[Step.EXPIRE] == 1
    # The deletion of snapshots records the merges too, because it may delete their snapshots.
    recorded = json.loads(table(lake).properties["replicator.maintained"])["steps"]
    assert {name: run["ms"] for name, run in recorded.items()} == found.steps
    assert (found.due, found.overdue, found.snapshots) == ((), (), 2)
    assert found.metadata_bytes == metadata_file(lake).stat().st_size
    # The files of deleted snapshots are gone.
    assert len(list(metadata_file(lake).parent.glob("snap-*.avro"))) == 2


def status_of(config: Config, target: Target) -> TableMaintenance:
    return next(found for found in read_status(config).maintenance if found.table == str(target))


def metadata_file(lake: LakeHarness) -> Path:
    return Path(table(lake).metadata_location.removeprefix("file:"))


def version(lake: LakeHarness) -> int:
    """Return the number of metadata files that were written for the mirror."""
    return int(metadata_file(lake).name.partition("-")[0])
