"""How many tasks commit as one: the driver's part of exactly-once writes.

    tasks            write in transactions that they leave open, and tell the driver which
    commit           all are open? -> the decision is written -> each is committed -> strays are aborted
    a new driver     finishes what was decided, before anything else

Before the decision nothing of the work is visible, and nothing need be: the work is done again, whatever its rows are
cut into then. After it every transaction is committed, by this driver or the next, and the work is never done again.
Nothing of this needs Spark to cut the rows the same way twice, or the driver to live.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from barnabas.client.admin.transactions import Transactions, TransactionState
from barnabas.client.outcomes import PartlyFailed
from barnabas.core import logs
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.spark.cluster import open_client, persevere
from barnabas.spark.decisions import Decision, Decisions, Work

if TYPE_CHECKING:
    from barnabas.client.client import Client
    from barnabas.client.produce.open_transaction import OpenTransaction
    from barnabas.spark.write_options import WriteOptions

_log = logs.get_logger(__name__)
_GONE = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)
"""What a coordinator says to whoever wants to end a transaction that is over, or was never committed."""
_MOST_NAMED = 3


class NotOpen(KafkaError):
    """Transactions of the tasks ended before they could be committed. Nothing of the work is visible."""

    def __init__(self, work: Work, ids: Sequence[str], timeout_ms: int) -> None:
        super().__init__(
            ErrorCode.INVALID_TXN_STATE,
            f"{work} is not committed, and nothing of it is visible: {_named(ids)} no longer open. Did it take longer "
            f"than kafka.transaction.timeout.ms={timeout_ms}, or does somebody else use this transactionalIdPrefix? "
            "Run it again, and it is written anew",
        )


BEGIN_AGAIN = "To write the whole batch again, and have the others twice, start with another transactionalIdPrefix"
"""What the error says to do; a pipeline has other words for it."""


class DecidedLost(KafkaError):
    """Work was decided, and then a transaction of it timed out: part of it is missing for good."""

    def __init__(self, work: Work, ids: Sequence[str]) -> None:
        super().__init__(
            ErrorCode.INVALID_TXN_STATE,
            f"{work} was decided, but {_named(ids)} no longer there to be committed: nobody came back to it within "
            "kafka.transaction.timeout.ms, and the cluster has aborted it. The rows of these transactions are missing; "
            f"those of the others are there. {BEGIN_AGAIN}",
        )


def _named(ids: Sequence[str]) -> str:
    shown = ", ".join(map(repr, ids[:_MOST_NAMED])) + (" ..." if len(ids) > _MOST_NAMED else "")
    return f"transaction {shown} is" if len(ids) == 1 else f"{len(ids)} transactions ({shown}) are"


async def recover(options: WriteOptions) -> Decision | None:
    """Finish what was decided, and tell it; nothing is aborted, for tasks may be at work."""

    async def attempt() -> Decision | None:
        async with _decisions(options) as (_, decisions):
            return decisions.last

    return await persevere(attempt, options.max_block_ms)


async def commit(options: WriteOptions, work: Work, transactions: tuple[OpenTransaction, ...]) -> None:
    """Make all that the tasks wrote visible, once. To commit what is decided does nothing, so it may be tried again."""

    async def attempt() -> None:
        async with _decisions(options) as (client, decisions):
            last = decisions.last
            if last is None or not last.covers(work):
                await _check_open(client, work, transactions, options.transaction_timeout_ms)
                decision = last.followed_by(work, transactions) if last else Decision(work, transactions)
                await decisions.write(decision)
                await _finish(client, decisions)
            await _abort_strays(client, options)

    await persevere(attempt, options.max_block_ms)


async def abort(options: WriteOptions) -> None:
    """Give up what tasks left open; what was decided, though the driver may not have heard of it, is finished.

    Spark is about to tell why the work failed: that this failed too must not take the place of it.
    """
    try:
        async with _decisions(options) as (client, _):
            await _abort_strays(client, options)
    except KafkaError as error:
        _log.warning("the work was not aborted", prefix=options.prefix, problem=str(error))


@asynccontextmanager
async def _decisions(options: WriteOptions) -> AsyncIterator[tuple[Client, Decisions]]:
    """The decisions of this prefix, the last of them carried out."""
    assert options.prefix is not None
    async with (
        open_client(options.kafka) as client,
        Decisions(client, options.control_topic, options.prefix) as decisions,
    ):
        await _finish(client, decisions)
        yield client, decisions


async def _finish(client: Client, decisions: Decisions) -> None:
    """Commit what the last decision says, and note it; whoever has done part of it before does no harm."""
    decision = decisions.last
    if decision is None or decision.is_finished:
        return
    try:
        await Transactions(client).end_many(decision.transactions, commit=True)
    except PartlyFailed as failed:
        if lost := [name for name, error in failed.errors.items() if error.code in _GONE]:
            raise DecidedLost(decision.work, lost) from failed
        raise
    await decisions.write(decision.finished())


async def _check_open(client: Client, work: Work, transactions: Iterable[OpenTransaction], timeout_ms: int) -> None:
    """A transaction that is not open now cannot be committed: better to learn it before the decision."""
    wanted = {transaction.transactional_id: transaction for transaction in transactions}
    try:
        found = await Transactions(client).describe_many(wanted)
    except PartlyFailed as failed:
        if any(error.code not in _GONE for error in failed.errors.values()):
            raise
        found = failed.done
    is_open = {
        each.transactional_id
        for each in found.values()
        if each.state is TransactionState.ONGOING
        and (each.producer_id, each.producer_epoch)
        == (wanted[each.transactional_id].producer_id, wanted[each.transactional_id].producer_epoch)
    }
    if ended := sorted(wanted.keys() - is_open):
        raise NotOpen(work, ended, timeout_ms)


async def _abort_strays(client: Client, options: WriteOptions) -> None:
    """Abort what attempts left open that lost, or died, and shut them out. If that fails, their time will run out."""
    is_ours = task_id_pattern(options.prefix or "").fullmatch
    try:
        found = await Transactions(client).list(states=[TransactionState.ONGOING])
        await Transactions(client).fence_many(
            [each.transactional_id for each in found if is_ours(each.transactional_id)]
        )
    except KafkaError as error:
        _log.warning("transactions of failed tasks are left to time out", prefix=options.prefix, problem=str(error))


def task_id(prefix: str, partition: int, number: int, attempt: int, batch: int | None) -> str:
    """The transactional id of a task. It changes from batch to batch and back, so that ids are few and yet what was
    decided last and what is written now never share one."""
    return f"{prefix}-{partition}-{number}-{attempt}-{(batch or 0) % 2}"


def task_id_pattern(prefix: str) -> re.Pattern[str]:
    return re.compile(re.escape(prefix) + r"-\d+-\d+-\d+-[01]")
