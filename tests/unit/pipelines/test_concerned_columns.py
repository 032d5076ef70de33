"""Which statements of the source change rows of an input without telling its changelog."""

import pytest

from replicator.pipelines.inputs.states import _concerns
from replicator.schema.evolution.steps import Added, SchemaStep


@pytest.mark.parametrize(
    ("step", "is_concerned"),
    [
        (SchemaStep(1, added=(Added("a", 1, "0"),)), True),
        (SchemaStep(1, added=(Added("c", 1, "0"),)), False),
        (SchemaStep(1, retired={"a": "a"}), False),
        (SchemaStep(1, renamed={"b": "c"}, retired={"a": "a"}), False),
        (SchemaStep(1, renamed={"b": "a"}, retired={"a": "a_1"}), True),
        (SchemaStep(1, renamed={"a": "b", "b": "a"}), True),
        (SchemaStep(1, recreated=True), True),
        (SchemaStep(1, unlogged="ALTER TABLE"), True),
        (SchemaStep(1, unlogged="ALTER TABLE", known_from=2), False),
    ],
    ids=[
        "added", "added another", "dropped", "renamed another", "dropped, and its name given to another", "exchanged",
        "recreated", "rows changed without events", "and read again",
    ],
)  # fmt: skip
def test_statements_concern_the_columns_that_a_pipeline_reads(step: SchemaStep, is_concerned: bool) -> None:
    assert _concerns(step, ("a", "id")) is is_concerned
