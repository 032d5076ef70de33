"""docs/conformance.md: what the tests saw the engine do, as tables. The page is made by the tests and by nothing else.

A test tells its cells while it runs, through the fixture `conformance`:

    def test_truncate(conformance: ConformancePage, ...) -> None:
        with conformance.part("Event kinds", rows=["TRUNCATE"]) as part:
            ...
            part.record("TRUNCATE", "mirror", "applied")

A part names the cells that this one test answers for: `columns` (all rows of them), `rows` (all columns of them),
both (where they meet), or neither (the whole section). When the block ends well, what was recorded is compared with
the page: a cell that differs, is missing, or was not seen any more fails the test. With `pytest --write-conformance`
(which `make conformance` runs) the part's cells are written into the page instead. A block that raises does neither.

A new section is a new entry in `SECTIONS`; a new column of a section is a new name in its `columns`. Outcomes are few
and plain words, the same ones in all sections where they fit: what a reader may rely on, never a number that changes
from run to run.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "conformance.md"
ENCODINGS: Final = ("JSON with schemas", "JSON without schemas", "Avro")
"""The encodings that events may have, as the page calls them."""

TYPE_PATHS: Final = ("snapshot", "binlog", "new table")

_TITLE: Final = """# Conformance

What the tests saw on a real MySQL server, Kafka broker and Debezium connector, cell by cell. Generated:
`make conformance` writes it, and every run of the tests fails where it sees anything else.
"""


@dataclass(frozen=True, slots=True)
class Section:
    """One table of the page.

    Attributes:
        title: its heading.
        about: what its cells say, as Markdown.
        rows: what a row is, the head of the first column.
        columns: the heads of the other columns.
    """

    title: str
    about: str
    rows: str
    columns: tuple[str, ...]


SECTIONS: Final = (
    Section(
        "Column types",
        "Values read from the lake beside those that `SELECT` gives, extremes and NULL among them, as canonical text "
        "(`replicator/verify/canonical.py`). *Snapshot*: rows that the connector's snapshot read. *Binlog*: rows of "
        "the same tables that were inserted, updated and deleted later, images before the change included. *New "
        "table*: rows of a table that was created later. *Same*: every value; else what a value of the source became.",
        "MySQL",
        ("Iceberg", *(f"{path}, {encoding}" for encoding in ENCODINGS for path in TYPE_PATHS), "why"),
    ),
    Section(
        "Defaults of added columns",
        "What rows that were there hold after `ALTER TABLE … ADD COLUMN`. *Same*: what the source gave them.",
        "column",
        (*ENCODINGS, "why"),
    ),
    Section(
        "Names",
        "Names of databases, tables and columns, rows by snapshot and by binlog. *Same*: the lake's table or column "
        "has the source's name, and its rows are the source's.",
        "name with",
        ("database", "table", "column", "key and partition"),
    ),
    Section(
        "Event kinds",
        "What the mirror and the changelog have of each kind of event. *Same*: the mirror equals the source, row by "
        "row. *Each once*: the changelog has every change, and none twice.",
        "Event",
        ("Mirror", "Changelog"),
    ),
    Section(
        "Schema changes",
        "What each kind of change did to a mirror, by the policy that was configured for it, with writes before, "
        "between and after. *Same*: rows and columns are the source's. *Left as it was*: columns are those from "
        "before. *Paused*: so are the rows, and `status` says what to do. An ignored rename is a drop and an add.",
        "Change",
        tuple(f"{policy}, {encoding}" for encoding in ENCODINGS for policy in ("evolve", "ignore", "fail")),
    ),
)

Cells = dict[str, dict[str, str]]
"""Row → column → outcome, rows in the page's order."""


def _no_cells() -> dict[str, Cells]:
    return {}


@dataclass
class Part:
    """The cells that one test answers for."""

    section: Section
    columns: Collection[str] | None
    rows: Collection[str] | None
    seen: Cells = field(default_factory=dict)

    def record(self, row: str, column: str, outcome: str) -> None:
        """Note what was seen for one cell; the same cell may be told again only with the same outcome."""
        assert column in self.section.columns, f"{self.section.title} has no column {column!r}; see SECTIONS"
        assert self.covers(row, column), f"{row!r}, {column!r} is another test's cell"
        assert outcome, "an outcome is a word"
        before = self.seen.setdefault(row, {}).setdefault(column, outcome)
        assert before == outcome, f"{row}, {column}: {before!r}, then {outcome!r}"

    def covers(self, row: str, column: str) -> bool:
        return (self.rows is None or row in self.rows) and (self.columns is None or column in self.columns)

    def written_into(self, cells: Cells) -> Cells:
        """`cells` with those of this part replaced by what was seen."""
        rows = [*cells, *(row for row in self.seen if row not in cells)]
        result = {
            row: {
                column: outcome
                for column in self.section.columns
                if (outcome := (self.seen if self.covers(row, column) else cells).get(row, {}).get(column))
            }
            for row in rows
        }
        return {row: outcomes for row, outcomes in result.items() if outcomes}


class ConformancePage:
    """The page as a file, compared with what tests record or, with `write`, changed to it."""

    def __init__(self, path: Path, *, write: bool = False) -> None:
        self._path = path
        self.write = write

    @contextmanager
    def part(
        self, title: str, *, columns: Collection[str] | None = None, rows: Collection[str] | None = None
    ) -> Iterator[Part]:
        """The cells that the block answers for; see the module's text."""
        section = next(s for s in SECTIONS if s.title == title)
        part = Part(section, columns, rows)
        yield part
        page = parse(self._path.read_text(encoding="utf-8")) if self._path.exists() else {}
        present = page.get(title, {})
        wanted = part.written_into(present)
        if self.write:
            self._path.parent.mkdir(exist_ok=True)
            self._path.write_text(render(page | {title: wanted}), encoding="utf-8")
        elif differing := _differing(present, wanted):
            raise AssertionError(
                f"{self._path.name}, {title}, is out of date; run: make conformance\n" + "\n".join(differing)
            )


def _differing(present: Cells, wanted: Cells) -> list[str]:
    def flat(cells: Cells) -> dict[tuple[str, str], str]:
        return {(row, column): outcome for row, found in cells.items() for column, outcome in found.items()}

    old, new = flat(present), flat(wanted)
    return [
        f"  {row} | {column}: page {old.get((row, column), 'nothing')!r}, seen {new.get((row, column), 'nothing')!r}"
        for row, column in (old | new)
        if old.get((row, column)) != new.get((row, column))
    ]


def render(page: Mapping[str, Cells]) -> str:
    """The whole page; sections of which nothing is known are left out."""
    return "\n".join([_TITLE, *(_section(s, page[s.title]) for s in SECTIONS if page.get(s.title))])


def _section(section: Section, cells: Cells) -> str:
    heads = [section.rows, *section.columns]
    lines = [heads, ["---"] * len(heads)]
    lines += [[row, *(found.get(column, "") for column in section.columns)] for row, found in cells.items()]
    table = "\n".join("| " + " | ".join(map(_escaped, line)) + " |" for line in lines)
    return f"## {section.title}\n\n{section.about}\n\n{table}\n"


def parse(text: str) -> dict[str, Cells]:
    """The cells of a rendered page, by section; columns that a section has no more are left out."""
    page = _no_cells()
    for piece in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, rest = piece.partition("\n")
        section = next((s for s in SECTIONS if s.title == title), None)
        lines = [_cells(line) for line in rest.splitlines() if line.startswith("| ")]
        if section is None or not lines:
            continue
        heads, *rows = lines
        page[title] = {
            row[0]: {
                head: value
                for head, value in zip(heads[1:], row[1:], strict=True)
                if value and head in section.columns
            }
            for row in rows[1:]
        }
    return page


def _escaped(text: str) -> str:
    assert "\n" not in text, f"a cell is one line: {text!r}"
    return text.replace("\\", "\\\\").replace("|", "\\|")


def _cells(line: str) -> list[str]:
    pieces = re.findall(r"((?:[^\\|]|\\.)*)\|", line)[1:]
    return [re.sub(r"\\(.)", r"\1", piece).strip() for piece in pieces]
