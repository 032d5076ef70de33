"""Each entry of the table of MySQL's types is complete, and every part of the engine reads it from there."""

import pytest

from replicator.schema.types import mysql
from replicator.schema.types.table import STATED, Declared


@pytest.mark.parametrize("name", [*STATED, "SERIAL"])
def test_every_name_in_a_statement_has_a_type_in_the_lake(name: str) -> None:
    for unsigned in (False, True):
        for length in (None, 1, 30):
            lake_type, _ = mysql.stored(Declared(name, unsigned, length))
            assert lake_type.name
