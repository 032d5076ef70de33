"""Which tables share a folder, and would lose files if it were cleaned."""

import pytest

from replicator.lake.reading.folders import TableFolders, sharing

ORDERS = TableFolders("shop.orders", "a", ("s3://lake/shop/orders",))


def test_sharing_finds_nothing_when_each_table_has_its_own_folder() -> None:
    others = [
        TableFolders("shop.orders_old", "b", ("s3://lake/shop/orders_old",)),
        TableFolders("shop.o", "c", ("s3://lake/shop/o", "s3://other/data")),
    ]
    assert sharing("a", "s3://lake/shop/orders", [ORDERS, *others]) is None


@pytest.mark.parametrize(
    "folder",
    [
        "s3://lake/shop/orders",
        "s3a://lake/shop/orders/",
        "s3://lake/shop//orders",
        "s3://lake/shop/orders/inner",
        "s3://lake/shop",
    ],
)
def test_sharing_names_the_table_when_a_folder_is_equal_or_inside_the_other(folder: str) -> None:
    other = TableFolders("shop.before", "b", ("s3://elsewhere/x", folder))
    assert sharing("a", "s3://lake/shop/orders", [ORDERS, other]) == "shop.before"


def test_sharing_ignores_the_scheme_of_local_folders() -> None:
    other = TableFolders("shop.before", "b", ("file:///lake/shop/orders",))
    assert sharing("a", "/lake/shop/orders", [other]) == "shop.before"


def test_sharing_names_a_table_that_was_registered_from_the_same_metadata() -> None:
    copy = TableFolders("copy.orders", "a", ORDERS.folders)
    assert sharing("a", "s3://lake/shop/orders", [ORDERS, copy]) == "copy.orders"
