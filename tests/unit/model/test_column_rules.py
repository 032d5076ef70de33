from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.errors import UnfitColumns
from replicator.model.column_rules import ColumnRules, Exclude, RuleSet, canonical_text
from replicator.model.recorded_rules import (
    check_known,
    check_unchanged,
    rules_from_json,
    rules_in_force,
    rules_to_json,
)
from replicator.model.table import Column, SourceName, TableSchema
from replicator.model.transforms import Blank, FixedText, KeepLast, KeyedHash
from replicator.model.types import DOUBLE, INT, LONG, STRING, TIMESTAMP, LakeType, decimal

KEY = b"0123456789abcdef"
USERS = TableSchema(
    (
        Column("id", LONG, nullable=False),
        Column("Email", STRING),
        Column("phone", STRING),
        Column("note", STRING, fill="none"),
        Column("born", INT),
    ),
    ("id",),
)


def test_hash_key_is_absent_from_every_representation() -> None:
    rules = ColumnRules((RuleSet(hashes=("email",), key=KEY),))
    transform = rules.rule_of("email")
    assert isinstance(transform, KeyedHash)
    for shown in (repr(rules), repr(transform), str(transform), repr(rules.transformed(USERS, "shop.users"))):
        assert "0123456789" not in shown
        assert KEY.hex() not in shown


@pytest.mark.parametrize(
    ("text", "kept"), [("4111111111111234", "************1234"), ("1234", "****"), ("12", "**"), ("", "")]
)
def test_keep_last_shows_the_last_characters_only_when_the_text_is_longer(text: str, kept: str) -> None:
    assert KeepLast(4).of_text(text) == kept


def test_column_rules_of_the_table_precede_those_of_the_mirror() -> None:
    table = RuleSet(include=("id", "e*", "phone", "born"), masks=(("phone", KeepLast(2)),))
    mirror = RuleSet(
        exclude=("BORN",), hashes=("email",), masks=(("phone", Blank()), ("*", FixedText("x"))), key=KEY
    )
    rules = ColumnRules((table, mirror))
    assert rules.rule_of("note") == Exclude(), "not among the table's own"
    assert rules.rule_of("born") == Exclude(), "letter case does not count"
    assert rules.rule_of("EMAIL") == KeyedHash(KEY)
    assert rules.rule_of("phone") == KeepLast(2), "the table's own mask counts first"
    assert not ColumnRules()


def test_transformed_returns_the_lake_schema_under_the_rules() -> None:
    masks = (("phone", Blank()), ("note", FixedText("***")))
    rules = ColumnRules((RuleSet(exclude=("born",), hashes=("id", "email"), masks=masks, key=KEY),))
    schema = rules.transformed(USERS, "shop.users")
    assert [(c.name, str(c.type)) for c in schema.columns] == [
        ("id", "string"),
        ("Email", "string"),
        ("phone", "string"),
        ("note", "string"),
    ]
    note = schema.column("note")
    assert note is not None
    assert note.fill == "***"
    assert (schema.key, schema.left_out) == (("id",), ("born",))
    recorded = rules_in_force(schema)
    assert recorded.keys() == {"id", "Email", "phone", "note", "born"}
    assert rules_from_json(rules_to_json(recorded)) == recorded
    assert check_unchanged(recorded, schema.names, schema, "shop.users") == recorded


@pytest.mark.parametrize(
    "rules",
    [RuleSet(exclude=("id",)), RuleSet(include=("note",)), RuleSet(masks=(("i?", FixedText("x")),))],
)
def test_transformed_refuses_rules_that_exclude_or_mask_a_key(rules: RuleSet) -> None:
    with pytest.raises(UnfitColumns, match=r"column id of shop\.users is in the key"):
        ColumnRules((rules,)).transformed(USERS, "shop.users")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (RuleSet(), RuleSet(exclude=("note",))),
        (RuleSet(exclude=("note",)), RuleSet()),
        (RuleSet(), RuleSet(hashes=("note",), key=KEY)),
        (RuleSet(hashes=("note",), key=KEY), RuleSet(hashes=("note",), key=KEY + b"2")),
        (RuleSet(masks=(("note", KeepLast(3)),)), RuleSet(masks=(("note", KeepLast(4)),))),
    ],
)
def test_check_unchanged_refuses_changed_rules_of_an_existing_column(before: RuleSet, after: RuleSet) -> None:
    old = ColumnRules((before,)).transformed(USERS, "shop.users")
    new = ColumnRules((after,)).transformed(USERS, "shop.users")
    with pytest.raises(UnfitColumns, match="note"):
        check_unchanged(rules_in_force(old), old.names, new, "shop.users")


@pytest.mark.parametrize(
    ("constant", "kind", "text"),
    [
        ("1.50", INT, "1"),
        ("7", LONG, "7"),
        ("1e1", decimal(10, 2), "10.00"),
        ("0", decimal(30, 12), "0.000000000000"),
        ("2020-01-01 00:00:00.500", TIMESTAMP, "2020-01-01 00:00:00.5"),
        ("2020-01-01 00:00:00.000", TIMESTAMP, "2020-01-01 00:00:00"),
        ("it's", STRING, "it's"),
        ("1", DOUBLE, None),
    ],
)
def test_canonical_text_of_a_constant_equals_that_of_the_value(
    constant: str, kind: LakeType, text: str | None
) -> None:
    assert canonical_text(constant, kind) == text


def avro(name: str, in_events: str, *, known: bool = True) -> SourceName:
    return SourceName(name, in_events, known)


PROTECTED = (
    ("e-mail", "e_mail"),
    ("pass word", "pass_word"),
    ("ssn#", "ssn_"),
    ("größe", "gr__e"),
    ("1st", "_st"),
    ("1st", "_1st"),
    ("a.b", "a_b"),
)


@pytest.mark.parametrize(("name", "in_avro"), PROTECTED)
def test_rule_matches_known_and_possible_source_names(name: str, in_avro: str) -> None:
    for pattern in (name, name.replace("ß", "ẞ").upper().replace("ẞ", "ß"), f"{name[:1]}*"):
        rules = ColumnRules((RuleSet(exclude=(pattern,)),))
        assert str(rules.rule([avro(name, in_avro)])) == "exclude"
        assert str(rules.rule([avro(in_avro, in_avro, known=False)])) == "exclude", (
            "the source's name is not known"
        )
        assert rules.rule([avro("other", "other")]) is None
    assert str(ColumnRules((RuleSet(exclude=(in_avro,)),)).rule([avro(name, in_avro)])) == "exclude"
    assert ColumnRules((RuleSet(exclude=(name,)),)).rule([avro(in_avro, in_avro)]) is None
    assert ColumnRules((RuleSet(include=(name,)),)).rule([avro(name, in_avro)]) is None
    assert ColumnRules((RuleSet(include=(name,)),)).rule([avro(in_avro, in_avro, known=False)]) is None
    assert str(ColumnRules((RuleSet(include=(in_avro,)),)).rule([avro(name, in_avro)])) == "exclude"


STRICT = (
    RuleSet(exclude=("a",)),
    RuleSet(masks=(("a", Blank()),)),
    RuleSet(masks=(("a", FixedText("x")),)),
    RuleSet(hashes=("a",), key=KEY),
    RuleSet(masks=(("a", KeepLast(2)),)),
    RuleSet(masks=(("a", KeepLast(4)),)),
    RuleSet(),
)


@given(st.integers(0, len(STRICT) - 1), st.integers(0, len(STRICT) - 1), st.booleans())
def test_rule_is_the_stricter_one_when_a_column_has_two_names(one: int, other: int, two_tables: bool) -> None:
    def named(rules: RuleSet, name: str) -> RuleSet:
        renamed = replace(rules, masks=tuple((name, mask) for _, mask in rules.masks))
        return replace(renamed, exclude=(name,) * len(rules.exclude), hashes=(name,) * len(rules.hashes))

    first, second = named(STRICT[one], "a"), named(STRICT[other], "b")
    rules = ColumnRules((first, second))
    if two_tables:
        rules = ColumnRules((first,), elsewhere=(ColumnRules((second,)),))
    strictest = ColumnRules((STRICT[min(one, other)],)).rule([avro("a", "a")])
    assert rules.rule([avro("a", "a"), avro("b", "b")]) == strictest


def test_transformed_refuses_an_unlisted_column_when_unlisted_columns_pause() -> None:
    rules = ColumnRules((RuleSet(plain=("id", "e*", "born"), exclude=("phone",)),), unlisted_wait=True)
    with pytest.raises(UnfitColumns, match=r"no column rule of shop\.users lists note") as caught:
        rules.transformed(USERS, "shop.users")
    assert 'columns of [[table]] name = "shop.users"' in (caught.value.hint or "")
    listed = ColumnRules((*rules.sets, RuleSet(masks=(("note", Blank()),))), unlisted_wait=True)
    assert listed.transformed(USERS, "shop.users").names == ("id", "Email", "note", "born")
    assert ColumnRules(unlisted_wait=True), "a table may wait without any other rule"


def test_check_known_refuses_a_new_column_that_may_be_a_protected_one() -> None:
    recorded, present = {"email": "exclude", "note": "hash 12345678"}, ("id", "note")
    now = TableSchema((Column("id", LONG), Column("contact", STRING)), ("id",))

    def check(rules: RuleSet, schema: TableSchema, names: set[str]) -> dict[str, str]:
        ruled = ColumnRules((rules,))
        return check_known(recorded, present, ruled.transformed(schema, "t"), names, ruled, "t")

    with pytest.raises(UnfitColumns, match="column contact of t appeared when email disappeared"):
        check(RuleSet(exclude=("email",)), now, {"id", "contact", "note"})
    with pytest.raises(UnfitColumns, match="column contact of t appeared when email disappeared"):
        check(RuleSet(masks=(("contact", KeepLast(1)),)), now, {"id", "contact", "note"})
    assert check(RuleSet(include=("id", "contact")), now, {"id", "contact"}) == {"note": "hash 12345678"}
    assert check(RuleSet(exclude=("email",)), now, {"id", "contact", "note", "email"}) == recorded
    gone = TableSchema((Column("id", LONG),), ("id",))
    assert check(RuleSet(exclude=("email",)), gone, {"id", "note"}) == {"note": "hash 12345678"}
    assert check(RuleSet(exclude=("email",)), TableSchema(()), set()) == recorded, "nothing is known yet"
