"""How a column rule changes each value before it is written: a keyed hash, or a mask."""

import hmac
from dataclasses import dataclass, field
from typing import Final

MASKED: Final = "*"
"""Replacement for each character that a mask hides."""


@dataclass(frozen=True, slots=True)
class KeyedHash:
    """HMAC-SHA256 of the value's canonical text in UTF-8 (of the bytes if it is binary), in hexadecimal.

    Equal values have equal hashes in all columns and tables, so joins keep working. No repr contains the key.
    """

    key: bytes = field(repr=False)

    def of_text(self, text: str) -> str:
        """Return the stored value of a value with the canonical text `text`."""
        return hmac.new(self.key, text.encode(), "sha256").hexdigest()

    def __str__(self) -> str:
        # The fingerprint distinguishes keys and reveals nothing about the key.
        return f"hash {self.of_text('replicator: which key is this?')[:8]}"


@dataclass(frozen=True, slots=True)
class FixedText:
    """A mask that replaces every value by the same text."""

    text: str

    def of_text(self, text: str) -> str:  # noqa: ARG002 the value is not used
        """Return the stored value of a value with the canonical text `text`."""
        return self.text

    def __str__(self) -> str:
        return f"text {self.text}"


@dataclass(frozen=True, slots=True)
class KeepLast:
    """A mask that hides all but the last `count` characters of the canonical text; all if it is not longer."""

    count: int

    def of_text(self, text: str) -> str:
        """Return the stored value of a value with the canonical text `text`."""
        hidden = len(text) - self.count if len(text) > self.count else len(text)
        return MASKED * hidden + text[hidden:]

    def __str__(self) -> str:
        return f"keep_last {self.count}"


@dataclass(frozen=True, slots=True)
class Blank:
    """A mask that replaces every value by null; the values are not even read."""

    def __str__(self) -> str:
        return "null"


Mask = FixedText | KeepLast | Blank
ColumnTransform = KeyedHash | Mask
