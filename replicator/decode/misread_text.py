"""Corrects text in character sets that Java lacks.

Debezium decodes text of the binlog with the character set that MySQL's driver names for it. For seven sets, Java has
none, and the driver names a similar one: Cp852 for keybcs2, KOI8_R for koi8u, and Cp1252 for the others. Each byte
still becomes a character of its own, so the text can be corrected, except for five control characters that Cp1252
lacks. Snapshots read text that MySQL itself converts, which is right.

`misread_texts.json` has the characters that are decoded wrongly, and in the same order those that are meant: to which
MySQL 9.7 converts the byte (``CONVERT(_hp8 X'A1' USING utf8mb4)``).
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from replicator.model.types import Encoding


def corrected(value: SparkColumn, encoding: Encoding) -> SparkColumn:
    """Return the text that the source has for a text of the binlog; `encoding` is one of `MISREAD_TEXTS`."""
    characters = _characters()[encoding]
    return F.translate(value, characters["decoded"], characters["meant"])


@cache
def _characters() -> Mapping[str, Mapping[str, str]]:
    return dict(json.loads(Path(__file__).with_name("misread_texts.json").read_text(encoding="utf-8")))
