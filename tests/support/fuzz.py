"""Change valid documents at random, for tests that no input may break."""

import copy
import os
from typing import Any, Final

from hypothesis import strategies as st

EXAMPLES: Final = int(os.environ.get("REPLICATOR_FUZZ_EXAMPLES", "100"))
"""Number of inputs of each fuzzing test; `make test-long` takes 10,000."""

_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 1 << 31, 1 << 63, 1 << 70]),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["", "..", "/", "../../etc/passwd", "\x00", "a" * 300, "1 day", "*"]),
)
VALUES: Final[st.SearchStrategy[Any]] = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=4,
)


@st.composite
def changed(draw: st.DrawFn, document: Any, values: st.SearchStrategy[Any] = VALUES) -> Any:
    """Return a copy of a document of dicts and lists in which up to three places are replaced, removed or added."""
    found = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        place = found
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and draw(st.booleans()):
                place = place[key]
                continue
            _change(draw, place, key, values)
            break
    return found


def _change(draw: st.DrawFn, place: Any, key: Any, values: st.SearchStrategy[Any]) -> None:
    match draw(st.sampled_from(["replace", "remove", "add"])):
        case "replace":
            place[key] = draw(values)
        case "remove":
            del place[key]
        case _ if isinstance(place, dict):
            place[draw(st.text(min_size=1, max_size=6))] = draw(values)
        case _:
            place.insert(key, draw(values))
