"""Divides a line of CSV into tokens as Spark's parser does, also where quotes and escapes are wrong.

A token in quotes ends at a quote before a separator. A backslash escapes a quote or a backslash inside quotes. Behind a
quote that is neither escaped nor the last, the text goes on up to the next separator, and keeps its quotes. The steps
and their order are those of the parser that Spark uses (univocity), since its result for such lines follows from them.
"""

from __future__ import annotations

from typing import NoReturn

_QUOTE, _ESCAPE, _NONE = '"', "\\", "\0"


class CsvError(ValueError):
    """A line that cannot be divided."""


class _EndOfLine(Exception):
    pass


class CsvTokens:
    def __init__(self, separator: str) -> None:
        self._separator = separator

    def divide(self, line: str) -> list[str]:
        """The tokens of a line that is not empty."""
        self._line, self._at = line, 0
        self._tokens: list[str] = []
        self._text: list[str] = []
        self._letter = self._before = _NONE
        self._is_unescaped = False
        try:
            self._read_tokens()
        except _EndOfLine:
            self._finish()
        except RecursionError:
            raise CsvError("quotes and escapes are nested too deeply") from None
        return self._tokens

    def _next(self) -> None:
        """Step on; at the end the last letter stays."""
        if self._at == len(self._line):
            raise _EndOfLine
        self._letter = self._line[self._at]
        self._at += 1

    def _take_until(self, *stops: str) -> None:
        """Take letters up to one of these; if none follows, the line ends, and the first letter stays."""
        letter = self._letter
        while letter not in stops:
            self._text.append(letter)
            if self._at == len(self._line):
                raise _EndOfLine
            letter = self._line[self._at]
            self._at += 1
        self._letter = letter

    def _end_token(self) -> None:
        self._tokens.append("".join(self._text))
        self._text.clear()

    def _read_tokens(self) -> NoReturn:
        self._next()
        while True:
            if self._letter == self._separator:
                self._tokens.append("")
            else:
                self._is_unescaped, self._before = False, _NONE
                if self._letter == _QUOTE:
                    self._read_quoted()
                else:
                    self._take_until(self._separator)
                self._end_token()
            self._next()

    def _finish(self) -> None:
        """End the last token, which has no separator behind it."""
        is_closed = self._letter == _QUOTE and self._before == _QUOTE
        if self._letter == _QUOTE and not is_closed and not self._is_unescaped:
            self._text.append(_QUOTE)
        self._end_token()

    def _read_quoted(self) -> None:
        if self._before != _NONE:  # behind a quote that should have been the last
            self._text.insert(0, _QUOTE)
            self._next()
            self._take_until(self._separator)
            return
        self._next()
        while not (self._before == _QUOTE and (self._letter <= " " or self._letter == self._separator)):
            if self._letter in (_QUOTE, _ESCAPE):
                self._read_escape()
                self._before = self._letter
                self._next()
                if self._is_unescaped and self._letter == self._separator:
                    return
                continue
            if self._before == _QUOTE:
                self._is_unescaped = True
                self._text += (_QUOTE, self._letter)
                self._before = self._letter
                self._read_quoted()
                return
            if self._before == _ESCAPE:
                self._text.append(_ESCAPE)
            self._take_until(_QUOTE, _ESCAPE)
            self._before = self._letter
            self._next()
        if self._letter != self._separator:
            self._read_blanks()

    def _read_blanks(self) -> None:
        """Blanks behind the last quote do not count, unless something follows them."""
        blanks = []
        while self._letter <= " " and self._letter != self._separator:
            blanks.append(self._letter)
            self._next()
        if self._letter != self._separator:
            self._text += (_QUOTE, *blanks, self._letter)
            self._before = self._letter
            self._read_quoted()
            if self._letter != self._separator:
                raise CsvError(f"{self._letter!r} follows a value in quotes")

    def _read_escape(self) -> None:
        """The letter is a quote or a backslash."""
        if self._letter == self._before == _ESCAPE:
            self._text.append(_ESCAPE)
            self._letter = _NONE
        elif self._before == _ESCAPE:
            self._text.append(_QUOTE)
            self._letter = _NONE
        elif self._letter == self._before == _QUOTE:
            self._text.append(_QUOTE)
        elif self._before == _QUOTE:
            self._read_behind_quote()

    def _read_behind_quote(self) -> None:
        """Up to the next separator, where a backslash or a letter follows a quote."""
        self._text.append(_QUOTE)
        self._before = self._letter
        while self._letter != self._separator:
            if self._letter in (_QUOTE, _ESCAPE):
                self._read_escape()
            elif self._before == _QUOTE:
                self._read_behind_quote()
                return
            else:
                self._text.append(self._letter)
            self._before = self._letter
            self._next()
