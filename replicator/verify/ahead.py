"""Compute the next item of an iterator in another thread while the last one is used."""

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

Item = TypeVar("Item")
_END = object()


def ahead(items: Iterator[Item]) -> Generator[Item, None, None]:
    """Yield the items of an iterator, which runs in a thread of its own and is one item ahead.

    Close the result if it is not read to its end: the thread then ends with the item that it computes.
    """
    with ThreadPoolExecutor(1, "ahead") as pool:
        following = pool.submit(next, items, _END)
        while (item := following.result()) is not _END:
            following = pool.submit(next, items, _END)
            yield cast("Item", item)
