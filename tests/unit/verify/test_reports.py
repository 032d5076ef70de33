"""Reports of checks: JSON, HTML and text."""

import time
from dataclasses import replace
from decimal import Decimal
from html.parser import HTMLParser
from typing import Any

import pytest

from replicator.cli.render_status import StatusParts, print_status
from replicator.cli.render_verify import comparison_lines, print_report, verified_lines
from replicator.model.common import now_ms
from replicator.model.table import TableId
from replicator.model.verified import (
    CHECKS_KEY,
    VERIFIED_KEY,
    CheckHistory,
    PastCheck,
    VerifiedTable,
    check_records,
    histories_in,
    verified_in,
)
from replicator.operations.status.mirror_status import MirrorStatus, TableStatus
from replicator.verify.report_html import to_html
from replicator.verify.report_json import to_json
from replicator.verify.results import (
    Report,
    SchemaFinding,
    Severity,
    TableResult,
    Verdict,
    settled,
)
from tests.support.lake_schemas import validate
from tests.support.verified_tables import NAMES, ORDERS, MemoryLake, MemorySource, rows_of, table_check


def checked(table: Any, source: list[Any], lake: list[Any], **options: Any) -> TableResult:
    sides = MemorySource(table, rows_of(table, source)), MemoryLake(table, rows_of(table, lake))
    return table_check(*sides, **options).run()


@pytest.fixture
def report() -> Report:
    different = checked(
        ORDERS,
        [(n, 0, "<b>x</b>", Decimal("1.5"), None) for n in range(20)],
        [(n, 0, "<b>x</b>" if n != 7 else None, Decimal("1.5"), None) for n in range(1, 21)],
        schema=[SchemaFinding(Severity.NOTE, "a <note>")],
    )
    undecided = TableResult("shop.<late>", Verdict.UNDECIDED, "the mirror lacks events")
    equal = checked(NAMES, [("a", 0.5)], [("a", 0.5)])
    tables = [replace(different, results=("shop_pipelines.revenue",)), equal, undecided]
    return Report("shop", "1.0", "9.7.0", "b.000001:4", None, 1000, 3500, tables, options())


def options() -> dict[str, Any]:
    return {
        "tables": None,
        "max_rows_per_second": None,
        "max_differences": 10_000,
        "sample": 1.0,
        "seed": None,
    }


def test_json_conforms_to_its_schema(report: Report) -> None:
    found = to_json(report)
    validate(found, "verify-report-v1.json")
    first = found["tables"][0]
    assert (found["verdict"], first["missing"], first["unexpected"], first["different"]) == (
        "different",
        1,
        1,
        1,
    )
    (different,) = [row for row in first["rows"] if row["kind"] == "different"]
    assert (different["key"], different["columns"]) == ({"id": "7", "line": "0"}, ["note"])
    assert different["source"]["price"] == "1.50000000"
    assert first["results"] == ["shop_pipelines.revenue"]


class Tags(HTMLParser):
    """Collects tags that are not closed in order, and what would be loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "rect") and tag != "br":
            self.open.append(tag)
        self.loaded += [v or "" for k, v in attrs if k in ("src", "href") and not (v or "").startswith("#")]

    def handle_endtag(self, tag: str) -> None:
        if tag != "rect":
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_html_is_whole_and_loads_nothing(report: Report) -> None:
    page = to_html(report)
    tags = Tags()
    tags.feed(page)
    assert (tags.open, tags.loaded) == ([], [])
    assert "<script" not in page
    assert "<b>x</b>" in tags.texts
    assert "shop.<late>" in tags.texts
    assert any("are computed of it: shop_pipelines.revenue" in text for text in tags.texts)
    assert tags.texts[tags.texts.index("Sample") + 1] == "100 %"
    chunks = [chunk for table in report.tables for chunk in table.chunks]
    assert page.count("<rect") == len(chunks) + sum(not chunk.equal for chunk in chunks)


def test_text_names_each_difference(report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    print_report(report, as_json=False)
    text = capsys.readouterr().out
    assert "shop.t: missing id = 0, line = 0" in text
    assert "shop.t: different id = 7, line = 0: note: source <b>x</b>, lake NULL" in text
    assert "shop.<late>: the mirror lacks events" in text
    assert (
        "1 table different, 1 table undecided, 1 table equal; 21 rows compared at b.000001:4, in 2.5 s"
        in text
    )


@pytest.mark.parametrize(
    ("verdicts", "whole"),
    [
        ([], Verdict.EQUAL),
        ([Verdict.EQUAL], Verdict.EQUAL),
        ([Verdict.EQUAL, Verdict.UNDECIDED], Verdict.UNDECIDED),
        ([Verdict.UNDECIDED, Verdict.DIFFERENT], Verdict.DIFFERENT),
    ],
)
def test_a_difference_weighs_more_than_an_undecided_table(verdicts: list[Verdict], whole: Verdict) -> None:
    tables = [TableResult("shop.t", verdict) for verdict in verdicts]
    assert Report("shop", "1", "9", "b.1:4", None, 0, 0, tables).verdict is whole


def test_undecided_rows_differ_if_they_do_so_twice() -> None:
    rows = checked(ORDERS, [(1, 0, "a", None, None), (2, 0, "a", None, None)], []).rows
    first = TableResult("shop.t", Verdict.UNDECIDED, "later changes", rows=rows, passing=True)
    same, other = replace(first, rows=rows[1:]), replace(first, rows=rows, verdict=Verdict.UNDECIDED)
    assert settled(None, first) == first
    assert settled(first, same).verdict is Verdict.DIFFERENT
    assert settled(same, other) == replace(other, checks=2)
    assert (
        settled(first, replace(first, rows=(), verdict=Verdict.EQUAL, passing=False)).verdict is Verdict.EQUAL
    )
    assert settled(first, replace(same, complete=False)).verdict is Verdict.UNDECIDED


def test_recorded_checks_are_read_back() -> None:
    checks = [
        VerifiedTable(TableId("shop", "a"), "equal", "b.1:4", 5, 10, 0),
        VerifiedTable(TableId("shop", "b"), "different", "b.1:4", 5, 10, 2),
        VerifiedTable(TableId("shop", "c"), "undecided", "b.1:4", 5, 0, 0, True, "late"),
    ]
    properties = {VERIFIED_KEY + str(check.table): check.to_json() for check in checks}
    assert verified_in({**properties, VERIFIED_KEY + "shop.d": '{"version": 2}', "other": "x"}) == checks
    lines = [line.plain for line in verified_lines(checks)]
    assert lines[0].startswith("1 table equal to the source, checked in the last ")
    assert lines[1].endswith("ago: 2 rows differ; next: replicator verify shop.b --repair")
    assert lines[2].endswith("ago: late")


def test_past_checks_are_kept_as_far_as_a_property_can_contain_them() -> None:
    table = TableId("shop", "a")
    properties: dict[str, str] = {}
    for number in range(1, 31):
        check = VerifiedTable(
            table,
            "equal" if number % 7 else "different",
            f"binlog.{number:06}:4567890",
            number,
            10_000_000,
            0,
        )
        properties |= check_records(properties, [check])
        assert all(len(value) <= 1_000 for value in properties.values())
    assert verified_in(properties)[0].ended_ms == 30
    (history,) = histories_in({**properties, CHECKS_KEY + "shop.b": '{"version": 2}'})
    kept = [check.ended_ms for check in history.checks]
    assert len(kept) >= 7
    assert kept == list(range(29, 29 - len(kept), -1))
    assert history.checks[1] == PastCheck("different", "binlog.000028:4567890", 28, 10_000_000, 0)


def test_status_shows_past_checks_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    newest = VerifiedTable(
        TableId("shop", "a"), "equal", "b.9:4", int(1000 * (time.time() - 3_600)), 1_234, 0
    )
    past = PastCheck("different", "b.1:4", int(1000 * (time.time() - 7_200)), 1_200, 3, sampled=True)
    status = MirrorStatus(
        "shop", "shop", (), (), {}, 0, None, verified=(newest,), checks=(CheckHistory(newest.table, (past,)),)
    )
    print_status(status, StatusParts(checks=True), as_json=False)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "shop.a equal 1 h 0 min ago 1,234 0 b.9:4" in lines
    assert "different (sample) 2 h 0 min ago 1,200 3 b.1:4" in lines
    print_status(status, as_json=False)
    assert "1,200" not in capsys.readouterr().out
    assert status.to_json()["checks"][0]["checks"][0]["differing"] == 3


def test_what_the_mirror_compared_by_itself_is_told() -> None:
    unknown = (None, None, None, None, None, None)
    plain = TableStatus("m.a", "shop.a", "current", *unknown, 0, 0, 0, 0, 0, 0)
    assert list(comparison_lines([plain])) == []
    other = replace(
        plain,
        source="shop.b",
        compared_at=now_ms(),
        differences=2,
        differed_at=now_ms() - 60_000,
        difference="1 row different, in note",
    )
    lines = [line.plain for line in comparison_lines([plain, other])]
    assert lines[0].startswith("recently changed rows of 1 table compared with the source, the last ones ")
    assert lines[1].startswith("shop.b: differed 2 times, last ")
    assert lines[1].endswith(" ago: 1 row different, in note")
