"""Checks UTF-8 as Python does: no overlong forms, no surrogates, nothing beyond U+10FFFF.

The same rules hold as in `codec`, with which this is compiled.
"""

from __future__ import annotations

from barnabas.records import uncompiled as cython
from barnabas.records.uncompiled import memcpy

# The build puts other imports in place of what stands above (see setup.py).

NO_ASCII = cython.declare(cython.ulonglong, 0x8080808080808080)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def character_width(p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
    """How many bytes the character of several bytes that begins here has; 0 if it is not valid UTF-8."""
    left: cython.Py_ssize_t = end - at
    first: cython.longlong = p[at]
    second: cython.longlong
    if first < 0xC2 or left < 2:
        return 0
    second = p[at + 1]
    if first < 0xE0:
        return 2 if second & 0xC0 == 0x80 else 0
    if left < 3 or p[at + 2] & 0xC0 != 0x80:
        return 0
    if first < 0xF0:
        if second & 0xC0 != 0x80 or (first == 0xE0 and second < 0xA0) or (first == 0xED and second > 0x9F):
            return 0
        return 3
    if first > 0xF4 or left < 4 or second & 0xC0 != 0x80 or p[at + 3] & 0xC0 != 0x80:
        return 0
    if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
        return 0
    return 4


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _eight_bytes(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.ulonglong:
    word: cython.ulonglong = 0
    if cython.compiled:
        memcpy(cython.address(word), cython.address(p[at]), 8)
    return word


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def is_utf8(p: cython.p_const_uchar, position: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
    at: cython.Py_ssize_t = position
    width: cython.longlong
    if cython.compiled and end - position >= 8:  # mostly they are all ASCII
        while at < end:
            at = min(at, end - 8)
            if _eight_bytes(p, at) & NO_ASCII != 0:
                break
            at += 8
        position = min(at, end)
    while position < end:
        if p[position] < 0x80:
            position += 1
        else:
            width = character_width(p, position, end)
            if width == 0:
                return False
            position += width
    return True
