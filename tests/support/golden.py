"""Real envelopes, kept as small files in tests/golden: what a connector wrote, beside what the source held.

`make conformance` takes them from the real stack. One file for each table of `tests.workload.column_types` and encoding
has, as JSON:

- ``server``: the version of MySQL,
- ``definition``: the table's record of the schema-change topic, as text,
- ``schemas``: the text of key and value up to the payload, the schema in it, where events carry one; else nothing,
- ``events``: pairs of key and value, as text, of rows that the snapshot read and of rows that came later; only the
  payloads where events carry a schema (`golden_events` puts them together),
- ``kinds``: column → what its canonical texts are (`replicator.operations.verify.checksum`),
- ``known``: columns whose values may arrive as others,
- ``rows``: key → column → canonical text of what `SELECT` showed for the rows of these events.
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
"""Bytes of an event that is still kept: long texts show nothing that short ones do not."""


@dataclass(frozen=True)
class GoldenTable:
    """A table whose events are in the log, and its rows by key in canonical texts."""

    database: SourceDatabase
    table: TypeTable
    rows: Mapping[int, Mapping[str, bytes | None]]
    kinds: Mapping[str, str]
    encoding: str

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.table.name}-{self.encoding.replace(' ', '-').lower()}.json"


def write_golden(golden: GoldenTable) -> None:
    """Take the events of a few rows out of the log."""
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
    """The schemas that all events carry, and what is left of the events."""
    pieces = [[text.partition(_PAYLOAD) for text in event] for event in events]
    if not all(payload for event in pieces for _, _, payload in event):
        return [], [list(event) for event in events]
    (schemas,) = {tuple(before + mark for before, mark, _ in event) for event in pieces}
    return list(schemas), [[payload.removesuffix("}") for _, _, payload in event] for event in pieces]


def golden_events(document: Mapping[str, Any]) -> list[tuple[bytes, bytes]]:
    """Keys and values of the events in a golden file, as the log had them."""
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
    """The files that there are."""
    return sorted(FOLDER.glob("*.json"))
