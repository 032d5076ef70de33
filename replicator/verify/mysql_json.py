"""Write JSON as MySQL shows it, so that the texts of equal documents are equal.

MySQL orders the keys of an object by their length in bytes and then by their bytes, and writes a space behind colons
and commas. A number keeps its kind: 2 and 2.0 are different texts, although the numbers are equal. So different texts
do not prove a difference (`same_json`), but equal texts are equal documents.
"""

import json
import re
from functools import lru_cache
from typing import Any, Final

_MOST_PLACES: Final = 15
"""A number is written with an exponent if the decimal point is farther from its first digit, and not inside its digits.
"""
_ESCAPES: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}
_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')
_WHOLE: Final = 1 << 64
"""MySQL has no greater integers; greater numbers are doubles, even if written as integers."""
_LEAST: Final = -(1 << 63)


@lru_cache(maxsize=10_000)
def mysql_json(text: str) -> str:
    """Return a JSON text as MySQL shows it; the text itself if it is no JSON."""
    try:
        # A decimal number stays a text: MySQL shows 1.50 if the number has this scale.
        return _written(json.loads(text, parse_float=_Number, parse_int=_Number))
    except (ValueError, RecursionError):
        return text


def same_json(one: str, other: str) -> bool:
    """Return whether two JSON texts mean the same; numbers are compared by value."""
    return one == other or json_meaning(one) == json_meaning(other)


def json_meaning(text: str) -> str:
    """Return a JSON text in which whole doubles are integers, and keys are in order; the text if it is no JSON."""
    try:
        return json.dumps(json.loads(text, parse_float=_whole), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def _whole(text: str) -> float | int:
    number = float(text)
    return int(number) if number.is_integer() else number


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


def _written(value: Any) -> str:
    if isinstance(value, _Number):
        return _number(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, dict):
        items = sorted(value.items(), key=_order)
        return f"{{{', '.join(f'{_string(key)}: {_written(item)}' for key, item in items)}}}"
    return {True: "true", False: "false", None: "null"}[value]


def _order(item: tuple[str, Any]) -> tuple[int, bytes]:
    key = item[0].encode("utf-8", "surrogatepass")
    return len(key), key


def _string(text: str) -> str:
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[0]) or f"\\u{ord(match[0]):04x}"


def _number(text: str) -> str:
    if text.lstrip("-").isdigit():
        whole = int(text)
        return str(whole) if _LEAST <= whole < _WHOLE else _double(float(text))
    return _double(float(text))


def _double(number: float) -> str:
    """Return a double with the fewest digits that tell it from others, in MySQL's notation."""
    mantissa, _, exponent = f"{number!r}".partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    fraction = "" if fraction == "0" else fraction
    places = len(whole) + int(exponent or 0)
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return f"{sign}0.0"
    places -= len(whole + fraction) - len(digits)
    digits = digits.rstrip("0")
    if not -_MOST_PLACES < places <= max(_MOST_PLACES, len(digits) - 1):
        rest = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{rest}e{places - 1}"
    if places <= 0:
        return f"{sign}0.{'0' * -places}{digits}"
    if len(digits) <= places:
        return f"{sign}{digits.ljust(places, '0')}.0"
    return f"{sign}{digits[:places]}.{digits[places:]}"
