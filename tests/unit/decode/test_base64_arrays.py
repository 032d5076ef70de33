"""Arrays of base64 are decoded as single texts are."""

import base64
import binascii

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.decode.json.base64_arrays import of_base64

_GOOD = st.binary(max_size=20).map(base64.b64encode)
_ANY = st.binary(max_size=12) | st.text("AB+/=", max_size=8).map(str.encode)


def decoded(text: bytes | None) -> bytes | None:
    try:
        return None if text is None else binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error:
        return None


@given(st.lists(st.none() | _GOOD, max_size=20), st.integers(0, 5))
def test_good_texts_are_decoded(texts: list[bytes | None], skipped: int) -> None:
    values = pa.array(texts, pa.binary()).slice(skipped)
    assert of_base64(values).to_pylist() == [decoded(text) for text in texts[skipped:]]


@given(st.lists(st.none() | _GOOD | _ANY, max_size=6))
def test_bad_texts_become_null_and_spoil_no_others(texts: list[bytes | None]) -> None:
    assert of_base64(pa.array(texts, pa.binary())).to_pylist() == [decoded(text) for text in texts]


@pytest.mark.parametrize(
    "text", [b"AQI", b"!!!!", b"AQ\n==", b" AQ==", b"AQ==AQ==", b"====", b"A===", b"AA=A"]
)
def test_text_that_is_not_base64_becomes_null(text: bytes) -> None:
    assert of_base64(pa.array([b"AQ==", text, None, b""])).to_pylist() == [b"\x01", None, None, b""]
