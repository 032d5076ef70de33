"""Which kind of file a request to the object store is about."""

import pytest

from benchmarks.requests import kind_of

FOLDER = "/lake/shop/orders"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (f"{FOLDER}/metadata/00012-5f1c.metadata.json", "metadata.json"),
        (f"{FOLDER}/metadata/snap-81-1-5f1c.avro", "manifest list"),
        (f"{FOLDER}/metadata/5f1c-m0.avro", "manifest"),
        (f"{FOLDER}/data/5f1c-deletes.parquet", "delete file"),
        (f"{FOLDER}/data/5f1c.parquet", "data file"),
        ("/lake?delete", "other"),
    ],
)
def test_kind_of_a_file(path: str, kind: str) -> None:
    assert kind_of(path) == kind
