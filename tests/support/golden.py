"""Real envelopes, kept as small files in tests/golden: what a connector wrote, beside what the source held.

`make conformance` takes them from the real stack. One file for each table of `tests.workload.column_types` and encoding
has, as JSON:

- ``server``: the version of MySQL,
- ``definition``: the table's record of the schema-change topic, as text,
- ``events``: a few pairs of key and value, as text, of rows that the snapshot read and of rows that came later,
- ``kinds``: column → what its canonical texts are (`replicator.verify.canonical`),
- ``known``: columns whose values may arrive as others,
- ``rows``: key → column → canonical text of what `SELECT` showed for the rows of these events.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support import topics
from tests.support.source import SourceDatabase
from tests.workload.column_types import TypeTable

FOLDER: Final = Path(__file__).parents[1] / "golden"
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
            events.append([message.key().decode(), value.decode()])
            rows[event["after"]["id"]] = {name: None if v is None else v.decode() for name, v in row.items()}
    document = {
        "server": version,
        "definition": _definition(servers, golden),
        "events": events,
        "kinds": golden.kinds,
        "known": [golden.table.column(case) for case in golden.table.cases if case.known],
        "rows": rows,
    }
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(document, ensure_ascii=False, indent=1)
    golden.path.write_text(text.replace(database.name, "zoo") + "\n", encoding="utf-8")


def _definition(servers: str, golden: GoldenTable) -> str | None:
    wanted = f'"{golden.database.name}"."{golden.table.name}"'
    for message in topics.records(servers, golden.database.prefix):
        record: Any = json.loads(message.value())
        record = record.get("payload", record)
        if any(change["id"] == wanted for change in record.get("tableChanges") or ()):
            return json.dumps(record, ensure_ascii=False)
    return None


def golden_files() -> list[Path]:
    """The files that there are."""
    return sorted(FOLDER.glob("*.json"))
