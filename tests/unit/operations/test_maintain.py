"""Which tables `maintain` visits and what is due in them. The lake is a real one, written by PyIceberg without Java."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyiceberg.catalog.sql import SqlCatalog

from replicator.config import CATALOG_NAME, Config
from replicator.errors import CommitConflict, LakeUnavailable, UsageError
from replicator.lake.properties import QUARANTINE
from replicator.lake.reading.folder_reader import read_folders
from replicator.lake.reading.settings import sqlalchemy_uri
from replicator.maintenance.plan import Step
from replicator.maintenance.reports import StepReport
from replicator.model.commit_marker import MARKER_KEY, CommitMarker, PartitionProgress
from replicator.model.table import SOURCE_KEY
from replicator.operations import maintain as operation
from replicator.operations.maintain import is_conflict, maintain, without_conflicts
from tests.support.config import minimal_config

ICEBERG = "org.apache.iceberg.exceptions."


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "lake").mkdir()
    return minimal_config(
        tmp_path,
        source={"tables": ["shop.*"]},
        maintenance={"enabled": False, "merge_files": 3},
        table=[{"name": "shop.log", "maintenance": {"merge_files": 2}}],
    )


@pytest.fixture
def lake(config: Config) -> Iterator[SqlCatalog]:
    """A lake with an empty set of namespaces, open for writing."""
    uri = sqlalchemy_uri(config.lake.uri or "")
    catalog = SqlCatalog(CATALOG_NAME, uri=uri, warehouse=f"file://{config.lake.warehouse}")
    for namespace in ("shop", "shop_changes", "shop_ops"):
        catalog.create_namespace(namespace)
    yield catalog
    catalog.close()


def write(lake: SqlCatalog, namespace: str, name: str, commits: int, mirror: str | None = "shop") -> None:
    properties = {SOURCE_KEY: f"shop.{name}"}
    if mirror is not None:
        marker = CommitMarker(
            mirror=mirror,
            sequence=1,
            batch=1,
            progress={f"shop.shop.{name}": {0: PartitionProgress(1)}},
            position=None,
            watermark_ms=None,
            committed_ms=1,
        )
        properties[MARKER_KEY] = marker.to_json()
    rows = pa.table({"id": [1, 2]})
    table = lake.create_table((namespace, name), rows.schema, properties=properties)
    with table.transaction() as all_commits:
        for _ in range(commits):
            all_commits.append(rows)


def planned(config: Config, *patterns: str) -> dict[str, tuple[Step, ...]]:
    return {report.table: report.due for report in maintain(config, patterns, dry_run=True)}


def test_dry_run_names_the_due_steps_of_mirrors_changelogs_and_quarantine(
    config: Config, lake: SqlCatalog
) -> None:
    write(lake, "shop", "orders", 3)
    write(lake, "shop", "log", 2)
    write(lake, "shop_changes", "orders", 2)
    write(lake, "shop_ops", QUARANTINE, 3, None)
    assert planned(config) == {
        "shop.log": (Step.MERGE_DATA,),
        "shop.orders": (Step.MERGE_DATA,),
        "shop_changes.orders": (),
        "shop_ops.quarantine": (Step.MERGE_DATA,),
    }


def test_dry_run_reports_the_facts_of_a_table(config: Config, lake: SqlCatalog) -> None:
    write(lake, "shop", "orders", 3)
    (report,) = maintain(config, dry_run=True)
    shown = report.to_json()
    assert shown["before"].pop("bytes") > 0
    assert shown["before"] == {
        "data_files": 3,
        "delete_files": 0,
        "rows": 6,
        "deleted_rows": 0,
        "snapshots": 3,
    }
    assert (shown["source"], shown["after"], shown["due"]) == ("shop.orders", None, ("merge data files",))


def test_patterns_select_source_tables_and_leave_out_the_quarantine(config: Config, lake: SqlCatalog) -> None:
    for name in ("orders", "order_lines", "log"):
        write(lake, "shop", name, 1)
    write(lake, "shop_changes", "orders", 1)
    write(lake, "shop_ops", QUARANTINE, 1, None)
    assert list(planned(config, "shop.order?")) == ["shop.orders", "shop_changes.orders"]
    assert list(planned(config, "shop.log", "shop.order_*")) == ["shop.log", "shop.order_lines"]


@pytest.mark.parametrize("pattern", ["shop.none", "orders", "shop.quarantine"])
def test_maintain_refuses_a_pattern_that_matches_no_table(
    config: Config, lake: SqlCatalog, pattern: str
) -> None:
    write(lake, "shop", "orders", 1)
    write(lake, "shop_ops", QUARANTINE, 1, None)
    with pytest.raises(UsageError, match="matches no source table"):
        maintain(config, ["shop.orders", pattern])


def test_maintain_refuses_the_tables_of_another_mirror(config: Config, lake: SqlCatalog) -> None:
    write(lake, "shop", "orders", 1, "crm")
    with pytest.raises(UsageError, match=r"shop\.orders belongs to the mirror crm"):
        maintain(config)


def test_read_folders_returns_the_tables_of_all_namespaces(config: Config, lake: SqlCatalog) -> None:
    write(lake, "shop", "orders", 1)
    lake.create_namespace(("other", "inner"))
    lake.create_table(("other", "inner", "t"), pa.schema([("id", pa.int64())]), location="file:///there")
    found = {table.name: table for table in read_folders(config.lake)}
    assert found["other.inner.t"].folders == ("file:///there",)
    assert found["shop.orders"].uuid == str(lake.load_table(("shop", "orders")).metadata.table_uuid)


def age(folder: Path) -> None:
    """Make all files in a folder four days old: older than `orphan_age`."""
    for path in folder.rglob("*"):
        os.utime(path, (time.time() - 4 * 86_400,) * 2)


@pytest.fixture
def given_to_spark(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables for which `maintain` started Spark."""
    given: list[str] = []

    def maintain_tables(config: Any, lake: Any, targets: Any, **_: Any) -> tuple[()]:
        given.extend(map(str, targets))
        return ()

    monkeypatch.setattr(operation, "running_session", lambda _: nullcontext())
    monkeypatch.setattr(operation, "Lake", lambda _: None)
    monkeypatch.setattr(operation, "maintain_tables", maintain_tables)
    return given


def test_maintain_starts_no_spark_when_no_step_would_do_anything(
    config: Config, lake: SqlCatalog, given_to_spark: list[str], tmp_path: Path
) -> None:
    write(lake, "shop", "orders", 2)
    write(lake, "shop_changes", "orders", 1)
    age(tmp_path / "lake")
    data = tmp_path / "lake/shop/orders/data"
    (data / "young.parquet").touch()
    (data / ".old.parquet.crc").touch()
    os.utime(data / ".old.parquet.crc", (1, 1))
    reports = maintain(config)
    assert given_to_spark == []
    assert [(report.table, report.due, report.problems) for report in reports] == [
        ("shop.orders", (), {}),
        ("shop_changes.orders", (), {}),
    ]
    assert reports[0].before == reports[0].after
    assert reports[0].done == (StepReport(Step.MANIFESTS, 0), StepReport(Step.ORPHANS, 0))


def with_a_merge_due(lake: SqlCatalog, folder: Path) -> None:
    lake.load_table(("shop", "orders")).append(pa.table({"id": [3]}))


def with_an_old_file(lake: SqlCatalog, folder: Path) -> None:
    (folder / "data/.hidden").touch()


def with_a_link(lake: SqlCatalog, folder: Path) -> None:
    (folder / "data/link").symlink_to(folder)


def with_a_missing_list(lake: SqlCatalog, folder: Path) -> None:
    (folder / "data/old").touch()
    next(folder.glob("metadata/snap-*.avro")).unlink()


def with_another_word_for_false(lake: SqlCatalog, folder: Path) -> None:
    lake.load_table(("shop", "orders")).transaction().set_properties(
        {"gc.enabled": "FALSE"}
    ).commit_transaction()


@pytest.mark.parametrize(
    "change",
    [with_a_merge_due, with_an_old_file, with_a_link, with_a_missing_list, with_another_word_for_false],
)
def test_maintain_starts_spark_only_for_tables_that_may_need_it(
    config: Config,
    lake: SqlCatalog,
    given_to_spark: list[str],
    tmp_path: Path,
    change: Callable[[SqlCatalog, Path], None],
) -> None:
    write(lake, "shop", "orders", 2)
    write(lake, "shop_changes", "orders", 1)
    change(lake, tmp_path / "lake/shop/orders")
    age(tmp_path / "lake")
    shown: list[tuple[Any, ...]] = []
    reports = maintain(config, on_progress=lambda *show: shown.append(show))
    assert given_to_spark == ["shop.orders"]
    assert [report.table for report in reports] == ["shop_changes.orders"]
    assert shown == [("starting Spark", 0, 1)]


def test_maintain_starts_no_spark_for_orphan_files_that_stay_anyway(
    config: Config, lake: SqlCatalog, given_to_spark: list[str], tmp_path: Path
) -> None:
    write(lake, "shop", "orders", 1)
    with_an_old_file(lake, tmp_path / "lake/shop/orders")
    age(tmp_path / "lake")
    lake.create_table(("shop", "other"), pa.schema([("id", pa.int64())]), f"file://{tmp_path}/lake/shop")
    (report,) = maintain(config)
    assert given_to_spark == []
    assert report.done[1].skipped == (
        f"shop.other has files in the same folder, {lake.load_table(('shop', 'orders')).location()}"
    )


class JavaError:
    """A Java exception with a cause."""

    def __init__(self, name: str, cause: "JavaError | None" = None) -> None:
        self._name = name
        self._cause = cause
        self._target_id = "o1"
        self._gateway_client = None

    def getClass(self) -> "JavaError":  # noqa: N802 as in Java
        return self

    def getName(self) -> str:  # noqa: N802 as in Java
        return self._name

    def getCause(self) -> "JavaError | None":  # noqa: N802 as in Java
        return self._cause


def caused_by(error: JavaError) -> LakeUnavailable:
    found = LakeUnavailable("merge data files of shop.orders: failed")
    found.__cause__ = Py4JJavaError("failed", error)
    return found


def test_is_conflict_looks_at_all_causes() -> None:
    assert is_conflict(CommitConflict("another writer"))
    assert not is_conflict(LakeUnavailable("away"))
    assert is_conflict(caused_by(JavaError(f"{ICEBERG}ValidationException")))
    nested = JavaError("java.lang.RuntimeException", JavaError(f"{ICEBERG}CommitFailedException"))
    assert is_conflict(caused_by(nested))
    assert not is_conflict(caused_by(JavaError("java.io.IOException")))


def attempts(*errors: Exception) -> Callable[[], StepReport]:
    left = list(errors)

    def attempt() -> StepReport:
        if left:
            raise left.pop(0)
        return StepReport(Step.MERGE_DATA, 5)

    return attempt


def test_step_is_tried_again_on_the_reloaded_table_when_it_conflicts() -> None:
    reloads: list[Any] = []
    step = attempts(*[CommitConflict("no")] * 3)
    assert without_conflicts(step, lambda: reloads.append(1)).rewritten == 5
    assert len(reloads) == 3


def test_step_fails_with_a_reason_when_it_conflicts_four_times() -> None:
    with pytest.raises(CommitConflict, match="the mirror committed meanwhile; it merges files itself"):
        without_conflicts(attempts(*[CommitConflict("no")] * 4), lambda: None)
