"""Find the keys whose rows differ from the hashes of keys and rows, without the rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from replicator.operations.verify.ordered_keys import Numbers


@dataclass(frozen=True, slots=True)
class RowHashes:
    """The hashes of some rows: of their keys and of all their columns."""

    keys: Numbers
    rows: Numbers

    def __len__(self) -> int:
        return len(self.keys)

    @classmethod
    def of_source(cls, pairs: Iterable[bytes]) -> "RowHashes":
        """Return what MySQL returns: eight bytes of each hash."""
        words = np.frombuffer(b"".join(pairs), ">u8").astype(np.uint64).reshape(-1, 2)
        return cls(words[:, 0], words[:, 1])

    @classmethod
    def joined(cls, parts: Sequence["RowHashes"]) -> "RowHashes":
        """Return the hashes of all parts."""
        none = [np.empty(0, np.uint64)]
        return cls(
            np.concatenate([p.keys for p in parts] or none), np.concatenate([p.rows for p in parts] or none)
        )


def differing_keys(source: RowHashes, lake: RowHashes, before: RowHashes, after: RowHashes) -> Numbers:
    """Return the hashes of the keys whose rows differ, in order.

    `before` and `after` are the images of later changes of the lake, which are undone.
    """
    parts = ((source, 1), (lake, -1), (before, -1), (after, 1))
    keys, place = np.unique(np.concatenate([part.keys for part, _ in parts]), return_inverse=True)
    counts, hashes = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.uint64)
    np.add.at(counts, place, np.concatenate([np.full(len(part), sign, np.int64) for part, sign in parts]))
    np.bitwise_xor.at(hashes, place, np.concatenate([part.rows for part, _ in parts]))
    found: Numbers = keys[(counts != 0) | (hashes != 0)]
    return found
