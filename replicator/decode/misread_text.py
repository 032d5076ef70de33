"""Corrects text in character sets that Java lacks, or whose characters it maps in another way than MySQL.

Debezium decodes text of the binlog with the character set of Java that MySQL's driver names for it. For seven sets,
Java has none, and the driver names a similar one: Cp852 for keybcs2, KOI8_R for koi8u, and Cp1252 for the others, also
for latin1. Of others, some characters differ, such as one of gbk, or bytes are unknown to MySQL, which shows them as
question marks. Snapshots read text that MySQL itself converts, which is right.

`misread_texts.json` has the characters that are decoded wrongly, and in the same order those that are meant: to which
MySQL 9.7 converts the bytes (``CONVERT(_hp8 X'A1' USING utf8mb4)``). Of sets that are `lossy`, further characters all
become `UNKNOWN_CHARACTER`, or several of it: rows with such text are read again from the source.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from replicator.model.types import Encoding

_NAMES: Final[Mapping[str, str]] = {Encoding.CP1252: "latin1"}
"""Encoding → the character set of MySQL, if it has another name."""


def corrected(value: SparkColumn, encoding: Encoding) -> SparkColumn:
    """Return the text that the source has for a text of the binlog; `encoding` is one of `MISREAD_TEXTS`."""
    characters = _characters()[_NAMES.get(encoding, encoding)]
    decoded = characters["decoded"]
    return F.translate(value, decoded, characters["meant"]) if decoded else value


@cache
def _characters() -> Mapping[str, Mapping[str, str]]:
    return dict(json.loads(Path(__file__).with_name("misread_texts.json").read_text(encoding="utf-8")))
