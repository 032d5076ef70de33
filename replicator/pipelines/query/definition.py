"""Read pipeline files: comment lines that say what the result is, and one SELECT.

    -- key: day, country
    -- refresh: incremental
    -- every: 10 seconds
    -- expect some_revenue: revenue >= 0, drop
    SELECT ...

The comment lines `-- NAME: VALUE` before the SELECT are the header. A header needs no key: each has a default. A line
of the header that looks like one but has no known name is an error, so that a misspelt key is not ignored. Files with
a function in Python have the same header, in comments of Python: see `python`.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from replicator.config.values import parse_duration
from replicator.errors import PipelineError
from replicator.model.partitioning import PartitionField, parse_partition
from replicator.pipelines.query.names import TableName

DIALECT: Final = "spark"
_SQL: Final = "--"
PYTHON: Final = "#"
"""What begins a line of the header: in a file with a SELECT, and in one with a function."""
_HEADER: Final = re.compile(r"(--|#)\s*(?P<name>[A-Za-z_]+(?: +[\w-]+)?)\s*:(?P<value>.*)")
_EXPECTATION: Final = re.compile(r"[A-Za-z]\w*")
_IDENTIFIER: Final = re.compile(r"[^\s,.`]+")
_KEYWORDS: Final = (
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "HAVING",
    "JOIN",
    "LEFT",
    "RIGHT",
    "UNION",
    "DISTINCT",
    "WITH",
)
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
    """A condition of which each row of a result should say true."""

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
        text: the text of the file.
        query: the SELECT, as it was parsed; of a function, one that has its inputs in FROM, under their names.
        table: the table of the result.
        key: columns that identify a row of the result; empty if rows have no key.
        every: seconds between refreshes; None for the usual ones.
        partition: how the result is partitioned.
        expectations: what is checked of each row.
        changelog: whether the result has a changelog.
        keep_expired: whether rows stay in the result that were deleted from a log table.
        lines: header key → its line; of a function also `model` → where it is defined.
        inputs: the names of a function's inputs, which are its parameters; empty for a SELECT.
        by_key: columns by which a function computes its result: for the rows of the result with some values of these,
            it needs only the rows of its inputs with them. Empty if it needs all rows.
        code: the code of a function, without comments and layout.
    """

    name: str
    file: str
    text: str
    query: exp.Query
    table: TableName
    key: tuple[str, ...] = ()
    refresh: Refresh = Refresh.INCREMENTAL
    every: float | None = None
    partition: tuple[PartitionField, ...] = ()
    description: str = ""
    expectations: tuple[Expectation, ...] = ()
    changelog: bool = False
    keep_expired: bool = False
    lines: tuple[tuple[str, int], ...] = ()
    inputs: tuple[str, ...] = ()
    by_key: tuple[str, ...] = ()
    code: str = ""

    def setting(self, line: str) -> str:
        """Return a line of the header as the file has it, for hints: `key: day` as `-- key: day`."""
        return f"{PYTHON if self.inputs else _SQL} {line}"

    def error(self, node: exp.Expr, reason: str, hint: str | None = None) -> PipelineError:
        """Return the error for a part of the query, with its place in the file."""
        starts = [int(part.meta["start"]) for part in node.walk() if "start" in part.meta]
        if not starts and (found := _keyword(self.text, node)) is not None:
            starts = [found]
        if starts:
            before = self.text[: min(starts)]
            column = len(before) - (before.rfind("\n") + 1) + 1
            return PipelineError.at(self.file, before.count("\n") + 1, column, reason, hint)
        if node.parent is not None:
            return self.error(node.parent, reason, hint)
        return PipelineError.at(self.file, 1, None, reason, hint)

    def header_error(self, key: str, reason: str, hint: str | None = None) -> PipelineError:
        """Return the error for a key of the header; `key` may be `expect NAME`."""
        lines = {**{f"expect {e.name}": e.line for e in self.expectations}, **dict(self.lines)}
        return PipelineError.at(self.file, lines.get(key, 1), None, reason, hint)


def _keyword(text: str, node: exp.Expr) -> int | None:
    """Return where a function stands that is written without parentheses, of which the parser tells no place."""
    if isinstance(node, exp.Func):
        names = {name.upper() for name in node.sql_names()}
        for token in sqlglot.tokenize(text, dialect=DIALECT):
            if token.text.upper() in names:
                return token.start
    return None


def read_definition(
    path: Path, file: str, namespace: str, parse: "Callable[[str, str, str, str], Definition]"
) -> Definition:
    """Read a pipeline file with `parse_definition` or `parse_function`; `file` is the path as it is shown.

    Raises:
        PipelineError: the file cannot be read, or it is not what it should be.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise PipelineError.at(file, 1, None, f"cannot be read: {reason}") from None
    return parse(text, path.stem, file, namespace)


def parse_definition(text: str, name: str, file: str, namespace: str) -> Definition:
    """Parse the text of a pipeline file; `namespace` is the usual one of results.

    Raises:
        PipelineError: it is not a header and one SELECT.
    """
    check_name(name, file)
    query, header = _query(text, file), parse_header(text, file)
    return Definition(name, file, text, query, header.pop("table", TableName(namespace, name)), **header)


def check_name(name: str, file: str) -> None:
    """Check the name of a pipeline.

    Raises:
        PipelineError: it is not one.
    """
    if not _NAME.fullmatch(name):
        reason = f'"{name}" is not a name of a pipeline: lower-case letters, digits and _'
        raise PipelineError.at(file, 1, None, reason, f"rename {file}")


def _query(text: str, file: str) -> exp.Query:
    try:
        statements = [s for s in sqlglot.parse(text, dialect=DIALECT) if s is not None]
    except ParseError as error:
        raise _not_sql(file, text, error) from None
    except TokenError:
        reason = "not valid SQL: a quote or a comment is not closed"
        raise PipelineError.at(file, _last_line(text), None, reason) from None
    if not statements:
        reason = "has no SELECT"
        raise PipelineError.at(file, _last_line(text), None, reason, "write one SELECT after the header")
    if len(statements) > 1:
        line = text[: _second_statement(text)].count("\n") + 1
        reason = "a second statement; a pipeline is one SELECT"
        raise PipelineError.at(file, line, None, reason, "use WITH, or a file for each")
    if not isinstance(statements[0], exp.Query):
        reason = f"{statements[0].key.upper()} is not a SELECT"
        raise PipelineError.at(
            file, _first_line(text), 1, reason, "write the SELECT alone; the result is the table"
        )
    return statements[0]


def _not_sql(file: str, text: str, error: ParseError) -> PipelineError:
    first = error.errors[0]
    line, column = int(first.get("line") or 1), first.get("col")
    word = str(first.get("highlight") or "")
    reason = f'not valid SQL at "{word}"' if word else "not valid SQL"
    if (said := str(first.get("description") or "")) and not {"Token", "token", "class"} & set(
        re.findall(r"\w+", said)
    ):
        reason += f": {said[0].lower()}{said[1:]}"
    # The parser tells where a word ends.
    place = max(1, int(column) - len(word) + 1) if column else None
    return PipelineError.at(file, line, place, reason, _likely(text, line, place))


def _likely(text: str, line: int, column: int | None) -> str | None:
    """Return a hint for mistakes that are often made: a header without dashes, a misspelt keyword."""
    first = text.lstrip().partition("\n")[0]
    if (match := _HEADER.match(f"-- {first}")) is not None and match["name"].split()[0] in (
        *_PARSERS,
        "expect",
    ):
        return f"write the lines of the header as comments: -- {first}"
    end = sum(len(each) + 1 for each in text.splitlines()[: line - 1]) + (column or 1) - 1
    try:
        tokens = [token for token in sqlglot.tokenize(text, dialect=DIALECT) if token.start <= end]
    except TokenError:
        return None
    for token in reversed(tokens[-2:]):
        if token.text.upper() not in _KEYWORDS:
            close = difflib.get_close_matches(token.text.upper(), _KEYWORDS, n=1, cutoff=0.7)
            if close:
                return f"did you mean {close[0]} instead of {token.text}?"
    return None


def _first_line(text: str) -> int:
    return next((n for n, line in enumerate(text.splitlines(), 1) if line and not line.startswith("--")), 1)


def _last_line(text: str) -> int:
    return max(1, len(text.splitlines()))


def _second_statement(text: str) -> int:
    tokens = sqlglot.tokenize(text, dialect=DIALECT)
    return next((b.start for a, b in pairwise(tokens) if a.text == ";"), 0)


def parse_header(text: str, file: str, mark: str = _SQL) -> dict[str, Any]:
    """Return what the header says, by the attributes of a `Definition`; of a function, `inputs` is name → text.

    Raises:
        PipelineError: a line of it has no known key, or a value that does not fit.
    """
    found: dict[str, Any] = {}
    lines: dict[str, int] = {}
    expectations: list[Expectation] = []
    inputs: dict[str, str] = {}
    parsers = _PARSERS if mark == _SQL else {**_PARSERS, "by key": _columns}
    for number, line in _comment_lines(text, mark):
        if (match := _HEADER.match(line)) is None:
            continue
        name, value = " ".join(match["name"].split()), match["value"].strip()
        try:
            _refuse_second(name, lines)
            if name.startswith("expect "):
                expectations.append(_expectation(name.removeprefix("expect "), value, number))
            elif name.startswith("input ") and mark == PYTHON:
                inputs[name.removeprefix("input ")] = value
            else:
                found[name.replace(" ", "_")] = _parser(name, parsers)(value)
        except ValueError as error:
            column = text.splitlines()[number - 1].find(match["name"]) + 1
            raise PipelineError.at(file, number, column, f"{name}: {error}") from None
        lines[name] = number
    found |= {"expectations": tuple(expectations), "lines": tuple(lines.items())}
    return found if mark == _SQL else {**found, "inputs": inputs}


def _refuse_second(name: str, lines: Mapping[str, int]) -> None:
    if name in lines:
        raise ValueError(f"is given twice, first in line {lines[name]}")


def _comment_lines(text: str, mark: str) -> Iterator[tuple[int, str]]:
    """Yield the comment lines before the query or the code, with their numbers from 1."""
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith(mark):
            return
        if stripped:
            yield number, stripped


def _parser(name: str, parsers: Mapping[str, Callable[[str], Any]]) -> Callable[[str], Any]:
    if name in parsers:
        return parsers[name]
    is_sql = parsers is _PARSERS
    named = ("expect NAME",) if is_sql else ("input NAME", "expect NAME")
    keys = [*parsers, *(key.partition(" ")[0] for key in named)]
    tried = (name.lower(), name.lower().partition(" ")[0])
    close = next((found for text in tried if (found := difflib.get_close_matches(text, keys, n=1))), None)
    shown = f"{', '.join([*parsers, *named[:-1]])} and {named[-1]}"
    known = f'did you mean "{close[0]}"?' if close else f"known are {shown};"
    place = "after the first word of the SELECT" if is_sql else "after the first line of code"
    raise ValueError(f"unknown key; {known} Ordinary comments stand {place}")


def _table(value: str) -> TableName:
    namespace, dot, name = value.replace("`", "").partition(".")
    if not dot or not _IDENTIFIER.fullmatch(namespace) or not _IDENTIFIER.fullmatch(name):
        raise ValueError(f'"{value}" is not a table; write NAMESPACE.NAME, as in shop_marts.revenue')
    return TableName(namespace, name)


def _columns(value: str) -> tuple[str, ...]:
    columns = tuple(part.strip().strip("`") for part in value.split(","))
    if not all(_IDENTIFIER.fullmatch(column) for column in columns):
        raise ValueError(f'"{value}" are not columns; write them as in: day, country')
    if len({column.lower() for column in columns}) < len(columns):
        raise ValueError("names a column twice")
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


def _text(value: str) -> str:
    if not value:
        raise ValueError("has no text")
    return value


def _expectation(name: str, value: str, line: int) -> Expectation:
    if not _EXPECTATION.fullmatch(name):
        raise ValueError("its name must be letters, digits and _")
    condition, _, action = value.rpartition(",")
    if action.strip() not in list(Action):
        raise ValueError(f"must end with what is done: {', or '.join(f', {action}' for action in Action)}")
    condition = condition.strip()
    try:
        parsed = sqlglot.parse_one(f"SELECT 1 FROM t WHERE {condition}", dialect=DIALECT)
    except (ParseError, TokenError):
        parsed = None
    if not condition or parsed is None or len(list(parsed.find_all(exp.Query))) != 1:
        raise ValueError(f'"{condition}" is not a condition over columns of a row')
    return Expectation(name, condition, Action(action.strip()), line)


_PARSERS: Final[dict[str, Callable[[str], Any]]] = {
    "table": _table,
    "key": _columns,
    "refresh": _refresh,
    "every": parse_duration,
    "partition": _partition,
    "description": _text,
    "changelog": _flag,
    "keep_expired": _flag,
}
