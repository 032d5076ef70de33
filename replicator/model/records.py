"""Records of the log before they are decoded."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RawRecord:
    """One record of a topic; `timestamp` in milliseconds since the epoch."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that cannot be decoded, and the reason."""

    record: RawRecord
    reason: str
