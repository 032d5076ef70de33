"""Table patterns of the config as one Java regular expression over topic names, for Spark's `subscribePattern`."""

import re
from collections.abc import Sequence


def topic_pattern(prefix: str, tables: Sequence[str], exclude: Sequence[str]) -> str:
    """Matches ``prefix.database.table`` where some glob of `tables` fits and none of `exclude`."""
    start = _literal(prefix + ".")
    wanted = "|".join(_glob(pattern) for pattern in tables)
    refused = f"(?!(?:{'|'.join(_glob(pattern) for pattern in exclude)})$)" if exclude else ""
    return f"^{start}{refused}(?:{wanted})$"


def _glob(pattern: str) -> str:
    text, i = "", 0
    while i < len(pattern):
        char = pattern[i]
        end = pattern.find("]", i + 2) if char == "[" else -1
        if char == "*":
            text += ".*"
        elif char == "?":
            text += "."
        elif end > 0:
            inside = pattern[i + 1 : end]
            negation = "^" if inside.startswith("!") else ""
            # Java reads more characters inside a class than a glob does.
            text += "[" + negation + re.sub(r"([\\\[\]^&])", r"\\\1", inside[len(negation) :]) + "]"
            i = end
        else:
            text += _literal(char)
        i += 1
    return text


def _literal(text: str) -> str:
    return re.sub(r"([^\w])", r"\\\1", text, flags=re.ASCII)
