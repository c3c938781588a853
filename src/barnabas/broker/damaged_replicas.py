"""A broker that finds damage in one of its replicas gives it up, as long as others have what it has lost.

It leaves the in-sync replicas, which makes another one lead if it has led; when the metadata say so, the replica begins
anew with an empty log (`cluster.replicas`), and comes back when it has caught up.

If nobody else who is alive is complete, it is the only copy there is. Nothing is deleted then: it goes on to serve what
it can, it is told as an error and counted, and when another replica is complete after all, that one takes over.

At its start a broker finds logs that are shorter than they were, or damaged. Whoever has a better one is to lead before
this broker can, so the controller is told before the broker asks to be unfenced.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.broker.departures import departure
from barnabas.core import logs
from barnabas.core.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.cluster.events import AlterPartition
    from barnabas.cluster.replicas import Damaged
    from barnabas.storage.log import Log

_PAUSE_S = 1.0  # before it is looked again whether somebody else has everything
_FINAL = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)  # somebody else has our id now
_log = logs.get_logger(__name__)


class DamagedReplicas:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._only_copies: set[Damaged] = set()
        self._news = asyncio.Event()
        self._news.set()  # logs may have been opened with damage in them

    def found(self, log: Log, problem: str) -> None:
        """Records of a log are not what was written, or are gone."""
        if not log.damage:
            log.damage = problem
            _log.error("replica damaged", topic=log.topic, partition=log.partition, problem=problem)
            self._news.set()

    async def run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while damaged := self._broker.replicas.damaged():
                await self._ask([asked for replica in damaged if (asked := self._departure(replica)) is not None])
                await asyncio.sleep(_PAUSE_S)
            self._only_copies.clear()

    def _departure(self, replica: Damaged) -> AlterPartition | None:
        """What is to be asked for now; None if there is nobody to leave it to, or the answer is on its way."""
        broker = self._broker
        registration = broker.metadata.image.partition(replica.topic, replica.partition)
        if registration is None or replica.leader_epoch not in (None, registration.leader_epoch):
            return None
        complete = {*registration.isr, *registration.eligible_leader_replicas} - {broker.broker_id}
        if any(broker.metadata.image.is_alive(other) for other in complete):
            return departure(broker, replica.topic, replica.partition, registration)
        alone = replica._replace(leader_epoch=None)
        if alone not in self._only_copies:
            self._only_copies.add(alone)
            _log.error("damaged replica is the only copy: nothing is deleted, and what is damaged cannot be read; "
                       "start the other replicas, or restore it from a backup", topic=replica.topic,
                       partition=replica.partition, in_sync=list(registration.isr), damage=replica.problem)  # fmt: skip
        return None

    async def leave_what_others_have(self) -> None:
        """Before this broker may lead: give up the claim to be complete in logs that are not."""
        broker = self._broker
        while True:
            image = broker.metadata.image
            departures = []
            for log in broker.replicas.logs():
                registration = image.partition(log.topic, log.partition)
                if registration is None or not (log.is_short or log.damage):
                    continue
                complete = {*registration.isr, *registration.eligible_leader_replicas}
                if broker.broker_id in complete and len(complete) > 1:
                    departures.append(departure(broker, log.topic, log.partition, registration))
                elif broker.broker_id in complete and len(registration.replicas) > 1:
                    _log.warning("log is damaged or shorter than it was, and no other replica is complete",
                                 topic=log.topic, partition=log.partition, log_end_offset=log.log_end_offset,
                                 damage=log.damage or None)  # fmt: skip
            refusals = await self._ask(departures)
            if not refusals:
                return
            for refusal in refusals:
                if refusal.code in _FINAL:
                    raise refusal
            await asyncio.sleep(_PAUSE_S)
            await broker.metadata.refresh()

    async def _ask(self, departures: list[AlterPartition]) -> list[KafkaError]:
        """Have them carried out; those that were refused are to be asked for again."""
        answers = await asyncio.gather(*map(self._broker.controller.submit, departures), return_exceptions=True)
        refusals = []
        for answer in answers:
            if isinstance(answer, KafkaError):
                refusals.append(answer)
                _log.warning("damaged replica not left, trying again", problem=str(answer))
            elif isinstance(answer, BaseException):
                raise answer
        return refusals
