"""Find the line of a key in a TOML text. tomllib does not report lines, so the text is scanned a second time."""

import re
from collections.abc import Iterator

Location = tuple[int | str, ...]

_HEADER = re.compile(r"^\s*(?P<open>\[\[?)\s*(?P<name>[^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""^\s*(?P<key>(?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


def line_of(text: str, location: Location) -> int | None:
    """Return the line (from 1) of the key at `location`, else of the nearest enclosing item, else None.

    A step of `location` is a key, or the index of a `[[section]]` or list item.
    """
    found: dict[Location, int] = {}
    for line, path in _keys(text):
        for length in range(len(path), 0, -1):
            found.setdefault(path[:length], line)
    for length in range(len(location), 0, -1):
        if location[:length] in found:
            return found[location[:length]]
    return None


def _keys(text: str) -> Iterator[tuple[int, Location]]:
    section: Location = ()
    repeated: dict[Location, int] = {}
    for line, content in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(content):
            section = _parts(header["name"])
            if header["open"] == "[[":
                repeated[section] = repeated.get(section, -1) + 1
                section = (*section, repeated[section])
            elif section[:1] in repeated:
                # [table.properties] belongs to the [[table]] before it.
                section = (section[0], repeated[section[:1]], *section[1:])
            yield line, section
        elif key := _KEY.match(content):
            yield line, section + _parts(key["key"])


def _parts(dotted: str) -> Location:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))
