"""Sets of transactions."""

from replicator.model.gtid import GtidSet
from replicator.sources.mysql.connection import owned_gtids

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"


def test_union_has_the_transactions_of_both_sets() -> None:
    both = GtidSet.parse(f"{A}:1-5,{B}:7") | GtidSet.parse(f"{A}:6:9-10,{A}:tag:1")
    assert str(both) == f"{A}:1-6:9-10,{A}:tag:1,{B}:7"
    assert str(GtidSet.parse("") | both) == str(both)


def test_transactions_of_one_server() -> None:
    found = GtidSet.parse(f"{A}:1-5,{A}:tag:2,{B}:7").of_server(A.upper())
    assert str(found) == f"{A}:1-5,{A}:tag:2"


def test_owned_transactions_are_read_without_their_threads() -> None:
    assert str(owned_gtids(f"{A}:7#12:8#14:10#15,\n{B}:1#9")) == f"{A}:7-8:10,{B}:1"
    assert str(owned_gtids("")) == ""
