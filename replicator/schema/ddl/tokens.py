"""Split MySQL statements into tokens: words, quoted names and punctuation.

Each character is read once, so that the time is proportional to the length of any text: an unclosed quote or comment
extends to the end of the text.

Source: MySQL's lexer (`sql/sql_lex.cc`) and reference manual, "Comments", "String Literals", "Schema Object Names".
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(
    # Possessive quantifiers: an alternative that has begun never gives characters back.
    r"""
      (?P<space> [ \t\n\v\f\r]++
        # Two hyphens begin a comment only before a space or a control character; otherwise they are minus signs.
        | (?: \# | --(?=[\x00-\x20\x7f]|\Z) ) [^\n]*+
        # The content of an executable comment is a part of the statement; only its delimiters are skipped.
        | /\*! (?: [0-9]{5,6} )?+ | \*/
        | /\* (?: [^*]++ | \*(?!/) )*+ (?: \*/ )?+ )
    | (?P<backtick> ` (?: [^`]++ | `` )*+ (?P<end>`)?+ )
    | (?P<single> ' (?: [^'\\]++ | \\. | '' )*+ (?: '|\\ )?+ )
    | (?P<double> " (?: [^"\\]++ | \\. | "" )*+ (?: (?P<close>")|\\ )?+ )
    | (?P<word> [0-9A-Za-z_$\x80-\U0010ffff]++ )
    | (?P<mark> . )
    """,
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """A word, a quoted text or a punctuation character.

    Attributes:
        keyword: the word in upper case, or the punctuation character; empty if the token is quoted.
        name: the identifier that it is if the grammar expects one; None if it cannot be one.
        text: the content of a string in single quotes that has neither quotes nor backslashes; None for other tokens.
    """

    keyword: str
    name: str | None
    text: str | None = None


_NO_NAME: Final = Token("", None)
_MARKS: Final = {mark: Token(mark, None) for mark in map(chr, range(0x80))}


def _plain(quoted: str) -> str | None:
    """Return the content of a string if no character of it is escaped, and the string is closed."""
    content = quoted[1:-1]
    return (
        content
        if len(quoted) > 1 and quoted[-1] == "'" and "'" not in content and "\\" not in content
        else None
    )


def tokenize(text: str) -> Iterator[Token]:
    """Yield the tokens of a text without white space and comments.

    The content of `/*! ... */` is read as a part of the statement, whatever version it requires: a server replaces
    those that it did not execute by ordinary comments before it logs the statement. Only MariaDB executes
    `/*M! ... */`.
    """
    for match in _TOKEN.finditer(text):
        match match.lastgroup:
            case "space":
                continue
            case "word":
                word = match[0]
                # Keywords are ASCII; the upper case of some other letters is an ASCII letter.
                yield Token(word.upper() if word.isascii() else "", word)
            case "mark":
                yield _MARKS.get(match[0]) or Token(match[0], None)
            case "backtick" if match["end"]:
                yield Token("", match[0][1:-1].replace("``", "`"))
            case "double" if match["close"]:
                # A name with ANSI_QUOTES, otherwise a string, which the grammar never allows in place of a name.
                yield Token("", match[0][1:-1].replace('""', '"'))
            case "single":
                yield Token("", None, _plain(match[0]))
            case _:
                yield _NO_NAME


def split_statements(text: str) -> Iterator[str]:
    """Yield the statements of a script, each without the semicolon that ends it; empty ones are left out."""
    start, is_empty = 0, True
    for match in _TOKEN.finditer(text):
        if match[0] == ";" and match.lastgroup == "mark":
            if not is_empty:
                yield text[start : match.start()].strip()
            start, is_empty = match.end(), True
        elif match.lastgroup != "space":
            is_empty = False
    if not is_empty:
        yield text[start:].strip()
