"""Partition transforms in the configuration's syntax: `bucket(16, id)`, `days(created_at)`."""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from replicator.model.common import quoted

Transform = Literal["identity", "bucket", "truncate", "years", "months", "days", "hours"]

_WITH_WIDTH = ("bucket", "truncate")
_CALL = re.compile(r"\s*(?P<transform>[A-Za-z]+)\s*\((?P<arguments>.*)\)\s*", re.DOTALL)
_NAME = re.compile(r"`(?P<quoted>(?:[^`]|``)+)`|(?P<bare>[^\W\d][\w$]*)")


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One partition field: `transform` of `column`; `width` is the bucket count or the truncation width."""

    transform: Transform
    column: str
    width: int | None = None

    def sql(self) -> str:
        """Return the field in the syntax of Spark SQL's `PARTITIONED BY (…)`."""
        column = quoted(self.column)
        if self.transform == "identity":
            return column
        return (
            f"{self.transform}({column})"
            if self.width is None
            else f"{self.transform}({self.width}, {column})"
        )

    def __str__(self) -> str:
        return self.sql() if self.transform != "identity" else f"identity({self.sql()})"


def parse_partition(text: str) -> PartitionField:
    """Parse `identity(c)`, `bucket(n, c)`, `truncate(n, c)`, `years|months|days|hours(c)` or a bare column.

    A column name that is not a plain word must be quoted with backticks; a backtick in it is doubled.

    Raises:
        ValueError: the text is not a partition transform.
    """
    if _NAME.fullmatch(text.strip()):
        return PartitionField("identity", _column(text))
    call = _CALL.fullmatch(text)
    if call is None:
        raise ValueError(
            f'"{text}" is not a partition transform; write for example "bucket(16, id)" or "days(ts)"'
        )
    transform = _transform(call["transform"], text)
    arguments = call["arguments"]
    if transform not in _WITH_WIDTH:
        return PartitionField(transform, _column(arguments))
    width, comma, column = arguments.partition(",")
    if not comma or not re.fullmatch(r"\s*[1-9][0-9]{0,8}\s*", width):
        raise ValueError(
            f'"{text}": {transform} takes a number above 0 and a column, as in "{transform}(16, id)"'
        )
    return PartitionField(transform, _column(column), int(width))


def _transform(name: str, text: str) -> Transform:
    for known in get_args(Transform):
        # Spark accepts the singular of the time transforms too.
        if name.lower() in (known, known.removesuffix("s")):
            return known  # type: ignore[no-any-return]
    raise ValueError(f'"{text}": unknown transform "{name}"; known are {", ".join(get_args(Transform))}')


def _column(text: str) -> str:
    name = _NAME.fullmatch(text.strip())
    if name is None:
        raise ValueError(f'"{text.strip()}" is not a column name; put an unusual name in `backticks`')
    return name["bare"] or name["quoted"].replace("``", "`")
