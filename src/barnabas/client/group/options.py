"""Options of a group's member, by Kafka's names, and which protocol they ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from barnabas.client.group.assignors import ASSIGNORS
from barnabas.client.options import WrongOption, at_least, one_of

GROUP_PROTOCOLS = ("auto", "classic", "consumer")
DEFAULT_STRATEGY = ("range", "cooperative-sticky")
DEFAULT_SESSION_MS = 45_000
DEFAULT_HEARTBEAT_MS = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """`None` stands for Kafka's default where the option belongs to one of the two protocols alone.

    Whoever sets an option of the classic protocol gets the classic protocol from "auto": the consumer protocol leaves
    these to the broker.
    """

    group_id: str
    group_instance_id: str | None = None
    group_protocol: str = "auto"
    group_remote_assignor: str | None = None
    partition_assignment_strategy: Sequence[str] | None = None
    session_timeout_ms: int | None = None
    heartbeat_interval_ms: int | None = None
    max_poll_interval_ms: int = 300_000
    metadata_max_age_ms: int = 300_000
    client_rack: str | None = None
    default_api_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        if not self.group_id:
            raise WrongOption("group='' is no name of a group")
        one_of("group_protocol", self.group_protocol, GROUP_PROTOCOLS)
        at_least("session_timeout_ms", self.session_ms, 1)
        at_least("heartbeat_interval_ms", self.heartbeat_ms, 1)
        at_least("max_poll_interval_ms", self.max_poll_interval_ms, 1)
        at_least("metadata_max_age_ms", self.metadata_max_age_ms, 1)
        at_least("default_api_timeout_ms", self.default_api_timeout_ms, 0)
        if self.heartbeat_ms >= self.session_ms:
            raise WrongOption(
                f"heartbeat_interval_ms={self.heartbeat_ms} is not below session_timeout_ms={self.session_ms}; "
                "a third of it lets a heartbeat get lost"
            )
        if isinstance(self.partition_assignment_strategy, str) or not self.strategy:
            raise WrongOption("partition_assignment_strategy takes a list of one or more assignors' names")
        for name in self.strategy:
            one_of("partition_assignment_strategy", name, tuple(ASSIGNORS))
        for name in self.classic_only if self.group_protocol == "consumer" else ():
            raise WrongOption(f"{name} belongs to group_protocol='classic'; the broker decides it for 'consumer'")
        if self.group_protocol == "classic" and self.group_remote_assignor is not None:
            raise WrongOption(
                "group_remote_assignor belongs to group_protocol='consumer'; "
                "for 'classic' there is partition_assignment_strategy"
            )

    @property
    def classic_only(self) -> list[str]:
        """The options that were set and that only the classic protocol knows."""
        names = ("partition_assignment_strategy", "session_timeout_ms", "heartbeat_interval_ms")
        return [name for name in names if getattr(self, name) is not None]

    @property
    def strategy(self) -> Sequence[str]:
        return DEFAULT_STRATEGY if self.partition_assignment_strategy is None else self.partition_assignment_strategy

    @property
    def session_ms(self) -> int:
        return DEFAULT_SESSION_MS if self.session_timeout_ms is None else self.session_timeout_ms

    @property
    def heartbeat_ms(self) -> int:
        return DEFAULT_HEARTBEAT_MS if self.heartbeat_interval_ms is None else self.heartbeat_interval_ms
