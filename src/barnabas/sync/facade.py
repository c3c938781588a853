"""How a class without async is made from one with it: a line per method, and mypy knows every signature.

class Admin(Client[barnabas.Admin]):
    close = waits(barnabas.Admin.close)
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from barnabas.client.errors import NotOpen
from barnabas.client.options import WrongOption
from barnabas.sync.portal import Portal, portal

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


class Facade(Generic[A_co]):
    """Has an object that lives on the portal's loop."""

    _async: A_co

    def _run(self, work: Coroutine[Any, Any, T], unclaimed: Callable[[T], None] | None = None) -> T:
        raise NotImplementedError


def waits(method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Facade[A], P], T]:
    """A method that does on the loop what an async one does, and returns when it is done."""

    @wraps(method)
    def call(self: Facade[A], /, *arguments: P.args, **options: P.kwargs) -> T:
        return self._run(method(self._async, *arguments, **options))

    return call


def does(method: Callable[Concatenate[A, P], T]) -> Callable[Concatenate[Facade[A], P], T]:
    """The same for a plain method, which must run on the loop all the same."""

    @wraps(method)
    def call(self: Facade[A], /, *arguments: P.args, **options: P.kwargs) -> T:
        async def work() -> T:
            return method(self._async, *arguments, **options)

        return self._run(work())

    return call


def options_of(cls: Callable[P, Any]) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Marks an `__init__` that takes what another class takes."""

    def mark(init: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        return wraps(cls.__init__)(init)

    return mark


class Entered(Protocol):
    async def __aenter__(self) -> Any: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object: ...


E_co = TypeVar("E_co", bound=Entered, covariant=True)


class Client(Facade[E_co]):
    """What is entered and left; left open, it is closed when the program exits."""

    def __init__(self, made: E_co, cluster: object) -> None:
        if not isinstance(cluster, str):
            raise WrongOption(f"barnabas.sync takes the address of a cluster, such as 'host:9092', not {cluster!r}")
        self._async = made
        self._portal: Portal | None = None
        self._is_open = False

    def __enter__(self) -> Self:
        if self._portal is not None:
            raise NotOpen(f"this {type(self).__name__} was entered before; make a new one")
        entered = portal()

        def leave(_: object) -> None:
            entered.run(self._async.__aexit__(None, None, None))

        entered.run(self._async.__aenter__(), leave)
        self._portal, self._is_open = entered, True
        entered.close_at_exit(self, self.close)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_open or self._portal is None:
            return
        self._portal.check()
        self._is_open = False
        self._portal.is_closed(self)
        self._portal.run(self._leave(kind, error, trace))

    async def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._async.__aexit__(kind, error, trace)

    def close(self) -> None:
        """As leaving the `with` block does; what is closed already stays so."""
        self.__exit__(None, None, None)

    def _run(self, work: Coroutine[Any, Any, T], unclaimed: Callable[[T], None] | None = None) -> T:
        try:
            entered, ordered = self._check(), self._in_order(work)
        except BaseException:  # Ctrl-C, for one
            work.close()
            raise
        return entered.run(ordered, unclaimed)

    def _in_order(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """The work, after what has to come before it."""
        return work

    def _check(self) -> Portal:
        if self._portal is None:
            name = type(self).__name__
            raise NotOpen(f"this {name} is not open yet; use `with {name}(...)`")
        self._portal.check()
        if not self._is_open:
            raise NotOpen(f"this {type(self).__name__} was closed")
        return self._portal
