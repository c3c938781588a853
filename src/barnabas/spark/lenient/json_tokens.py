"""Cuts JSON text into tokens as Jackson's reader does with the options of Spark, also where the text is broken.

Spark goes on behind some errors and keeps what it has, so it matters where the reader stands after each of them. So a
name is read together with the beginning of its value, the inside of a text is read when somebody wants it or when the
next token is, and an error leaves position and nesting as they are. Single quotes are allowed, and so are NaN,
Infinity, +INF and their like; comments, names without quotes, leading zeros and control characters in texts are not.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from unicodedata import category

_DEEPEST = 1_000
_LONGEST_NUMBER = 1_000
_LONGEST_NAME = 50_000
_LONGEST_TEXT = 20_000_000
_LONGEST_TOKEN_IN_ERROR = 256

_BLANKS = re.compile(r"[ \t\r\n]*")
_PLAIN = {quote: re.compile(rf"[^\x00-\x1f\\{quote}]*") for quote in "\"'"}
_DIGITS = re.compile(r"[0-9]*")
_HEX = re.compile(r"[0-9a-fA-F]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_ESCAPED = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "/": "/", "\\": "\\", "'": "'"}
_BASE64 = {
    letter: index for index, letter in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
}
_PADDING = "="
_BEGIN_NAMES = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"})
_IN_NAMES = _BEGIN_NAMES | {"Nd", "Mc", "Mn", "Cf"}


class Token(Enum):
    START_OBJECT = auto()
    END_OBJECT = auto()
    START_ARRAY = auto()
    END_ARRAY = auto()
    NAME = auto()
    TEXT = auto()
    INTEGER = auto()
    FLOAT = auto()
    TRUE = auto()
    FALSE = auto()
    NULL = auto()


class JsonError(ValueError):
    """The text is not JSON, from some position on."""


class _Scope:
    """What the reader is inside of: an object, an array or, without a parent, neither."""

    def __init__(self, parent: _Scope | None, *, is_object: bool) -> None:
        self.parent = parent
        self.is_object = is_object
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.name: str | None = None
        self.entries = 0


class JsonTokens:
    """Stands at `token`, which is None before the first one, at the end, and after a name whose value is broken."""

    def __init__(self, text: str) -> None:
        self._input = text
        self._end = len(text)
        self._at = 0
        self._scope = _Scope(None, is_object=False)
        self._is_text_open = False
        self._after_name: Token | None = None
        self._text = ""
        self.token: Token | None = None

    @property
    def name(self) -> str | None:
        """The name that the token belongs to, if there is one."""
        scope = self._scope
        if self.token in (Token.START_OBJECT, Token.START_ARRAY) and scope.parent is not None:
            return scope.parent.name
        return scope.name

    @property
    def text(self) -> str:
        """Of a text, a number or a name; of other tokens what they look like."""
        if self.token is Token.TEXT:
            if self._is_text_open:
                self._is_text_open = False
                self._text = self._quoted('"', _LONGEST_TEXT)
            return self._text
        if self.token in (Token.INTEGER, Token.FLOAT):
            return self._text
        return _LOOKS.get(self.token, "") if self.token is not Token.NAME else self._scope.name or ""

    def rest(self) -> str:
        """What stands behind the value, if it was closed."""
        return self._input[self._at :].strip(" \t\r\n") if self._scope.parent is None else ""

    def next(self) -> Token | None:
        if self.token is Token.NAME:
            self.token, self._after_name = self._after_name, None
            self._open_scope()
            return self.token
        if self._is_text_open:
            self._is_text_open = False
            self._quoted('"', _LONGEST_TEXT)
        letter = self._next_letter()
        if not letter:
            if self._scope.parent is not None:
                raise JsonError(f"it ends within {self._kind()}")
            self.token = None
            return None
        if letter in "]}":
            return self._close_scope(letter)
        if self._scope.parent is not None:
            self._scope.entries += 1
            if self._scope.entries > 1:
                if letter != ",":
                    raise self._unexpected(letter, f"a comma between the entries of {self._kind()}")
                letter = self._next_letter()
                if not letter:
                    raise JsonError(f"it ends within {self._kind()}")
        if not self._scope.is_object:
            self.token = self._value(letter)
            self._open_scope()
            return self.token
        if letter not in "\"'":
            raise self._unexpected(letter, "a name in double quotes")
        self._scope.name = self._quoted(letter, _LONGEST_NAME)
        self.token = Token.NAME
        if self._next_letter() != ":":
            raise JsonError(f"no colon follows the name at position {self._at}")
        letter = self._next_letter()
        if not letter:
            raise JsonError(f"it ends within {self._kind()}")
        self._after_name = self._value(letter)
        return self.token

    def skip_children(self) -> None:
        """To the end of the object or array that the token begins, if it begins one."""
        if self.token not in (Token.START_OBJECT, Token.START_ARRAY):
            return
        depth = 1
        while depth:
            token = self.next()
            if token is None:
                if self._scope.parent is not None:
                    raise JsonError(f"it ends within {self._kind()}")
                return
            if token in (Token.START_OBJECT, Token.START_ARRAY):
                depth += 1
            elif token in (Token.END_OBJECT, Token.END_ARRAY):
                depth -= 1

    def binary(self) -> bytes:
        """The bytes of a text in base64. An error leaves the reader within the text."""
        if not self._is_text_open:
            return _Base64(_Letters(self.text)).decode()
        found = _Base64(self).decode()
        self._is_text_open = False
        return found

    def base64_letter(self) -> str:
        """The next letter of the text; nothing at its end."""
        letter = self._letter()
        if letter == '"':
            return ""
        return self._escape() if letter == "\\" else letter

    def base64_back(self) -> None:
        self._at -= 1

    def _kind(self) -> str:
        return "an object" if self._scope.is_object else "an array"

    def _unexpected(self, letter: str, expected: str) -> JsonError:
        return JsonError(f"{letter!r} at position {self._at}, where {expected} is expected")

    def _letter(self) -> str:
        if self._at >= self._end:
            raise JsonError("it ends within a value")
        self._at += 1
        return self._input[self._at - 1]

    def _next_letter(self) -> str:
        """The next one that is no blank; nothing at the end."""
        match = _BLANKS.match(self._input, self._at)
        assert match is not None
        self._at = match.end()
        if self._at == self._end:
            return ""
        letter = self._letter()
        if letter < " ":
            raise JsonError(f"the control character {letter!r} at position {self._at} between values")
        if letter == "/":
            raise self._unexpected(letter, "a value, and no comment,")
        return letter

    def _open_scope(self) -> None:
        if self.token in (Token.START_OBJECT, Token.START_ARRAY):
            self._scope = _Scope(self._scope, is_object=self.token is Token.START_OBJECT)
            if self._scope.depth > _DEEPEST:
                raise JsonError(f"it is nested deeper than {_DEEPEST} levels")

    def _close_scope(self, letter: str) -> Token:
        scope = self._scope
        if scope.parent is None or scope.is_object != (letter == "}"):
            raise JsonError(f"{letter!r} at position {self._at} closes nothing")
        self._scope = scope.parent
        self.token = Token.END_OBJECT if letter == "}" else Token.END_ARRAY
        return self.token

    def _value(self, letter: str) -> Token:
        """The token of a value that begins with a letter, which has been read."""
        if letter == '"':
            self._is_text_open = True
            return Token.TEXT
        if letter in _STARTS:
            return _STARTS[letter]
        if letter in _WORDS:
            word, token = _WORDS[letter]
            self._match(word, 1)
            if token is Token.FLOAT:
                self._text = word
            return token
        if letter == "-" or letter in "0123456789":
            return self._number(letter)
        if letter == "'":
            self._text = self._quoted("'", _LONGEST_TEXT)
            return Token.TEXT
        if letter == "+":
            return self._sign_without_digit("+", self._letter())
        if category(letter) in _BEGIN_NAMES:
            self._skip_word(1)
        raise self._unexpected(letter, "a value")

    def _number(self, letter: str) -> Token:
        """Digits, fraction, exponent. Jackson has a second way for numbers that begin with 0 or end the text.

        They differ in where they stand after an error, and in how they count the length.
        """
        start = self._at - 1
        if letter == "-":
            following = self._letter()
            if following not in "0123456789":
                if following == ".":
                    raise self._unexpected(following, "a digit")
                return self._sign_without_digit("-", following)
            letter = following
        text, end = self._input, self._end
        at = self._at
        if letter == "0":
            if at < end and text[at] in "0123456789":
                raise JsonError(f"the number at position {self._at} begins with a zero")
        else:
            at = self._digits_end(at)
        integer, fraction, exponent = at - start - (text[start] == "-"), -1, -1
        is_second_way, resume = letter == "0", at
        if at < end and text[at] == ".":
            resume = at + 1
            at = self._digits_end(at + 1)
            fraction = at - resume
            if fraction == 0:
                raise self._broken_number(at, resume, is_second_way=is_second_way)
        if at < end and text[at] in "eE":
            resume = at + 1 if fraction < 0 else resume
            at += 1
            if at < end and text[at] in "+-":
                at += 1
            first = at
            at = self._digits_end(at)
            exponent = at - first
            if exponent == 0:
                raise self._broken_number(at, resume, is_second_way=is_second_way)
        is_second_way |= at == end
        self._at = at
        lengths = (integer, fraction, exponent) if is_second_way else (integer, max(fraction, 0), max(exponent, 0))
        is_float = fraction >= 0 or exponent >= 0
        if (sum(lengths) if is_float else integer) > _LONGEST_NUMBER:
            raise JsonError(f"a number is longer than {_LONGEST_NUMBER} digits")
        self._text = text[start:at]
        return Token.FLOAT if is_float else Token.INTEGER

    def _digits_end(self, at: int) -> int:
        match = _DIGITS.match(self._input, at)
        assert match is not None
        return match.end()

    def _broken_number(self, at: int, resume: int, *, is_second_way: bool) -> JsonError:
        self._at = min(at + 1, self._end) if is_second_way or at == self._end else resume
        return JsonError(f"the number at position {self._at} has no digit behind its point or exponent")

    def _sign_without_digit(self, sign: str, letter: str) -> Token:
        if letter == "I":
            letter = self._letter()
            for word in (f"{sign}INF", f"{sign}Infinity"):
                if letter == word[2]:
                    self._match(word, 3)
                    self._text = word
                    return Token.FLOAT
        raise self._unexpected(letter, "a digit")

    def _match(self, word: str, index: int) -> None:
        """The rest of a word, of which `index` letters have been read, and that no letter follows."""
        for letter in word[index:]:
            if self._at >= self._end or self._input[self._at] != letter:
                self._skip_word(index)
                raise JsonError(f"no {word!r} at position {self._at}")
            self._at += 1
            index += 1
        if self._at < self._end and _is_in_names(self._input[self._at]):
            self._skip_word(index)
            raise JsonError(f"no {word!r} at position {self._at}")

    def _skip_word(self, length: int) -> None:
        while self._at < self._end and _is_in_names(self._input[self._at]) and length < _LONGEST_TOKEN_IN_ERROR:
            self._at += 1
            length += 1

    def _quoted(self, quote: str, longest: int) -> str:
        """What stands before the closing quote."""
        parts = []
        while True:
            match = _PLAIN[quote].match(self._input, self._at)
            assert match is not None
            self._at = match.end()
            parts.append(match[0])
            if self._at >= self._end:
                raise JsonError("it ends within a text")
            letter = self._letter()
            if letter == quote:
                break
            if letter != "\\":
                raise JsonError(f"the control character {letter!r} at position {self._at} within a text")
            parts.append(self._escape())
        found = "".join(parts)
        if len(found) > longest:
            raise JsonError(f"a text is longer than {longest} characters")
        return joined_surrogates(found) if len(parts) > 1 else found

    def _escape(self) -> str:
        letter = self._letter()
        if letter in _ESCAPED:
            return _ESCAPED[letter]
        if letter != "u":
            raise self._unexpected(letter, "a letter that may follow a backslash")
        digits = ""
        for _ in range(4):
            digits += self._letter()
            if not _HEX.fullmatch(digits[-1]):
                raise self._unexpected(digits[-1], "a hexadecimal digit")
        return chr(int(digits, 16))


_STARTS = {"[": Token.START_ARRAY, "{": Token.START_OBJECT}
_WORDS = {
    "t": ("true", Token.TRUE),
    "f": ("false", Token.FALSE),
    "n": ("null", Token.NULL),
    "N": ("NaN", Token.FLOAT),
    "I": ("Infinity", Token.FLOAT),
}
_LOOKS: dict[Token | None, str] = {
    Token.START_OBJECT: "{",
    Token.END_OBJECT: "}",
    Token.START_ARRAY: "[",
    Token.END_ARRAY: "]",
    Token.TRUE: "true",
    Token.FALSE: "false",
    Token.NULL: "null",
}


def joined_surrogates(text: str) -> str:
    """Two halves of a character as one; a half without the other stays."""
    if _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def without_surrogates(text: str) -> str:
    """A half of a character as a question mark, as Java encodes it."""
    return _SURROGATE.sub("?", text)


def _is_in_names(letter: str) -> bool:
    """Java's Character.isJavaIdentifierPart."""
    if letter > "\uffff":
        return False
    code = ord(letter)
    return category(letter) in _IN_NAMES or code <= 8 or 0xE <= code <= 0x1B or 0x7F <= code <= 0x9F


class _Letters:
    """A text that has been read, letter by letter."""

    def __init__(self, text: str) -> None:
        self._letters = iter(text)

    def base64_letter(self) -> str:
        return next(self._letters, "")

    def base64_back(self) -> None:
        """Its end stays its end."""


class _Base64:
    """Units of four letters, with blanks between them; the last one is padded."""

    def __init__(self, letters: JsonTokens | _Letters) -> None:
        self._letters = letters

    def decode(self) -> bytes:
        found = bytearray()
        while True:
            letter = self._letters.base64_letter()
            if not letter:
                return bytes(found)
            if letter <= " ":
                continue
            bits = self._bits(letter, 0) << 6 | self._bits(self._letters.base64_letter(), 1)
            third = self._padded()
            if third == _PADDING:
                if self._letters.base64_letter() != _PADDING:
                    raise JsonError("not base64: one padding character where there must be two")
                found += (bits >> 4).to_bytes(1, "big")
                continue
            bits = bits << 6 | self._bits(third, 2)
            fourth = self._padded()
            if fourth == _PADDING:
                found += (bits >> 2).to_bytes(2, "big")
                continue
            found += (bits << 6 | self._bits(fourth, 3)).to_bytes(3, "big")

    def _padded(self) -> str:
        """The third or fourth letter of a unit, which cannot be missing."""
        letter = self._letters.base64_letter()
        if not letter:
            self._letters.base64_back()
            raise JsonError("not base64: the padding is missing")
        return letter

    def _bits(self, letter: str, index: int) -> int:
        if letter not in _BASE64:
            raise JsonError(f"not base64: {letter!r} as letter {index + 1} of a unit of four")
        return _BASE64[letter]
