"""Values recorded in the catalog: they are read without trust, and written within the catalog's limits.

Whoever may set a property of a table or a namespace decides what it says. So each text is read by a `from_json` that
returns a value whose fields have their types and ranges, or raises ValueError. What becomes SQL is a number, a quoted
name, or `checked_sql`.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter

_T = TypeVar("_T")

Long = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]
"""A signed integer of 64 bits, as Java and Iceberg have it."""
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
"""One that is not negative."""

UNLESS_EMPTY: Final = Field(exclude_if=lambda found: not found)
"""Of a field that is recorded unless it is empty, false or zero."""
UNLESS_NONE: Final = Field(exclude_if=lambda found: found is None)

_MALFORMED: Final = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError,
)  # fmt: skip
_LONGEST_REASON: Final = 300
_ESCAPED: Final = re.compile(r"\\u[dD]")

_SQL: Final = re.compile(
    r"""(?: (?P<word> (?!X') [A-Za-z_]\w*+ )
      | \{ \d{1,4} \}
      | X'(?:[0-9A-Fa-f]{2})*+'
      | '(?: [\w :.,^$\[\]-] | \{\{ | \}\} )*+'
      | `_replicator_member`
      | \d++ (?:\.\d++)?+
      | <=> | -> | <> | <= | >= | [<>=+(),\x20] | - (?!-) | / (?!\*) | \*
    )""",
    re.VERBOSE | re.ASCII,
)
"""A token of the SQL that conversions and conditions of rows consist of: neither comments nor other names."""
_WORDS: Final = re.compile(
    r"AND|AS|BETWEEN|CASE|ELSE|END|FALSE|IN|INTERVAL|IS|NOT|NULL|OR|RLIKE|SECOND|THEN|TRUE|WHEN"
    r"|BIGINT|BINARY|BOOLEAN|DATE|DECIMAL|DOUBLE|FLOAT|INT|STRING|TIMESTAMP|TIMESTAMP_NTZ"
    r"|CAST|TRY_CAST|ABS|ARRAY|ARRAY_CONTAINS|ARRAY_JOIN|CHAR_LENGTH|CONV|FILTER|FLOOR|HEX|LENGTH|LPAD|OCTET_LENGTH"
    r"|ROUND|RPAD|RTRIM|SIGNUM|SPLIT|TIMESTAMP_MICROS|UNIX_MICROS",
    re.IGNORECASE | re.ASCII,
)
"""Keywords, types and functions of this SQL."""


def named(name: str) -> Any:
    """Annotate a field that has another name in records."""
    return Field(alias=name)


def checked_by(check: Callable[[_T], _T]) -> Any:
    """Annotate a field with a function that returns its value, or raises ValueError, when it is read."""
    return AfterValidator(check)


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Raise ValueError, naming `what` is read, for whatever fails because a recorded value is malformed."""
    try:
        yield
    except _MALFORMED as error:
        if type(error) is ValueError:
            raise
        reason = f"{type(error).__name__}: {error}"[:_LONGEST_REASON]
        raise ValueError(f"{what} is malformed: {reason}") from None


def checked(value: _T) -> _T:
    """Return a dataclass's instance whose fields, and those of the dataclasses in it, have the annotated types.

    Raises:
        ValueError: one has not.
    """
    kind: Any = type(value)
    found: tuple[_T] = adapter(kind).validate_python((value,))
    return found[0]


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Return the strict adapter of a tuple with one instance of a dataclass, which is validated again."""
    # The tuple passes the settings on: a dataclass has its own ones.
    settings = ConfigDict(strict=True, revalidate_instances="always")
    alone: Any = tuple[kind]
    return TypeAdapter(alone, config=settings)


class Part:
    """Base of a frozen dataclass that is a part of a record, as an object of JSON.

    Its fields have the names of their aliases. A `TableId` in the field `table` is written as `database` and `name`.
    """

    __slots__ = ()
    WHAT: ClassVar[str]
    """What it is, for messages."""

    def values(self) -> dict[str, Any]:
        """Return it as plain values, for programs."""
        kind: Any = type(self)
        (found,) = adapter(kind).dump_python((self,), mode="json", by_alias=True)
        plain: dict[str, Any] = {}
        for name, value in found.items():
            plain |= value if name == "table" and isinstance(value, dict) else {name: value}
        return plain

    @classmethod
    def of_values(cls, values: Mapping[str, Any]) -> Self:
        """Read what `values` returned; missing values are those that older versions lacked.

        Raises:
            ValueError: it is malformed.
        """
        with reading(cls.WHAT):
            found = dict(values)
            if "database" in found:
                found["table"] = {"database": found.pop("database"), "name": found.pop("name")}
            # As JSON, a list can be a tuple, and a text a key or a member of an enumeration.
            kind: Any = cls
            read: tuple[Self] = adapter(kind).validate_json(json.dumps((found,)))
            return read[0]


class Record(Part):
    """Base of a frozen dataclass that is recorded as one line of JSON, with the version of its format."""

    __slots__ = ()
    VERSION: ClassVar[int] = 1
    CUT: ClassVar[tuple[str, ...]] = ()
    """Texts that are cut to `MOST` characters, or to fewer, so that the line fits into a property."""
    MOST: ClassVar[int] = 300
    ENDING: ClassVar[str] = ""
    """How a text ends that was cut."""
    SEPARATORS: ClassVar[tuple[str, str]] = (", ", ": ")

    def values(self) -> dict[str, Any]:
        """Return it as plain values, for programs."""
        # Without arguments, super() does not find the class: the decorator for slots replaces it.
        return {"version": self.VERSION, **Part.values(self)}

    def to_json(self) -> str:
        """Return it as one line of JSON."""
        if self.CUT:
            return fitted_json(self.values(), self.CUT, most=self.MOST, ending=self.ENDING)
        return json.dumps(self.values(), separators=self.SEPARATORS)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote.

        Raises:
            ValueError: the text is malformed, or of another version.
        """
        return cls.of_values(versioned(text, cls.WHAT, cls.VERSION))


def versioned(text: str, what: str, version: int = 1) -> dict[str, Any]:
    """Return a text of JSON that is an object with this version. Raises ValueError if it is not."""
    value = record_in(text)
    if (found := value.pop("version", None)) != version:
        raise ValueError(f"{what} has version {found!r}, this engine reads {version}")
    return value


def records_in(properties: Mapping[str, str], prefix: str, read: Callable[[str], _T]) -> dict[str, _T]:
    """Return name → record of the properties named `prefix` and name, as far as this version can read them."""
    found = {}
    for key, text in properties.items():
        if key.startswith(prefix):
            with suppress(ValueError):
                found[key.removeprefix(prefix)] = read(text)
    return found


def record_in(text: str) -> dict[str, Any]:
    """Return a text of JSON that is an object.

    Raises:
        ValueError: it is not one.
    """
    value = json_in(text)
    if not isinstance(value, dict):
        raise ValueError("a record is no object")
    return value


def json_in(text: str) -> Any:
    """Return what a text of JSON contains. Raises ValueError if it is none."""
    with reading("a record"):
        value = json.loads(text)
        if not text.isascii() or _ESCAPED.search(text):
            # JSON may have half of a character, which no other text can.
            json.dumps(value, ensure_ascii=False).encode()
        return value


def texts_in(text: str) -> dict[str, str]:
    """Return a text of JSON that is an object of texts. Raises ValueError if it is not."""
    found = record_in(text)
    if not all(isinstance(value, str) for value in found.values()):
        raise ValueError("a record has more than texts")
    return found


def names_in(text: str) -> tuple[str, ...]:
    """Return a text of JSON that is a list of texts. Raises ValueError if it is not."""
    found = json_in(text)
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ValueError("a record is no list of texts")
    return tuple(found)


def checked_sql(text: str, columns: int) -> str:
    """Return recorded Spark SQL with the placeholders ``{0}`` … of `columns` columns, if it only computes with them.

    Raises:
        ValueError: it has other functions, names or strings than those that conversions and conditions consist of.
    """
    end = 0
    for token in _SQL.finditer(text):
        if token.start() != end or (token["word"] is not None and _WORDS.fullmatch(token["word"]) is None):
            break
        end = token.end()
        if token[0].startswith("{") and int(token[0][1:-1]) >= columns:
            break
    else:
        if end == len(text) and text:
            return text
    raise ValueError("recorded SQL has more than a conversion or a condition of rows consists of")


LONGEST: Final = 1_000
_STEP: Final = 10


def fitted_json(record: Mapping[str, Any], texts: Collection[str], *, most: int, ending: str = "") -> str:
    """Return `record` as one line of JSON, whose fields in `texts` are cut to `most` characters, or to fewer if needed.

    JSON writes some characters as six or twelve. A text may be None; one that is cut ends with `ending`.
    """
    for length in range(most, 0, -_STEP):
        cut = {name: _cut(record[name], length, ending) for name in texts}
        found = json.dumps({**record, **cut})
        if len(found) <= LONGEST:
            break
    return found


def _cut(text: str | None, most: int, ending: str) -> str | None:
    return text if text is None or len(text) <= most else text[: most - len(ending)] + ending
