"""A check that is interrupted is continued: what is done is not checked again."""

import stat
from pathlib import Path
from typing import Any

import pytest

from replicator.verify.chunks import KeyRange
from replicator.verify.ordered_keys import key_of_text
from replicator.verify.progress import Part, continued, new_progress, read_progress
from replicator.verify.results import TableResult, Verdict
from tests.support.verified_tables import (
    ORDERS,
    MemoryLake,
    MemorySource,
    rows_of,
    table_check,
)

OPTIONS = {"tables": None, "sample": 1.0}
FINGERPRINT = ORDERS.source.fingerprint
ROWS = [(n, 0, "x", None, None) for n in range(100)]
LAKE = [(n, 0, "y" if n in (3, 70) else "x", None, None) for n in range(100)]


def check(**options: Any) -> TableResult:
    source, lake = MemorySource(ORDERS, rows_of(ORDERS, ROWS)), MemoryLake(ORDERS, rows_of(ORDERS, LAKE))
    return table_check(source, lake, **options).run()


@pytest.mark.parametrize("done", [1, 4, 10])
def test_the_rest_of_a_table_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int) -> None:
    monkeypatch.setattr("replicator.verify.table_check._RANGES_AT_ONCE", 1)
    whole, path, parts = check(), tmp_path / "progress", list[Part]()
    check(on_part=parts.append)
    progress = new_progress(path)
    progress.begin(OPTIONS)
    for part in parts[:done]:
        progress.add_part("shop.t", part)
    known = read_progress(path, OPTIONS).parts_of("shop.t", FINGERPRINT)
    assert len(known) == done
    last = known[-1].last
    assert last is not None
    result = continued(known, check(within=KeyRange(tuple(map(key_of_text, last)), None)))
    assert result.earlier == 7 * done
    assert [d.key["id"] for d in result.rows] == ["3", "70"] == [d.key["id"] for d in whole.rows]
    assert (result.source_rows, result.lake_rows, result.counts) == (100, 100, whole.counts)
    assert (result.verdict, result.fetched, len(result.chunks)) == (
        whole.verdict,
        whole.fetched,
        len(whole.chunks),
    )


def test_parts_of_another_definition_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replicator.verify.table_check._RANGES_AT_ONCE", 5)
    path = tmp_path / "progress"
    progress = new_progress(path)
    progress.begin(OPTIONS)
    check(on_part=lambda part: progress.add_part("shop.t", part))
    found = read_progress(path, OPTIONS)
    assert len(found.parts_of("shop.t", FINGERPRINT)) == 3
    assert found.parts_of("shop.t", "g") == []


def test_results_are_kept_and_a_torn_line_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "state" / "progress"
    progress = new_progress(path)
    progress.begin(OPTIONS)
    result = check()
    progress.add_result(result)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with path.open("a") as file:
        file.write('{"table": "shop.u", "resu')
    found = read_progress(path, OPTIONS)
    assert list(found.results) == ["shop.t"]
    kept = found.results["shop.t"]
    assert (kept.verdict, kept.counts) == (Verdict.DIFFERENT, result.counts)
    assert [(row.kind, dict(row.key), row.columns, row.lake) for row in kept.rows] == [
        (row.kind, dict(row.key), row.columns, row.lake) for row in result.rows
    ]
    found.begin(OPTIONS)
    found.add_result(TableResult("shop.v", Verdict.EQUAL))
    assert set(read_progress(path, OPTIONS).results) == {"shop.t", "shop.v"}
    found.end()
    assert read_progress(path, OPTIONS).results == {}
