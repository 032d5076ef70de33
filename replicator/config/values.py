"""Parse configuration values that need more than a type: the source's address, intervals, patterns."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, PlainValidator

from replicator.model.partitioning import PartitionField, parse_partition


class Section(BaseModel):
    """Base of all sections: unknown keys are errors, and values are not converted from other TOML types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
"""A pattern for names that become parts of others, such as those of topics."""

DEFAULT_MYSQL_PORT = 3306

_SCHEMES = ("mysql", "mysql+pymysql")
_INTERVAL = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[a-z]+)")
_UNITS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
}
_SIZE_UNITS = {
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}


@dataclass(frozen=True, slots=True)
class SourceUrl:
    """The address and user of the MySQL server; never contains a password."""

    user: str
    host: str
    port: int = DEFAULT_MYSQL_PORT
    database: str | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"mysql://{self.user}@{host}:{self.port}/{self.database or ''}"


def parse_source_url(value: object, setting: str = "password") -> SourceUrl:
    """Parse `mysql://user@host:port/database` (port and database are optional). Raises ValueError.

    Errors never include the address: it may contain a password by mistake. They name the key of the password.
    """
    if isinstance(value, SourceUrl):
        return value
    wanted = 'write it as "mysql://user@host:3306/database"'
    if not isinstance(value, str):
        raise ValueError(f"must be an address in quotes; {wanted}")
    try:
        parts = urlsplit(value)
        port = parts.port or DEFAULT_MYSQL_PORT
    except ValueError:
        raise ValueError(f"not a usable address (is the port a number?); {wanted}") from None
    if parts.scheme not in _SCHEMES:
        raise ValueError(f'the address must start with "mysql://"; {wanted}')
    if parts.password is not None:
        raise ValueError(
            "contains a password, which must not be written in this file; "
            f'remove it from the address and set {setting} = {{ env = "NAME" }}'
        )
    if not parts.hostname or not parts.username:
        raise ValueError(f"the {'host' if not parts.hostname else 'user'} is missing; {wanted}")
    if parts.query or parts.fragment:
        raise ValueError(f'nothing may follow the database name ("?…" and "#…" are not supported); {wanted}')
    return SourceUrl(unquote(parts.username), parts.hostname, port, unquote(parts.path.strip("/")) or None)


def parse_trigger(value: object) -> float:
    """Parse the seconds between batches: `10 seconds`, `500 ms`, `1 minute`; `continuous` is 0.0. Raises ValueError."""
    if value == "continuous":
        return 0.0
    if (seconds := _quantity(value, _UNITS)) > 0:
        return seconds
    raise ValueError(
        f"{_shown(value)} is not an interval; "
        'write "10 seconds", "1 minute", or "continuous" for as soon as possible'
    )


def parse_duration(value: object) -> float:
    """Parse a time in seconds: `30 seconds`, `1 minute`, `5 days`. Raises ValueError."""
    if value != "continuous":
        with suppress(ValueError):
            return parse_trigger(value)
    raise ValueError(f'{_shown(value)} is not a duration; write "30 seconds", "1 hour", or "5 days"')


def parse_size(value: object) -> int:
    """Parse a size in bytes: `128 MB`, `64 MiB`. Raises ValueError."""
    if (size := int(_quantity(value, _SIZE_UNITS))) > 0:
        return size
    raise ValueError(f'{_shown(value)} is not a size; write "128 MB" or "1 GB"')


def _quantity(value: object, units: Mapping[str, float]) -> float:
    """Return a number with a unit, such as `10 seconds`; 0 if the value is none."""
    found = _INTERVAL.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    return 0.0 if found is None else float(found["number"]) * units.get(found["unit"], 0.0)


def _shown(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _partition(value: object) -> PartitionField:
    if isinstance(value, PartitionField):
        return value
    if not isinstance(value, str):
        raise ValueError('must be a transform in quotes, such as "bucket(16, id)"')
    return parse_partition(value)


def _table_pattern(value: object) -> str:
    if not isinstance(value, str) or not all(value.partition(".")):
        raise ValueError(f'{_shown(value)} is not a table pattern; write "database.table", as in "shop.*"')
    return value


def _table_name(value: object) -> str:
    if not isinstance(value, str) or not all(value.partition(".")):
        raise ValueError(f'{_shown(value)} is not a table name; write "database.table", as in "shop.orders"')
    return value


def _column_pattern(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(
            f'{_shown(value)} is not a column name; write "email", or use * and ? to match any letters'
        )
    return value


Duration = Annotated[float, PlainValidator(parse_duration)]
Size = Annotated[int, PlainValidator(parse_size)]
Trigger = Annotated[float, PlainValidator(parse_trigger)]
Url = Annotated[SourceUrl, PlainValidator(parse_source_url)]
ReplicaUrl = Annotated[SourceUrl, PlainValidator(partial(parse_source_url, setting="replica_password"))]
Partition = Annotated[PartitionField, PlainValidator(_partition)]
TablePattern = Annotated[str, PlainValidator(_table_pattern)]
TableName = Annotated[str, PlainValidator(_table_name)]
ColumnPattern = Annotated[str, PlainValidator(_column_pattern)]
