"""The conformance page, and how tests write it."""

from pathlib import Path

import pytest

from tests.e2e import test_events
from tests.support.conformance import PAGE, SECTIONS, ConformancePage, parse, render
from tests.workload.column_types import TABLES

TYPES = SECTIONS[0]
FIRST, SECOND, *_ = TYPES.columns


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "docs" / "conformance.md"


def write(path: Path, cells: dict[tuple[str, str], str], **area: list[str]) -> None:
    with ConformancePage(path, write=True).part(TYPES.title, **area) as part:
        for (row, column), outcome in cells.items():
            part.record(row, column, outcome)


def test_committed_conformance_page_equals_the_rendered_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert render(parse(text)) == text, "written by hand? run: make conformance"


def test_committed_conformance_page_has_only_rows_of_existing_tests() -> None:
    """If tests are responsible for single rows of a section, a renamed row would never be removed."""
    page = parse(PAGE.read_text(encoding="utf-8"))
    assert page["Event kinds"].keys() == {*test_events.SEEN, *test_events.AGAIN, *test_events.ANEW}
    assert page["Column types"].keys() == {case.label for table in TABLES for case in table.cases}


def test_page_parts_are_written_separately(path: Path) -> None:
    write(path, {("INT", FIRST): "int", ("A|B\\", FIRST): "a \\| b"}, columns=[FIRST])
    write(path, {("INT", SECOND): "same", ("YEAR", SECOND): "same"}, columns=[SECOND])
    page = parse(path.read_text(encoding="utf-8"))
    assert page[TYPES.title] == {
        "INT": {FIRST: "int", SECOND: "same"},
        "A|B\\": {FIRST: "a \\| b"},
        "YEAR": {SECOND: "same"},
    }
    assert render(page) == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        ({"INT": "same"}, None),
        ({"INT": "differs"}, "INT .* page 'same', seen 'differs'"),
        ({}, "INT .* seen 'nothing'"),
        ({"INT": "same", "YEAR": "same"}, "YEAR .* page 'nothing'"),
    ],
)
def test_page_part_fails_when_the_page_is_outdated(
    path: Path, seen: dict[str, str], told: str | None
) -> None:
    write(path, {("INT", FIRST): "same", ("INT", SECOND): "same"})

    def run() -> None:
        with ConformancePage(path).part(TYPES.title, columns=[FIRST]) as part:
            for row, outcome in seen.items():
                part.record(row, FIRST, outcome)

    if told is None:
        run()
        return
    with pytest.raises(AssertionError, match=told):
        run()
