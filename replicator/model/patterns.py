"""Patterns of table and column names: `*` matches any characters, `?` one; all others match themselves.

Every pattern in the configuration has this grammar. It is translated to one regular expression with the same meaning
in Python and Java, so the engine, Debezium and Spark match the same names.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

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
