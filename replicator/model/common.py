"""What all packages share: the clock, patterns of names, quoted names, counted things in messages.

Patterns of names: `*` matches any characters, `?` one; all others match themselves. Every pattern in the configuration
has this grammar. It is translated to one regular expression with the same meaning in Python and Java, so the engine,
Debezium and Spark match the same names.
"""

import hashlib
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Final, TypeVar

_T = TypeVar("_T")
ShowProgress = Callable[[str, int, int], None]
"""Called with a text and the number of events, tables or files that are done and in all."""


def now_ms() -> int:
    """Return the current time in milliseconds since 1970-01-01 00:00 UTC."""
    return time.time_ns() // 1_000_000


def retried(attempt: Callable[[], _T], *errors: type[Exception], attempts: int = 3) -> _T:
    """Return what an attempt returns; if it raises one of `errors`, try again. The last attempt may raise them, too."""
    for _ in range(attempts - 1):
        with suppress(*errors):
            return attempt()
    return attempt()


def counted(count: int, one: str, several: str | None = None) -> str:
    """Return a number and what it counts, such as "1 event" or "2,000 events"; `several` is by default `one` + "s"."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def listing(names: Iterable[object], most: int = 5) -> str:
    """Join names for a message: the first `most`, and the number of the others."""
    every = [str(name) for name in names]
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def hash_of(data: bytes) -> int:
    """Return a hash that fits into a signed long. It is the same in all processes, and recorded nowhere."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big", signed=True)


def quoted(*parts: str) -> str:
    """Quote an identifier with backticks; each part is quoted separately."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


_WILDCARDS: Final = {"*": "(?s:.*)", "?": "(?s:.)"}
"""Without the flag `s` a dot matches no line break, and Java and Python differ in what they consider a line break."""

_BACKSLASH: Final = r"\x5c"


def has_wildcard(pattern: str) -> bool:
    """Return whether a pattern may match several names."""
    return not _WILDCARDS.keys().isdisjoint(pattern)


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Return whether one of `patterns` matches the whole of `name`; letter case matters."""
    return any(_compiled(pattern).fullmatch(name) is not None for pattern in patterns)


def to_regex(pattern: str) -> str:
    """Return the regular expression, for Python and Java, whose full matches are the names that `pattern` matches.

    It has no unescaped comma, because a comma separates the items of Debezium's lists.
    """
    return "".join(_WILDCARDS.get(part) or literal_regex(part) for part in re.split(r"([*?])", pattern))


def literal_regex(text: str) -> str:
    """Return the regular expression, for Python and Java, that matches only `text`.

    A backslash is written as its code: before the comma of a list, an escaped one would look like an escape.
    """
    return re.sub(
        r"\W", lambda found: _BACKSLASH if found[0] == "\\" else f"\\{found[0]}", text, flags=re.ASCII
    )


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(to_regex(pattern))
