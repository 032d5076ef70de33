"""Read pipeline files: comment lines that say what the result is, and one SELECT.

    -- key: day, country
    -- refresh: incremental
    -- every: 10 seconds
    -- expect some_revenue: revenue >= 0, drop
    SELECT ...

The comment lines `-- NAME: VALUE` before the SELECT are the header. A header needs no key: each has a default. A comment
line of the header without a known name is an error if it looks like one, so that a misspelt key is not ignored.
"""

import difflib
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from replicator.config.values import parse_duration
from replicator.errors import ConfigError
from replicator.model.partitioning import PartitionField, parse_partition

DIALECT: Final = "spark"
_KEY: Final = re.compile(r"--\s*(?P<name>[a-z]+(?: [a-z_0-9]+)?)\s*:\s*(?P<value>.*?)\s*$")
_COLUMN: Final = re.compile(r"[^\s,.`]+")
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")


class Refresh(StrEnum):
    """How a result is brought up to date."""

    INCREMENTAL = "incremental"
    """By what changed; a query for which that is impossible is refused."""
    AUTO = "auto"
    """By what changed, or as a whole, whichever took less time before."""
    FULL = "full"
    """As a whole."""


class Action(StrEnum):
    """What happens with rows that do not meet an expectation."""

    WARN = "warn"
    """They are counted."""
    DROP = "drop"
    """They are counted and left out."""
    FAIL = "fail"
    """Nothing is published."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """A condition that each row of a result should meet."""

    name: str
    condition: str
    action: Action
    line: int


@dataclass(frozen=True, slots=True)
class Definition:
    """A pipeline as its file defines it.

    Attributes:
        name: the name of the file without its ending; of the table too, unless `table` says otherwise.
        file: the path as it is shown in errors.
        query: the SELECT, as it was parsed.
        table: namespace and name of the result, from the key of that name; None for the usual ones.
        key: columns that identify a row of the result; empty if none are given.
        every: seconds between refreshes; None for that of `[pipelines]`.
        partition: how the result is partitioned.
        expectations: what is checked of each row.
        changelog: whether the result has a changelog.
    """

    name: str
    file: str
    query: exp.Query
    table: tuple[str, str] | None = None
    key: tuple[str, ...] = ()
    refresh: Refresh = Refresh.INCREMENTAL
    every: float | None = None
    partition: tuple[PartitionField, ...] = ()
    description: str = ""
    expectations: tuple[Expectation, ...] = ()
    changelog: bool = False

    @property
    def fingerprint(self) -> str:
        """A hash of the normalized query and of what else decides the rows; comments and layout do not."""
        drops = sorted((e.name, e.condition) for e in self.expectations if e.action is Action.DROP)
        text = self.query.sql(DIALECT, normalize=True, comments=False)
        return hashlib.sha256(f"{text}\n{sorted(self.key)}\n{drops}".encode()).hexdigest()[:16]


class PipelineError(ConfigError):
    """A pipeline file that cannot be used."""

    def __init__(self, file: str, line: int, column: int | None, reason: str, hint: str | None = None) -> None:
        place = f"{file}:{line}" if column is None else f"{file}:{line}:{column}"
        super().__init__(f"{place}: {reason}", hint or f"edit {file} and try again")


def read_definition(path: Path, shown: str | None = None) -> Definition:
    """Read a pipeline file.

    Raises:
        PipelineError: the file cannot be read, or it is not a header and one SELECT.
    """
    file = shown or str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(file, 1, None, f"cannot be read: {getattr(error, 'strerror', error)}") from None
    return parse_definition(text, path.stem, file)


def parse_definition(text: str, name: str, file: str) -> Definition:
    """Parse the text of a pipeline file.

    Raises:
        PipelineError: it is not a header and one SELECT.
    """
    if not _NAME.fullmatch(name):
        raise PipelineError(file, 1, None, "the name of the file must be lower-case letters, digits and _")
    return Definition(name, file, _query(text, file), **_header(text, file))


def _query(text: str, file: str) -> exp.Query:
    try:
        statements = [s for s in sqlglot.parse(text, dialect=DIALECT) if s is not None]
    except ParseError as error:
        first: Mapping[str, Any] = error.errors[0] if error.errors else {}
        line, column = int(first.get("line") or 1), first.get("col")
        raise PipelineError(file, line, column, f"not valid SQL: {first.get('description', error)}") from None
    except TokenError as error:
        raise PipelineError(file, 1, None, f"not valid SQL: {error}") from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise PipelineError(file, 1, None, "must have one SELECT after its header")
    return statements[0]


def _header(text: str, file: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    expectations: list[Expectation] = []
    for number, line in _comment_lines(text):
        if (match := _KEY.match(line)) is None:
            continue
        name, value = match["name"], match["value"]
        try:
            if name.startswith("expect "):
                expectations.append(_expectation(name.removeprefix("expect "), value, number))
            elif name in found:
                raise ValueError("is given twice")
            else:
                found[name] = _parser(name)(value)
        except ValueError as error:
            raise PipelineError(file, number, None, f"{name}: {error}") from None
    twice = {e.name for e in expectations if [o.name for o in expectations].count(e.name) > 1}
    if twice:
        last = max(e.line for e in expectations if e.name in twice)
        raise PipelineError(file, last, None, f"expect {min(twice)}: is given twice")
    return {**found, "expectations": tuple(expectations)}


def _comment_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the comment lines before the query, with their numbers from 1."""
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("--"):
            return
        if stripped:
            yield number, stripped


def _parser(name: str) -> Callable[[str], Any]:
    if name in _PARSERS:
        return _PARSERS[name]
    close = difflib.get_close_matches(name, _PARSERS, n=1)
    known = f'did you mean "{close[0]}"?' if close else f"known are {', '.join(sorted(_PARSERS))}, expect NAME"
    raise ValueError(f"unknown key; {known} To write a comment, put it behind the query's first word")


def _table(value: str) -> tuple[str, str]:
    namespace, dot, name = value.partition(".")
    if not dot or not _COLUMN.fullmatch(namespace) or not _COLUMN.fullmatch(name):
        raise ValueError(f'"{value}" is not a table; write NAMESPACE.NAME, as in shop_marts.revenue')
    return namespace, name


def _columns(value: str) -> tuple[str, ...]:
    columns = tuple(part.strip().strip("`") for part in value.split(","))
    if not all(_COLUMN.fullmatch(column) for column in columns) or len(set(columns)) < len(columns):
        raise ValueError(f'"{value}" are not columns; write them as in: day, country')
    return columns


def _partition(value: str) -> tuple[PartitionField, ...]:
    return tuple(parse_partition(part.strip()) for part in re.split(r",(?![^(]*\))", value))


def _flag(value: str) -> bool:
    if value not in ("true", "false"):
        raise ValueError(f'must be true or false, not "{value}"')
    return value == "true"


def _refresh(value: str) -> Refresh:
    if value not in list(Refresh):
        raise ValueError(f'must be one of {", ".join(Refresh)}, not "{value}"')
    return Refresh(value)


def _expectation(name: str, value: str, line: int) -> Expectation:
    condition, comma, action = value.rpartition(",")
    action = action.strip()
    if not comma or action not in list(Action):
        raise ValueError(f"end it with what is to be done: , {' or , '.join(Action)}")
    try:
        sqlglot.parse_one(condition, dialect=DIALECT, into=exp.Condition)
    except (ParseError, TokenError):
        raise ValueError(f"{condition.strip()} is not a condition of SQL") from None
    return Expectation(name, condition.strip(), Action(action), line)


_PARSERS: Final[dict[str, Callable[[str], Any]]] = {
    "table": _table,
    "key": _columns,
    "refresh": _refresh,
    "every": parse_duration,
    "partition": _partition,
    "description": str,
    "changelog": _flag,
}
