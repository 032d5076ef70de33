"""Untrusted JSON, parsed within limits and read field by field.

A producer may write anything. So each value is checked when it is read: a malformed document raises DecodeError and no
other error, and a small document has a small cost.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from replicator.errors import DecodeError

LONGEST: Final = 128 << 20
"""Maximum size of a document, bytes; more than a broker accepts in one record by default."""

DEEPEST: Final = 64
"""Maximum nesting depth of a document. Debezium's envelopes with their schemas have less than ten levels."""

_LONGEST_REASON: Final = 200


def parse_json(text: bytes | str, longest: int = LONGEST) -> Any:
    """Parse a JSON document of at most `longest` bytes and `DEEPEST` levels.

    Raises:
        DecodeError: it is longer or deeper, or not JSON in UTF-8.
    """
    if len(text) > longest:
        raise DecodeError(f"document has {len(text)} bytes, more than {longest}")
    try:
        found = json.loads(text if isinstance(text, str) else text.decode())
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"not JSON: {shown(error)}") from None
    if is_deep(found):
        raise DecodeError(f"JSON has more than {DEEPEST} levels")
    return found


def is_deep(document: Any) -> bool:
    """Return whether a parsed document has more than `DEEPEST` levels."""
    level = [document]
    for _ in range(DEEPEST):
        level = [inner for value in level for inner in _parts(value)]
        if not level:
            return False
    return True


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def shown(error: Exception) -> str:
    """Return an error's message, shortened because messages of parsers may quote their whole input."""
    return f"{type(error).__name__}: {error}"[:_LONGEST_REASON]


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON object: its `fields`, and its path in the record (`where`) for messages.

    All methods raise DecodeError if the field is missing or has another type. Those named `optional_...` return None if
    it is missing or null.
    """

    fields: Mapping[str, Any]
    where: str = ""

    @classmethod
    def of(cls, value: Any, where: str = "") -> "Document":
        """Wrap a parsed value, which must be an object."""
        if not isinstance(value, Mapping):
            raise DecodeError(f"{where or 'the document'} is not an object")
        return cls(value, where)

    @classmethod
    def parse(cls, text: bytes | str) -> "Document":
        """Parse a JSON text, which must be an object."""
        return cls.of(parse_json(text))

    def get(self, name: str) -> Any:
        """Return the unchecked field; None if it is missing."""
        return self.fields.get(name)

    def text(self, name: str, longest: int = LONGEST) -> str:
        """Return a text of at most `longest` characters."""
        return _text(self.get(name), self._place(name), longest)

    def optional_text(self, name: str, longest: int = LONGEST) -> str | None:
        return None if self.get(name) is None else self.text(name, longest)

    def texts(self, name: str, most: int) -> list[str]:
        """Return a list of at most `most` texts; an empty one if the field is missing."""
        return [_text(v, f"{self._place(name)}[{i}]") for i, v in enumerate(self._list(name, most))]

    def number(self, name: str, low: int, high: int) -> int:
        """Return an integer from `low` to `high`, written as a number or as text of digits."""
        value = self.get(name)
        if isinstance(value, str) and len(value) <= len(str(high)) and value.isascii() and value.isdigit():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise DecodeError(f"{self._place(name)} is not a number from {low} to {high}")
        return value

    def optional_number(self, name: str, low: int, high: int) -> int | None:
        return None if self.get(name) is None else self.number(name, low, high)

    def object(self, name: str) -> "Document":
        return Document.of(self.get(name), self._place(name))

    def optional_object(self, name: str) -> "Document | None":
        return None if self.get(name) is None else self.object(name)

    def objects(self, name: str, most: int) -> "list[Document]":
        """Return a list of at most `most` objects; an empty one if the field is missing."""
        return [Document.of(v, f"{self._place(name)}[{i}]") for i, v in enumerate(self._list(name, most))]

    def _list(self, name: str, most: int) -> list[Any]:
        value = self.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise DecodeError(f"{self._place(name)} is not a list")
        if len(value) > most:
            raise DecodeError(f"{self._place(name)} has {len(value)} entries, more than {most}")
        return value

    def _place(self, name: str) -> str:
        return f"{self.where}.{name}" if self.where else name


def _text(value: Any, where: str, longest: int = LONGEST) -> str:
    if not isinstance(value, str):
        raise DecodeError(f"{where} is not a text")
    if len(value) > longest:
        raise DecodeError(f"{where} has {len(value)} characters, more than {longest}")
    if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        # JSON can contain an unpaired surrogate, UTF-8 cannot.
        raise DecodeError(f"{where} is not Unicode text")
    return value
