"""Keep what a check has found so far in a file, so that a check that was interrupted can be continued."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from replicator.errors import UsageError
from replicator.verify.results import ChunkResult, Kind, RowDifference, TableResult, Verdict

_VERSION: Final = 1
Options = Mapping[str, str | int | float | None]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a table that was checked, in the order of its keys.

    Attributes:
        fingerprint: a text that differs if the table has other columns or another key.
        last: the greatest key of the part; None if it is the last part. Bytes are hexadecimal, behind ``x``.
        chunks, rows, complete, fetched: as those of `TableResult`.
    """

    fingerprint: str
    last: tuple[str, ...] | None
    chunks: tuple[ChunkResult, ...]
    rows: tuple[RowDifference, ...]
    complete: bool
    fetched: int


_PARTS: Final = TypeAdapter(Part)
_RESULTS: Final = TypeAdapter(TableResult)


@dataclass(slots=True)
class Progress:
    """The tables and parts that are done. Changes are written at once, unless there is no `path`."""

    path: Path | None = None
    results: dict[str, TableResult] = field(default_factory=dict)
    parts: dict[str, list[Part]] = field(default_factory=dict)

    def parts_of(self, table: str, fingerprint: str) -> list[Part]:
        """Return the parts of a table that were checked; none if its definition changed since then."""
        found = self.parts.get(table, [])
        return found if all(part.fingerprint == fingerprint for part in found) else []

    def add_part(self, table: str, part: Part) -> None:
        """Record a part of a table."""
        self._write({"table": table, "part": _PARTS.dump_python(part, mode="json")})

    def add_result(self, result: TableResult) -> None:
        """Record the result of a table."""
        self._write({"table": result.table, "result": _RESULTS.dump_python(result, mode="json")})

    def begin(self, options: Options) -> None:
        """Begin a new file, or continue the one that was read. It is private, because it has values of rows."""
        if self.path is None:
            return
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._write({"version": _VERSION, "options": dict(options)})
        elif not self.path.read_bytes().endswith(b"\n"):
            self._append("\n")

    def end(self) -> None:
        """Delete the file: the check is complete."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _write(self, value: Mapping[str, Any]) -> None:
        self._append(json.dumps(value) + "\n")

    def _append(self, text: str) -> None:
        if self.path is None:
            return
        with os.fdopen(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a") as file:
            file.write(text)


def continued(parts: Sequence[Part], result: TableResult) -> TableResult:
    """Return the result of a table of which some parts were checked before; `result` is that of the rest."""
    if not parts:
        return result
    chunks = [*(chunk for part in parts for chunk in part.chunks), *result.chunks]
    rows = [*(row for part in parts for row in part.rows), *result.rows]
    counts = {kind: count for kind in Kind if (count := sum(row.kind is kind for row in rows))}
    earlier = sum(chunk.source_rows for part in parts for chunk in part.chunks)
    return replace(
        result,
        verdict=Verdict.DIFFERENT if counts and result.verdict is Verdict.EQUAL else result.verdict,
        source_rows=earlier + result.source_rows,
        lake_rows=result.lake_rows + sum(chunk.lake_rows for part in parts for chunk in part.chunks),
        chunks=chunks,
        rows=rows,
        counts=counts,
        complete=result.complete and all(part.complete for part in parts),
        fetched=result.fetched + sum(part.fetched for part in parts),
        earlier=earlier,
        # It is not recorded where the rows of earlier parts are.
        narrowed=None if any(part.rows for part in parts) else result.narrowed,
    )


def new_progress(path: Path) -> Progress:
    """Return the progress of a new check; that of an earlier one is forgotten."""
    path.unlink(missing_ok=True)
    return Progress(path)


def read_progress(path: Path, options: Options) -> Progress:
    """Return what an interrupted check has found; nothing if none was interrupted.

    Raises:
        UsageError: that check had other options, or was one of another version.
    """
    found = Progress(path)
    if not path.exists():
        return found
    lines = path.read_text(encoding="utf-8").splitlines()
    head = json.loads(lines[0]) if lines else {}
    if head.get("version") != _VERSION or head.get("options") != dict(options):
        raise UsageError(
            "the interrupted check had other options, or was one of another version",
            "use the options of that check, or begin a new one without --resume",
        )
    for line in lines[1:]:
        # A line may be incomplete, at which the process was killed.
        with suppress(json.JSONDecodeError, ValidationError):
            value = json.loads(line)
            if "part" in value:
                found.parts.setdefault(value["table"], []).append(_PARTS.validate_python(value["part"]))
            else:
                found.results[value["table"]] = _RESULTS.validate_python(value["result"])
    return found
