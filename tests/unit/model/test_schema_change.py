"""The state of a table's schema, as the lake keeps it."""

import json

import pytest

from replicator.model.schema_change import SchemaState


def test_schema_state_as_text() -> None:
    text = SchemaState(5, ("a",)).to_json()
    assert SchemaState.from_json(text) == SchemaState(5, ("a",))
    with pytest.raises(ValueError, match="version 2"):
        SchemaState.from_json(json.dumps({"version": 2}))
