"""What of an event is read where columns were renamed, left out or masked since."""

from replicator.decode.envelope import Epoch
from replicator.decode.epochs import Aligned
from replicator.model.columns import Blank, ColumnRules, FixedText, RuleSet
from replicator.model.table import Column, TableSchema
from replicator.model.types import LONG, STRING

ID = Column("id", LONG)


def ruled(rules: RuleSet, *columns: Column, unseen: tuple[Column, ...] = ()) -> Epoch:
    """An epoch under `rules`; the table's columns are called as the epoch's are by now."""
    now = TableSchema((ID, *(Column(c.name, c.type) for c in columns)), ("id",))
    epoch = Epoch(TableSchema((ID, *columns), ("id",)), unseen=unseen)
    (found,) = Aligned((epoch,), now, now, ()).ruled(ColumnRules((rules,)), "shop.t").epochs
    return found


def test_values_are_masked_by_the_name_that_the_column_has_now() -> None:
    found = ruled(RuleSet(masks=(("mail", FixedText("-")),)), Column("mail", STRING, renamed_from="address"))
    assert found.schema.columns[1].shield == FixedText("-")
    assert found.schema.columns[1].written == "address"


def test_a_column_that_is_called_now_like_one_that_is_left_out_counts_for_marks_only() -> None:
    for rules in (RuleSet(exclude=("mail",)), RuleSet(masks=(("mail", Blank()),))):
        found = ruled(rules, Column("mail", STRING, renamed_from="address"))
        assert found.schema.names == ("id",)
        assert [c.written for c in found.unseen] == ["address"]


def test_what_is_left_out_is_not_read_for_marks_either() -> None:
    rules = RuleSet(exclude=("secret",), masks=(("mail", FixedText("-")),))
    gone = Column("secret", STRING), Column("mail", STRING)
    found = ruled(rules, Column("secret", STRING), Column("mail", STRING, renamed_from="m"), unseen=gone)
    assert [c.written for c in found.columns] == ["id", "m", "mail"]
    assert found.unseen[0].shield == FixedText("-")
