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
        end = pattern.find("]", i + 2) if char == "[" else -1
        if char == "*":
            text += ".*"
        elif char == "?" or end > 0:
            text += "."
            i = max(i, end)
        else:
            text += _literal(char) if re.fullmatch(r"[A-Za-z0-9._-]", char) else "_"
        i += 1
    return text


def _literal(text: str) -> str:
    return re.sub(r"([^\w])", r"\\\1", text, flags=re.ASCII)
