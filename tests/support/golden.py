"""Real events, kept as small files in tests/golden: what a connector wrote, beside the rows of the source.

`make conformance` reads them from the real stack. One file for each table of `tests.workload.column_types` and encoding
has, as JSON:

- ``server``: the version of MySQL,
- ``definition``: the table's record of the schema-change topic, as text,
- ``schemas``: the text of key and value up to the payload, with the schema, if events contain one; else nothing,
- ``events``: pairs of key and value, as text, of rows that the snapshot read and of later rows; only the payloads if
  events contain a schema (`golden_events` joins them),
- ``kinds``: column → the kind of its canonical text (`tests.support.canonical_rows`),
- ``known``: columns whose values may differ from those in the source,
- ``rows``: key → column → canonical text of the result of `SELECT` for the rows of these events.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support import topics
from tests.support.source import SourceDatabase
from tests.workload.column_types import TypeTable

FOLDER: Final = Path(__file__).parents[1] / "golden"
AVRO_VALUE: Final = (FOLDER / "avro" / "all-types-value.avsc").read_text()
AVRO_KEY: Final = (FOLDER / "avro" / "all-types-key.avsc").read_text()
"""Writer schemas of a real table with every kind of column."""
_PAYLOAD: Final = '"payload":'
_LONGEST: Final = 30_000
"""Maximum size in bytes of an event that is kept; longer texts test nothing more."""


@dataclass(frozen=True)
class GoldenTable:
    """A table whose events are in the log, and its rows by key as canonical text."""

    database: SourceDatabase
    table: TypeTable
    rows: Mapping[int, Mapping[str, bytes | None]]
    kinds: Mapping[str, str]
    encoding: str

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.table.name}-{self.encoding.replace(' ', '-').lower()}.json"


def write_golden(golden: GoldenTable) -> None:
    """Read the events of a few rows from the log."""
    database = golden.database
    servers = database.endpoints.bootstrap_servers
    ((version,),) = database.rows("SELECT VERSION()")
    topic = f"{database.prefix}.{database.name}.{golden.table.name}"
    events, rows = [], {}
    for message in topics.records(servers, topic):
        value = message.value()
        if value is None or len(value) > _LONGEST:
            continue
        event = json.loads(value)
        event = event.get("payload", event)
        if event["op"] in ("r", "c") and (row := golden.rows.get(event["after"]["id"])) is not None:
            if event["after"]["id"] >= 200:
                continue
            events.append(((message.key() or b"").decode(), value.decode()))
            rows[event["after"]["id"]] = {name: None if v is None else v.decode() for name, v in row.items()}
    schemas, payloads = _apart(events)
    document = {
        "server": version,
        "definition": _definition(servers, golden),
        "schemas": schemas,
        "events": payloads,
        "kinds": golden.kinds,
        "known": [golden.table.column(case) for case in golden.table.cases if case.known],
        "rows": rows,
    }
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(document, ensure_ascii=False, indent=1)
    golden.path.write_text(text.replace(database.name, "zoo") + "\n", encoding="utf-8")


def _apart(events: Sequence[tuple[str, str]]) -> tuple[list[str], list[list[str]]]:
    """Return the schemas that all events contain, and the rest of the events."""
    pieces = [[text.partition(_PAYLOAD) for text in event] for event in events]
    if not all(payload for event in pieces for _, _, payload in event):
        return [], [list(event) for event in events]
    (schemas,) = {tuple(before + mark for before, mark, _ in event) for event in pieces}
    return list(schemas), [[payload.removesuffix("}") for _, _, payload in event] for event in pieces]


def golden_events(document: Mapping[str, Any]) -> list[tuple[bytes, bytes]]:
    """Return keys and values of the events in a golden file, as they were in the log."""
    schemas, end = (document["schemas"], "}") if document["schemas"] else (("", ""), "")
    return [
        (f"{schemas[0]}{key}{end}".encode(), f"{schemas[1]}{value}{end}".encode())
        for key, value in document["events"]
    ]


def _definition(servers: str, golden: GoldenTable) -> str | None:
    wanted = f'"{golden.database.name}"."{golden.table.name}"'
    for message in topics.records(servers, golden.database.prefix):
        record: Any = json.loads(message.value() or b"{}")
        record = record.get("payload", record)
        # A snapshot begins with a DROP TABLE IF EXISTS.
        if any(c["id"] == wanted and c["table"] for c in record.get("tableChanges") or ()):
            return json.dumps(record, ensure_ascii=False)
    return None


def golden_files() -> list[Path]:
    """Return all golden files."""
    return sorted(FOLDER.glob("*.json"))
