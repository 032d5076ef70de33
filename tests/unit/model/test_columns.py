import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.errors import UnfitColumns
from replicator.model.columns import (
    Blank,
    ColumnRules,
    FixedText,
    KeepLast,
    KeyedHash,
    RuleSet,
    canonical_text,
    check_unchanged,
    rules_from_json,
    rules_in_force,
    rules_to_json,
)
from replicator.model.table import Column, TableSchema
from replicator.model.types import DOUBLE, INT, LONG, STRING, TIMESTAMP, decimal

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


@given(st.binary(min_size=1, max_size=200), st.text(max_size=200))
def test_the_pads_make_an_hmac(key: bytes, text: str) -> None:
    inner, outer = KeyedHash(key).pads
    made = hashlib.sha256(outer + hashlib.sha256(inner + text.encode()).digest()).hexdigest()
    assert made == hmac.new(key, text.encode(), "sha256").hexdigest() == KeyedHash(key).of_text(text)


def test_a_key_never_shows() -> None:
    rules = ColumnRules((RuleSet(hashes=("email",), key=KEY),))
    shield = rules.shield("email")
    assert isinstance(shield, KeyedHash)
    for shown in (repr(rules), repr(shield), str(shield), repr(rules.shielded(USERS, "shop.users"))):
        assert "0123456789" not in shown
        assert KEY.hex() not in shown


@pytest.mark.parametrize(
    ("text", "kept"), [("4111111111111234", "************1234"), ("1234", "****"), ("12", "**"), ("", "")]
)
def test_the_last_letters_stay_where_there_are_more(text: str, kept: str) -> None:
    assert KeepLast(4).of_text(text) == kept


def test_rules_of_table_and_mirror() -> None:
    table = RuleSet(include=("id", "e*", "phone", "born"), masks=(("phone", KeepLast(2)),))
    mirror = RuleSet(
        exclude=("BORN",), hashes=("email",), masks=(("phone", Blank()), ("*", FixedText("x"))), key=KEY
    )
    rules = ColumnRules((table, mirror))
    assert rules.leaves_out("note"), "not among the table's own"
    assert rules.leaves_out("born"), "letter case does not count"
    assert rules.shield("EMAIL") == KeyedHash(KEY)
    assert rules.shield("phone") == KeepLast(2), "the table's own mask counts first"
    assert not ColumnRules()


def test_what_the_lake_has_of_a_table() -> None:
    masks = (("phone", Blank()), ("note", FixedText("***")))
    rules = ColumnRules((RuleSet(exclude=("born",), hashes=("id", "email"), masks=masks, key=KEY),))
    schema = rules.shielded(USERS, "shop.users")
    assert [(c.name, str(c.type)) for c in schema.columns] == [
        ("id", "string"),
        ("Email", "string"),
        ("phone", "string"),
        ("note", "string"),
    ]
    assert schema.column("note").fill == "***"
    assert (schema.key, schema.left_out) == (("id",), ("born",))
    assert [c.name for c in rules.read(USERS.columns)] == ["id", "Email", "note"]
    recorded = rules_in_force(schema)
    assert recorded.keys() == {"id", "Email", "phone", "note", "born"}
    assert rules_from_json(rules_to_json(recorded)) == recorded
    assert check_unchanged(recorded, schema.names, schema, "shop.users") == recorded


@pytest.mark.parametrize(
    "rules",
    [RuleSet(exclude=("id",)), RuleSet(include=("note",)), RuleSet(masks=(("i?", FixedText("x")),))],
)
def test_a_key_cannot_be_left_out_or_masked(rules: RuleSet) -> None:
    with pytest.raises(UnfitColumns, match=r"column id of shop\.users is in its key"):
        ColumnRules((rules,)).shielded(USERS, "shop.users")


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
def test_rules_for_what_is_there_cannot_change(before: RuleSet, after: RuleSet) -> None:
    old = ColumnRules((before,)).shielded(USERS, "shop.users")
    new = ColumnRules((after,)).shielded(USERS, "shop.users")
    with pytest.raises(UnfitColumns, match="note"):
        check_unchanged(rules_in_force(old), old.names, new, "shop.users")


def test_rules_for_a_new_column_are_added() -> None:
    newer = TableSchema((*USERS.columns, Column("secret", STRING)), USERS.key)
    rules = ColumnRules((RuleSet(exclude=("secret",), hashes=("email",), key=KEY),))
    old = rules.shielded(USERS, "shop.users")
    recorded = check_unchanged(
        rules_in_force(old), old.names, rules.shielded(newer, "shop.users"), "shop.users"
    )
    assert recorded["secret"] == "exclude"
    assert recorded.keys() == {"secret", "Email"}


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
def test_constants_are_hashed_as_values_are(constant: str, kind: object, text: str | None) -> None:
    assert canonical_text(constant, kind) == text
