"""Write what a consumer gets as lines of JSON, and keep its cursor in a file."""

import base64
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import asdict
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, TextIO

from replicator.config import Config
from replicator.consumer import Batch, Cursor, FeedOptions, SchemaNotice, changes
from replicator.errors import UsageError

_STARTS = ("mirror", "changelog")


def starting_point(start: str, cursor_file: Path | None) -> str | Cursor:
    """Return where a consumer starts: with the cursor in `cursor_file` if it exists, else at `start`.

    `start` is ``mirror``, ``changelog``, or a file with a cursor.

    Raises:
        UsageError: a file is missing, or is no cursor.
    """
    if cursor_file is not None and cursor_file.exists():
        return Cursor.from_json(cursor_file.read_text(encoding="utf-8"))
    if start in _STARTS:
        return start
    try:
        return Cursor.from_json(Path(start).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"--from: {start!r} is not a readable file", "use mirror, changelog, or a file with a cursor"
        ) from error


def consume(
    config: Config,
    table: str,
    start: str | Cursor,
    output: TextIO,
    *,
    cursor_file: Path | None = None,
    follow: bool = False,
    stop: threading.Event | None = None,
    options: FeedOptions | None = None,
) -> None:
    """Write the history of a table and its changes to `output`, one JSON object a line.

    After each batch, a line has the cursor. `cursor_file` gets it once the batch has been flushed.

    Raises:
        ReplicatorError: as `changes`.
    """
    for batch in changes(config, table, start, follow=follow, stop=stop, options=options):
        output.writelines(line + "\n" for line in lines(batch))
        output.flush()
        if cursor_file is not None:
            _replace(cursor_file, batch.cursor.to_json())


def lines(batch: Batch) -> Iterator[str]:
    """Yield the lines of a batch: its schema, rows or changes, and its cursor."""
    if batch.schema is not None:
        yield _line("schema", **_schema(batch.schema))
    for row in batch.rows.to_pylist():
        if batch.change is None:
            yield _line("row", row=row)
        else:
            change = row.pop(batch.change)
            yield _line("change", change=change, row=row)
    yield _line("cursor", cursor=batch.cursor.values())


def _schema(notice: SchemaNotice) -> dict[str, Any]:
    return {"columns": [asdict(column) for column in notice.columns], "steps": list(notice.steps)}


def _line(kind: str, **values: Any) -> str:
    return json.dumps({"type": kind, **values}, ensure_ascii=False, separators=(",", ":"), default=_text)


def _text(value: object) -> str:
    """Return a value that JSON has no form for: exact decimals and times as text, bytes in base64."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case datetime() | date():
            return value.isoformat()
        case Decimal():
            return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _replace(file: Path, text: str) -> None:
    """Write a file so that it has either the old text or the new one, also after a power cut."""
    new = file.with_name(file.name + ".new")
    with new.open("w", encoding="utf-8") as output:
        output.write(text + "\n")
        output.flush()
        os.fsync(output.fileno())
    new.replace(file)
