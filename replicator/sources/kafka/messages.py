"""What the consumers of the driver and of Spark's workers have in common."""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaError, Message

from replicator.errors import DataLossError
from replicator.model.commit_marker import OffsetRange
from replicator.sources.kafka.admin import QUIET, translated

CONSUMER_OPTIONS: Final[Mapping[str, str | int | bool]] = {
    **QUIET,
    # The group is never joined and no offsets are committed; the client requires a name.
    "group.id": "replicator",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 10,
}

READ_AHEAD: Final[Mapping[str, int]] = {
    # What the client reads beyond the end of a range is read in vain.
    "queued.max.messages.kbytes": 32 << 10,
    "fetch.message.max.bytes": 8 << 20,
    "fetch.max.bytes": 16 << 20,
    # Once it has read so far ahead, it waits; by default for a second, in which whoever reads comes to its end.
    "fetch.queue.backoff.ms": 20,
}


def reading_ahead(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a client, over those of `READ_AHEAD`."""
    found = {**READ_AHEAD, **options}
    if "message.max.bytes" in options and "fetch.max.bytes" not in options:
        # The client refuses a fetch that is smaller than a message, and chooses one that is not.
        del found["fetch.max.bytes"]
    return found


HEADERS: Final = pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))


def is_end(message: Message, r: OffsetRange, servers: str) -> bool:
    """Return whether a message reports the end of the partition of a range.

    Raises:
        DataLossError: it reports that the log has no such offset any more.
        LogUnavailable, ConfigError: it reports another error.
    """
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 the public name of the code
        return True
    if error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
        raise DataLossError(
            f"{r.topic} partition {r.partition}: offset {r.start} is no longer in the log",
            "replay an archive that has it, or drop the lake table and run a new snapshot",
        )
    raise translated(error, servers)


def headers_of(message: Message) -> list[dict[str, str | bytes | None]]:
    """Return the headers of a record, as values of `HEADERS`."""
    return [{"key": pair[0], "value": _bytes(pair[1])} for pair in message.headers() or ()]


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
