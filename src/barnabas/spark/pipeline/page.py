"""Parts of an HTML page. Text is escaped unless it is `Markup`, so no name, value or error can break the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape


class Markup(str):
    """HTML that is safe as it is."""

    __slots__ = ()


def safe(value: object) -> Markup:
    """The text with its markup escaped, and with an escape sequence for each character that cannot be seen."""
    if isinstance(value, Markup):
        return value
    text = str(value)
    if not text.isprintable():
        text = "".join(each if each.isprintable() or each == "\n" else _visible(each) for each in text)
    return Markup(escape(text))


def _visible(character: str) -> str:
    return " " if character.isspace() and character not in "\x1c\x1d\x1e\x1f\x85" else ascii(character)[1:-1]


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def joined(*parts: object) -> Markup:
    return Markup("".join(map(safe, parts)))


def element(name: str, content: object, **attributes: object) -> Markup:
    """`class_` stands for class."""
    given = "".join(f' {key.rstrip("_")}="{safe(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{given}>{safe(content)}</{name}>")


@dataclass(frozen=True, slots=True)
class Number:
    """A cell that is aligned with others of its kind."""

    text: str
    share: float | None = None
    """Between 0 and 1: drawn as a bar behind the number."""


def count(value: int, share: float | None = None) -> Number:
    return Number(f"{value:,}", share)


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Markup:
    """A cell is text, Markup or a Number; a head that ends in `#` stands over numbers."""
    titles = joined(
        *(
            element("th", head.rstrip("#"), class_="number") if head.endswith("#") else element("th", head)
            for head in heads
        )
    )
    lines = joined(*(element("tr", joined(*map(_cell, row))) for row in rows))
    parts = joined(element("thead", element("tr", titles)), element("tbody", lines))
    return element("div", element("table", parts), class_="wide")


def _cell(value: object) -> Markup:
    if not isinstance(value, Number):
        return element("td", value)
    if value.share is None:
        return element("td", value.text, class_="number")
    style = f"--share:{100 * min(1.0, max(0.0, value.share)):.1f}%"
    return element("td", value.text, class_="number bar", style=style)


def tile(name: str, value: str, note: str = "", kind: str = "") -> Markup:
    below = element("dd", note, class_="note") if note else ""
    return element("div", joined(element("dt", name), element("dd", value), below), class_=f"tile {kind}".strip())


def section(title: str, content: Markup, note: str = "") -> Markup:
    below = element("p", note, class_="note") if note else ""
    return element("section", joined(element("h2", title), below, content))


def page(title: str, style: str, content: Markup) -> str:
    head = f'<meta charset="utf-8"/><meta name="viewport" content="width=device-width"/><title>{safe(title)}</title>'
    return f'<!doctype html>\n<html lang="en"><head>{head}<style>{style}</style></head><body>{content}</body></html>\n'
