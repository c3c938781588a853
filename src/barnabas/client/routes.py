"""Where a call goes: to any broker, the controller, leaders of partitions, coordinators, or to each broker.

A route finds the broker of every item of a call. `ask` sends one request to each of these brokers, all at once, and
asks again for the items that came to the wrong place or at a bad moment, as `Client.retrying` does. In the end every
item has a value, or an error of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from enum import IntEnum
from typing import Any, Generic, Protocol, TypeAlias, TypeGuard, TypeVar

from barnabas.client.client import Client
from barnabas.client.errors import refused
from barnabas.client.metadata import BrokerInfo, TopicPartition, by_topic
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.wire.messages.k10_find_coordinator import FindCoordinatorRequest

K = TypeVar("K")
V = TypeVar("V")
_NEW_TOPIC_GRACE_S = 3
"""A broker learns of a new topic a moment after the controller: so long an unknown one may be a new one."""
_MAY_BE_NEW = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
Place: TypeAlias = BrokerInfo | KafkaError | None
"""The broker to ask, None for any of them, or why there is none."""


class Route(Protocol):
    @property
    def again(self) -> frozenset[ErrorCode]:
        """The errors that another broker, or the same one a moment later, may not have."""

    async def locate(self, client: Client, items: list[Any], *, anew: bool) -> Mapping[Any, Place]:
        """The place of each item; `anew` says that what is known was wrong."""


class AnyBroker:
    """For what every broker knows, or hands on to the controller by itself."""

    again = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_CONTROLLER})

    async def locate(self, client: Client, items: list[Any], *, anew: bool) -> Mapping[Any, Place]:
        return dict.fromkeys(items)


class Controller:
    """For what only the controller decides."""

    again = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_CONTROLLER, ErrorCode.THROTTLING_QUOTA_EXCEEDED})

    async def locate(self, client: Client, items: list[Any], *, anew: bool) -> Mapping[Any, Place]:
        if anew:
            await client.metadata.refresh([])
        cluster = client.metadata.cluster
        return dict.fromkeys(items, cluster.brokers.get(cluster.controller_id))


class Leaders:
    """For what only the leader of a partition knows; the items are partitions."""

    again = frozenset(code for code in ErrorCode if code.retriable)

    async def locate(self, client: Client, items: list[TopicPartition], *, anew: bool) -> Mapping[Any, Place]:
        if anew:
            client.metadata.forget({partition.topic for partition in items})
        places: dict[TopicPartition, Place] = {}
        for topic, indexes in by_topic(items).items():
            partitions = [TopicPartition(topic, index) for index in indexes]
            try:
                await client.metadata.topic(topic)
            except KafkaError as error:
                places.update(dict.fromkeys(partitions, error))
            else:
                places.update({partition: await self._leader(client, partition) for partition in partitions})
        return places

    async def _leader(self, client: Client, partition: TopicPartition) -> Place:
        try:
            return await client.metadata.leader_of(partition)
        except KafkaError as error:
            return error


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class Coordinators:
    """For what the coordinator of a group or of a transactional id keeps; the items are these ids."""

    again = frozenset(
        {
            ErrorCode.NETWORK_EXCEPTION,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.UNSTABLE_OFFSET_COMMIT,
        }
    )

    def __init__(self, key_type: KeyType) -> None:
        self._key_type = key_type

    async def locate(self, client: Client, items: list[str], *, anew: bool) -> Mapping[Any, Place]:
        response = await client.metadata.ask_any(FindCoordinatorRequest("", self._key_type, items))
        return {
            found.key: refused(found.error_code, f"coordinator of {found.key!r}", found.error_message)
            if found.error_code
            else BrokerInfo(found.node_id, found.host, found.port, None)
            for found in response.coordinators
        }


class EachBroker:
    """For what every broker knows of itself alone; the items are broker ids."""

    again = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})

    async def locate(self, client: Client, items: list[int], *, anew: bool) -> Mapping[Any, Place]:
        if anew or not client.metadata.cluster.brokers.keys() >= set(items):
            await client.metadata.refresh([])
        brokers = client.metadata.cluster.brokers
        return {item: brokers.get(item) or _does_not_serve(item) for item in items}


def _does_not_serve(broker: int) -> KafkaError:
    return KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker} does not serve; is it running?")


ANY = AnyBroker()
CONTROLLER = Controller()
LEADERS = Leaders()
GROUPS = Coordinators(KeyType.GROUP)
TRANSACTIONS = Coordinators(KeyType.TRANSACTION)
BROKERS = EachBroker()


async def serving_brokers(client: Client) -> list[int]:
    """The brokers that serve now: the items of a call on each of them."""
    await client.retrying(lambda: client.metadata.refresh([]))
    return sorted(client.metadata.cluster.brokers)


class _Call(Generic[K, V]):
    """One call on its way: `left` are the items that have no final answer yet."""

    def __init__(
        self,
        client: Client,
        route: Route,
        items: Iterable[K],
        send: Callable[[BrokerInfo | None, list[K]], Awaitable[Mapping[K, V | KafkaError]]],
    ) -> None:
        self.answers: dict[K, V | KafkaError] = {}
        self.left = list(dict.fromkeys(items))
        self._client = client
        self._route = route
        self._send = send
        self._anew = False
        self._new_topics_until = client.clock.monotonic() + _NEW_TOPIC_GRACE_S

    async def outcome(self) -> dict[K, V | KafkaError]:
        if self.left:
            with suppress(KafkaError):  # each item has it as its answer
                await self._client.retrying(self._attempt)
        return self.answers

    async def _attempt(self) -> None:
        """Raises the error of an item that is to be asked for again."""
        places = await self._locate()
        by_broker: dict[BrokerInfo | None, list[K]] = {}
        for item in self.left:
            place = places[item] if item in places else _unanswered(item)
            if isinstance(place, KafkaError):
                self.answers[item] = place
            else:
                by_broker.setdefault(place, []).append(item)
        for answers in await asyncio.gather(*(self._ask(broker, there) for broker, there in by_broker.items())):
            self.answers.update(answers)
        again = {item: answer for item in self.left if self._may_pass(answer := self.answers[item])}
        self.left = list(again)
        self._anew = True
        for error in again.values():
            raise error

    def _may_pass(self, answer: V | KafkaError) -> TypeGuard[KafkaError]:
        return (
            isinstance(answer, KafkaError)
            and answer.code in self._route.again
            and (answer.code not in _MAY_BE_NEW or self._client.clock.monotonic() < self._new_topics_until)
        )

    async def _locate(self) -> Mapping[K, Place]:
        try:
            return await self._route.locate(self._client, self.left, anew=self._anew)
        except KafkaError as error:
            self.answers.update(dict.fromkeys(self.left, error))
            raise

    async def _ask(self, broker: BrokerInfo | None, items: list[K]) -> dict[K, V | KafkaError]:
        try:
            answers = await self._send(broker, items)
        except KafkaError as error:
            return dict.fromkeys(items, error)
        return {item: answers[item] if item in answers else _unanswered(item) for item in items}


def _unanswered(item: object) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker's answer has nothing about {item}")


async def _send(client: Client, broker: BrokerInfo | None, message: Any, highest: int | None) -> Any:
    if broker is None:
        return await client.metadata.ask_any(message, highest=highest)
    return await client.ask(broker, message, highest=highest)


async def ask(
    client: Client,
    route: Route,
    items: Iterable[K],
    request: Callable[[list[K]], Any],
    read: Callable[[Any], Mapping[K, V | KafkaError]],
    *,
    highest: int | None = None,
) -> dict[K, V | KafkaError]:
    """Ask for all items; `request` makes the message for some of them, `read` takes the answers out of a response.

    A KafkaError that `read` raises is that of every item of the response.
    """

    async def send(broker: BrokerInfo | None, some: list[K]) -> Mapping[K, V | KafkaError]:
        return read(await _send(client, broker, request(some), highest))

    return await _Call(client, route, items, send).outcome()


async def ask_singly(
    client: Client,
    route: Route,
    items: Iterable[K],
    request: Callable[[K], Any],
    read: Callable[[Any], V],
    *,
    highest: int | None = None,
) -> dict[K, V | KafkaError]:
    """The same where a request is about one item; `read` raises what the response refuses."""

    async def answer(broker: BrokerInfo | None, item: K) -> V | KafkaError:
        try:
            return read(await _send(client, broker, request(item), highest))
        except KafkaError as error:
            return error

    async def send(broker: BrokerInfo | None, some: list[K]) -> Mapping[K, V | KafkaError]:
        return dict(zip(some, await asyncio.gather(*(answer(broker, item) for item in some)), strict=True))

    return await _Call(client, route, items, send).outcome()


async def ask_one(
    client: Client, route: Route, item: Any, message: Any, read: Callable[[Any], V], *, highest: int | None = None
) -> V:
    """The same for one item, or for a call that has none (None): its value, or its error raised."""
    answer = (await ask_singly(client, route, [item], lambda _: message, read, highest=highest))[item]
    if isinstance(answer, KafkaError):
        raise answer
    return answer
