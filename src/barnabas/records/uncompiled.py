"""What `codec.py` means by `cython` when it runs as plain Python.

The build puts the real Cython in this module's place (see `setup.py`), so Cython is needed to build and never to run.
Decorators do nothing, C types are Python's, and the C functions are never reached, for `compiled` is False.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias, TypeVar, overload

Decorated = TypeVar("Decorated")

compiled = False

Py_ssize_t = int
bint = bool
longlong = int
double = float
float = float
ulonglong = int
p_const_uchar = bytes
p_uchar = bytearray | memoryview

Bytes = bytes | bytearray | memoryview
Doubles: TypeAlias = "memoryview[float]"
Int32s = memoryview
Int64s = memoryview
MutableBytes = bytearray | memoryview
MutableDoubles: TypeAlias = "memoryview[float]"
MutableInt32s = memoryview
MutableInt64s = memoryview
NULL = None


def _unchanged(decorated: Decorated) -> Decorated:
    return decorated


cclass = cfunc = final = inline = no_gc = _unchanged


def exceptval(*_: object, **__: object) -> Callable[[Decorated], Decorated]:
    return _unchanged


@overload
def declare(_: object, value: int) -> int: ...
@overload
def declare(_: object, *, visibility: str) -> Any: ...
def declare(_: object, value: int = 0, *, visibility: str = "") -> Any:
    """A module's constant, or a class's attribute that Python sees, of a C type when compiled."""
    return value


def _only_compiled(*_: Any) -> NoReturn:
    raise NotImplementedError("this is C's, and codec.py asks for it only when it is compiled")


address = cast = memcmp = memcpy = _only_compiled
PyByteArray_AS_STRING = PyByteArray_FromStringAndSize = PyByteArray_Resize = _only_compiled
