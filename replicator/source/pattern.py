"""Table patterns of the config as one Java regular expression over topic names, for Spark's `subscribePattern`."""

import re
from collections.abc import Sequence


def topic_pattern(prefix: str, tables: Sequence[str], exclude: Sequence[str]) -> str:
    """Matches the topic of every table that some glob of `tables` fits and none of `exclude`.

    It may match topics of other tables too, because a topic's name does not tell the table (see `replicator.topics`):
    which ones are mirrored is decided by the tables' own names.
    """
    start = _literal(prefix + ".")
    wanted = "|".join(_glob(pattern) for pattern in tables)
    # What an underscore stands for may be wanted.
    certain = [_glob(pattern) for pattern in exclude if re.fullmatch(r"[A-Za-z0-9.*?-]+", pattern)]
    refused = f"(?!(?:{'|'.join(certain)})$)" if certain else ""
    return f"^{start}{refused}(?:{wanted})$"


def _glob(pattern: str) -> str:
    text, i = "", 0
    while i < len(pattern):
        char = pattern[i]
        end = _class_end(pattern, i) if char == "[" else -1
        if char == "*":
            text += ".*"
        elif char == "?" or end > 0:
            text += "."
            i = max(i, end)
        else:
            text += _literal(char) if re.fullmatch(r"[A-Za-z0-9._-]", char) else "_"
        i += 1
    return text


def _class_end(pattern: str, start: int) -> int:
    """Where the class that opens at `start` ends; -1 where it does not. A bracket that comes first is one of it."""
    first = start + 2 if pattern[start + 1 : start + 2] == "!" else start + 1
    return pattern.find("]", first + 1)


def _literal(text: str) -> str:
    return re.sub(r"([^\w])", r"\\\1", text, flags=re.ASCII)
