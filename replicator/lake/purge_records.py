"""Records of the folders that a `drop --purge` has still to delete: properties of the `_ops` namespace."""

import hashlib
import json
from collections.abc import Mapping
from typing import Final

from replicator.lake.properties import PURGING_KEY
from replicator.model.recorded import reading, texts_in

_HASH_LENGTH: Final = 16


def purge_record(source: str, folder: str) -> tuple[str, str]:
    """Return the property, name and value, that records a folder of a source table."""
    # Catalogs limit the length of names, so the folder itself is part of the value.
    key = PURGING_KEY + hashlib.sha256(folder.encode()).hexdigest()[:_HASH_LENGTH]
    return key, json.dumps({"table": source, "folder": folder})


def recorded_purges(properties: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return source table → folders that an interrupted drop has recorded. Raises ValueError if a record is none."""
    found: dict[str, tuple[str, ...]] = {}
    for key, text in sorted(properties.items()):
        if key.startswith(PURGING_KEY):
            with reading("the record of a dropped table"):
                record = texts_in(text)
                found[record["table"]] = (*found.get(record["table"], ()), record["folder"])
    return found
