"""Write records as JSON that fits into a property: catalogs in a database store at most 1,000 characters of one."""

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

LONGEST: Final = 1_000
_STEP: Final = 10


def fitted_json(record: Mapping[str, Any], texts: Collection[str], *, most: int, ending: str = "") -> str:
    """Return `record` as one line of JSON, whose fields in `texts` are cut to `most` characters, or to fewer if needed.

    JSON writes some characters as six or twelve. A text may be None; one that is cut ends with `ending`.
    """
    for length in range(most, 0, -_STEP):
        cut = {name: _cut(record[name], length, ending) for name in texts}
        found = json.dumps({**record, **cut})
        if len(found) <= LONGEST:
            break
    return found


def _cut(text: str | None, most: int, ending: str) -> str | None:
    return text if text is None or len(text) <= most else text[: most - len(ending)] + ending
