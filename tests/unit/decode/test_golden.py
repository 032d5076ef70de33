"""Real envelopes: their schemas equal the definitions of their tables, and their values equal the source."""

import json
from decimal import Decimal
from pathlib import Path

import pytest

from replicator.decode.connect_schema import table_schema
from replicator.schema.history.declared import table_definitions
from replicator.schema.types.mysql import reconciled
from tests.oracle.values import plain_value
from tests.support.canonical_rows import Kind, canonical_value
from tests.support.golden import golden_events, golden_files

PATHS = pytest.mark.parametrize("path", golden_files(), ids=lambda p: p.stem)


@PATHS
def test_event_schema_equals_the_definition(path: Path) -> None:
    golden = json.loads(path.read_text(encoding="utf-8"))
    (definition,) = table_definitions(golden["definition"].encode())
    assert definition.schema is not None
    defined = {c.name: c for c in definition.schema.columns}
    assert golden["rows"], "no rows"
    assert set(golden["kinds"]) == set(defined)
    key, value = golden_events(golden)[0]
    if not golden["schemas"]:
        assert set(json.loads(value)["after"]) == set(defined)
        return
    carried = table_schema(value, key)
    assert carried.key == definition.schema.key == ("id",)
    for column in carried.columns:
        known = defined[column.name]
        found, _ = reconciled((column.type, column.encoding), (known.type, known.encoding))
        assert (column.name, found) == (column.name, known.type)
        assert (column.respelt, column.size) == (known.respelt, known.size), column.name


@PATHS
def test_oracle_returns_the_values_of_the_source(path: Path) -> None:
    golden = json.loads(path.read_text(encoding="utf-8"))
    (definition,) = table_definitions(golden["definition"].encode())
    assert definition.schema is not None
    for key, value in golden_events(golden):
        event = json.loads(value, parse_float=Decimal)
        schema = table_schema(value, key) if "schema" in event else definition.schema
        after = event.get("payload", event)["after"]
        for column in schema.columns:
            text = canonical_value(
                Kind(golden["kinds"][column.name]), plain_value(column, after[column.name])
            )
            shown = None if text is None else text.decode()
            wanted = golden["rows"][str(after["id"])][column.name]
            assert column.name in golden["known"] or shown == wanted, column.name


def test_golden_files_exist() -> None:
    assert len(golden_files()) >= 10, "run: make conformance"
