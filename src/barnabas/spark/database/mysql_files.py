"""A connection to MySQL or MariaDB that sends the server no file but the one that is being loaded.

`LOAD DATA LOCAL` works by a request of the server for a file, and the name is the server's choice. A hostile server can
ask for any file, and after any statement. So the connection compares the name, and sends nothing outside of a load.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pymysql.connections import Connection
from pymysql.err import OperationalError
from pymysql.protocol import MysqlPacket

_REFUSED = 2068
"""The client's error code for a file request that it rejects."""


class LoadingConnection(Connection):
    _file: bytes | None = None

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, local_infile=True)
        self._local_infile = False  # the server knows that files can be loaded, but none is now

    @contextmanager
    def sending(self, file: str) -> Iterator[None]:
        """Let the server have this file."""
        self._file, self._local_infile = file.encode(), True
        try:
            yield
        finally:
            self._file, self._local_infile = None, False

    def _read_packet(self, packet_type: Any = MysqlPacket) -> Any:
        packet: Any = super()._read_packet(packet_type)  # type: ignore[no-untyped-call]
        if self._file is not None and packet.is_load_local_packet():
            asked = packet.get_all_data()[1:]
            if asked != self._file:
                self._force_close()  # type: ignore[attr-defined]
                raise OperationalError(_REFUSED, f"the server asked for the file {asked!r}, which is not being loaded")
        return packet
