"""Listeners: where a broker accepts connections, and what address it tells its clients for each.

    listeners=CLIENTS://0.0.0.0:9092,BROKERS://10.0.0.7:9093
    advertised.listeners=CLIENTS://kafka.example.org:9092

A listener's name is looked up in `listener.security.protocol.map`; the names of the protocols themselves are there from
the start. A port may be 0 until the broker has bound it, so the advertised addresses are worked out afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from barnabas.core.broker_keys import SECURITY_PROTOCOLS, UNSERVED_SECURITY_PROTOCOLS
from barnabas.core.config import ConfigError

_ENDPOINT = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)://(?:\[(?P<v6>[0-9A-Fa-f:.%\w]*)\]|(?P<host>[\w.%-]*)):(?P<port>[0-9]{1,5})"
)
EVERY_INTERFACE = ("", "0.0.0.0", "::")


class Endpoint(NamedTuple):
    name: str  # upper case: Kafka does not distinguish
    host: str  # empty: every interface
    port: int  # 0: a free one
    security_protocol: str

    def __str__(self) -> str:
        return f"{self.name}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def parse_protocol_map(text: str) -> dict[str, str]:
    """`NAME:PROTOCOL,...` of listener.security.protocol.map."""
    protocols: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = (part.strip().upper() for part in pair.partition(":"))
        if not colon or not name or protocol not in SECURITY_PROTOCOLS + UNSERVED_SECURITY_PROTOCOLS:
            known = ", ".join(SECURITY_PROTOCOLS + UNSERVED_SECURITY_PROTOCOLS)
            raise ConfigError(f"listener.security.protocol.map: '{pair}' is not NAME:PROTOCOL with one of {known}")
        if name in protocols:
            raise ConfigError(f"listener.security.protocol.map names listener '{name}' twice")
        protocols[name] = protocol
    return protocols


def parse_endpoints(key: str, texts: Iterable[str], protocols: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """The endpoints that a key lists, in order; `key` is for the errors."""
    endpoints: dict[str, Endpoint] = {}
    for text in texts:
        match = _ENDPOINT.fullmatch(text)
        if match is None or int(match["port"]) > 65_535:
            raise ConfigError(f"{key}: '{text}' is not NAME://host:port with a port from 0 to 65535")
        name = match["name"].upper()
        protocol = protocols.get(name)
        if protocol is None:
            hint = f"add '{name}:PLAINTEXT' to listener.security.protocol.map"
            raise ConfigError(f"{key}: nothing says which security protocol listener '{name}' speaks; {hint}")
        if protocol not in SECURITY_PROTOCOLS:
            served = ", ".join(SECURITY_PROTOCOLS)
            raise ConfigError(
                f"{key}: listener '{name}' asks for {protocol}, which is not served yet; served: {served}"
            )
        if name in endpoints:
            raise ConfigError(f"{key} names listener '{name}' twice")
        endpoints[name] = Endpoint(name, match["v6"] or match["host"] or "", int(match["port"]), protocol)
    return tuple(endpoints.values())


def check_ports(listeners: Sequence[Endpoint]) -> None:
    """No two listeners may claim the same port of the same interface."""
    for one, other in combinations(listeners, 2):
        overlap = one.host == other.host or one.host in EVERY_INTERFACE or other.host in EVERY_INTERFACE
        families = {one.host, other.host} == {"0.0.0.0", "::"}  # one port for both versions of IP is no clash
        if one.port and one.port == other.port and overlap and not families:
            raise ConfigError(f"listeners: {one} and {other} claim the same port")


def check_advertised(advertised: Iterable[Endpoint], listeners: Iterable[Endpoint]) -> None:
    names = [listener.name for listener in listeners]
    for endpoint in advertised:
        if endpoint.name not in names:
            raise ConfigError(
                f"advertised.listeners: '{endpoint.name}' is not in listeners, which has {', '.join(names)}"
            )
        if endpoint.host in EVERY_INTERFACE:
            raise ConfigError(f"advertised.listeners: {endpoint} needs an address that a client can connect to")


def advertise(bound: Iterable[Endpoint], advertised: Iterable[Endpoint], hostname: str) -> tuple[Endpoint, ...]:
    """What clients are told for each listener, once it is bound: what was asked for, else the bound address itself.

    Port 0 stands for the port that was bound, and every interface for the machine's own name.
    """
    asked = {endpoint.name: endpoint for endpoint in advertised}
    told = []
    for listener in bound:
        endpoint = asked.get(listener.name, listener)
        host = hostname if endpoint.host in EVERY_INTERFACE else endpoint.host
        told.append(endpoint._replace(host=host, port=endpoint.port or listener.port))
    return tuple(told)
