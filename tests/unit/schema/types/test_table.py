"""Each entry of the table of MySQL's types is complete, and every part of the engine reads it from there."""

import pytest

from replicator.schema.types import mysql
from replicator.schema.types.native import NativeType
from replicator.schema.types.table import NAMES, STATED, TYPES, Declared, type_of


@pytest.mark.parametrize("name", [*STATED, "SERIAL"])
def test_every_name_in_a_statement_has_a_type_in_the_lake(name: str) -> None:
    for unsigned in (False, True):
        for length in (None, 1, 30):
            lake_type, _ = mysql.stored(Declared(name, unsigned, length))
            assert lake_type.name


@pytest.mark.parametrize("name", NAMES)
def test_every_alias_stands_for_its_type(name: str) -> None:
    native = NativeType.parse(name)
    assert native.base == NAMES[name]
    assert native.keeps(NativeType.parse(NAMES[name]))
    assert type_of(name.lower()) is TYPES[native.base]


def test_every_type_can_be_read_by_a_query() -> None:
    assert [name for name, found in TYPES.items() if found.wire is None] == []


def test_no_two_types_share_a_name() -> None:
    names = [name for base, found in TYPES.items() for name in (base, *found.aliases)]
    assert len(names) == len(set(names))


def test_an_unknown_type_is_stored_as_text() -> None:
    assert type_of("XMLTYPE") is None
    assert str(mysql.stored(Declared("XMLTYPE"))[0]) == "string"
