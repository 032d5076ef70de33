"""The characters that are corrected."""

import json
from pathlib import Path

from replicator.decode import values
from replicator.model.types import LOSSY_TEXTS, MISREAD_TEXTS, UNKNOWN_CHARACTER, Encoding

FOUND = json.loads(Path(values.__file__).with_name("misread_texts.json").read_text())


def test_each_encoding_has_characters_and_those_that_lose_some_are_named() -> None:
    names = {"latin1" if e is Encoding.CP1252 else str(e): e for e in MISREAD_TEXTS}
    assert names.keys() == FOUND.keys()
    assert {names[name] for name, found in FOUND.items() if found.get("lossy")} == LOSSY_TEXTS


def test_each_decoded_character_has_one_meaning() -> None:
    for name, found in FOUND.items():
        assert len(found["decoded"]) == len(found["meant"]) == len(set(found["decoded"])), name
        assert not found.get("lossy") or UNKNOWN_CHARACTER not in found["decoded"], name
