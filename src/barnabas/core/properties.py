"""Java's `.properties` format: the text of configuration files and of `meta.properties`.

A line is `name=value`, `name: value` or `name value`; `#` and `!` begin a comment; a backslash at the end joins the
next line; `\\t \\n \\r \\f \\uXXXX` are escapes, and a backslash before any other character stands for that character.
Files are read as UTF-8; what is written is ASCII, so that Java, which reads Latin-1, sees the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_LINE_END = re.compile(r"\r\n|\r|\n")
_WHITE = " \t\f"
_NAME = re.compile(r"(?:[^\\=: \t\f]|\\.)*")  # up to the first separator that no backslash protects
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(u)|(.)|$)")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN = {"\\": "\\\\", "=": "\\=", ":": "\\:", "#": "\\#", "!": "\\!"} | {v: "\\" + k for k, v in _CONTROL.items()}


class PropertiesError(ValueError):
    """A text that is not in the format; the message begins with file and line."""


class Property(NamedTuple):
    name: str
    value: str
    line: int  # the first of the lines that it is written on


def parse(text: str, file: str) -> list[Property]:
    """The properties in order, repeated ones too; `file` is only for errors."""
    properties = []
    for number, line in _logical_lines(text):
        end = _NAME.match(line).end()  # type: ignore[union-attr]  # matches nothing at least
        start = _SEPARATOR.match(line, end).end()  # type: ignore[union-attr]
        where = f"{file}:{number}"
        properties.append(Property(_unescape(line[:end], where), _unescape(line[start:], where), number))
    return properties


def parse_bytes(data: bytes, file: str) -> list[Property]:
    try:
        return parse(data.decode("utf-8"), file)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PropertiesError(f"{file}:{line}: byte 0x{data[error.start]:02x} is not UTF-8") from None


def render(properties: Mapping[str, str], comment: str = "") -> str:
    lines = [f"#{line}" for line in comment.splitlines()]
    lines += [f"{_escape(name, True)}={_escape(value, False)}" for name, value in properties.items()]
    return "".join(line + "\n" for line in lines)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines joined where a backslash asks for it, without blank ones and comments, each with its first line number."""
    joined, first = "", 0
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(_WHITE)
        if not first and (not line or line[0] in "#!"):
            continue
        first = first or number
        joined += line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            joined = joined[:-1]
            continue
        yield first, joined
        joined, first = "", 0
    if joined:
        yield first, joined


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text

    def character(match: re.Match[str]) -> str:
        code, malformed, plain = match.groups()
        if malformed:
            raise PropertiesError(f"{where}: \\u wants four hexadecimal digits, not '{text[match.end() :][:4]}'")
        return chr(int(code, 16)) if code else _CONTROL.get(plain or "", plain or "")

    unescaped = _ESCAPE.sub(character, text)
    try:  # Java's escapes are UTF-16: two of them make one character beyond the first 65,536
        return unescaped.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise PropertiesError(f"{where}: half a surrogate pair is not a character") from None


def _escape(text: str, is_name: bool) -> str:
    escaped = "".join(_WRITTEN.get(char) or (char if " " <= char <= "~" else _utf16(char)) for char in text)
    if is_name:
        return escaped.replace(" ", "\\ ")
    return "\\" + escaped if escaped.startswith(" ") else escaped


def _utf16(char: str) -> str:
    units = char.encode("utf-16-be").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
