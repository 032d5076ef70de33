"""Translate table patterns to one Java regular expression over topic names, for Spark's `subscribePattern`."""

import re
from collections.abc import Sequence

from replicator.model.common import literal_regex, to_regex


def topic_pattern(prefix: str, tables: Sequence[str], exclude: Sequence[str]) -> str:
    """Return a pattern for the topics of all tables that match `tables` and do not match `exclude`.

    It may also match topics of other tables, because the name of a topic does not identify the table (see
    `replicator.runner.topic_tables`): which tables are mirrored is decided by the tables' names.
    """
    wanted = "|".join(_topic_names(pattern) for pattern in tables)
    # An underscore may represent another character, and that table may be included.
    certain = [to_regex(pattern) for pattern in exclude if re.fullmatch(r"[A-Za-z0-9.*?-]+", pattern)]
    refused = f"(?!(?:{'|'.join(certain)})$)" if certain else ""
    return f"^{literal_regex(prefix + '.')}{refused}(?:{wanted})$"


def _topic_names(pattern: str) -> str:
    """Return the pattern of topic names for tables: Kafka allows letters, digits and three other characters."""
    return to_regex(re.sub(r"[^A-Za-z0-9._*?-]", "_", pattern))
