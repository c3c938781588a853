"""HDFS on the loopback, from Hadoop's own artefacts."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.peers import HOST, QUICK_JVM, ROOT, Server, fetched_jars, free_port, java

HDFS_JARS = ROOT / ".peers" / "hdfs-3.4.2"


class HdfsServer:
    """HDFS of one name node and one data node, each a process that can be killed, stopped and started again alone."""

    def __init__(self, directory: Path, more_settings: Mapping[str, str] | None = None):
        fetched_jars("HDFS", HDFS_JARS)
        self._directory = directory
        self._starts = 0
        self._name_node_http = f"{HOST}:{free_port()}"
        self.url = f"hdfs://{HOST}:{free_port()}"
        settings = {
            "fs.defaultFS": self.url,
            "hadoop.tmp.dir": str(directory / "tmp"),
            "dfs.namenode.name.dir": f"file://{directory / 'name'}",
            "dfs.namenode.http-address": self._name_node_http,
            "dfs.datanode.data.dir": f"file://{directory / 'data'}",
            "dfs.datanode.address": f"{HOST}:{free_port()}",
            "dfs.datanode.ipc.address": f"{HOST}:{free_port()}",
            "dfs.datanode.http.address": f"{HOST}:{free_port()}",
            "dfs.heartbeat.interval": "1",
            "dfs.namenode.safemode.extension": "0",
            "dfs.permissions.enabled": "false",
            "dfs.replication": "1",
            **(more_settings or {}),
        }
        directory.mkdir(parents=True)
        for file in ("core-site.xml", "hdfs-site.xml"):
            (directory / file).write_text(_hadoop_configuration(settings))
        format_storage = self._command("namenode.NameNode", "-format", "-nonInteractive")
        subprocess.run(format_storage, check=True, timeout=180, stderr=subprocess.DEVNULL)
        self.name_node = self._start("namenode.NameNode")
        self.data_node = self._start("datanode.DataNode")
        self._wait_until_serving()

    def restart_data_node(self) -> None:
        """Kill the data node and start it again with the blocks that it has, on the same ports."""
        self.data_node.kill()
        self.data_node = self._start("datanode.DataNode")
        self._wait_until_serving()

    def _command(self, main_class: str, *arguments: str) -> list[str]:
        class_path = f"{self._directory}{os.pathsep}{HDFS_JARS}/*"
        return [java(), *QUICK_JVM, "-cp", class_path, f"org.apache.hadoop.hdfs.server.{main_class}", *arguments]

    def _start(self, main_class: str) -> Server:
        self._starts += 1
        log = self._directory / f"{main_class}-{self._starts}.log"
        return Server(self._command(main_class), log, log)

    def _wait_until_serving(self) -> None:
        """Until the name node knows the blocks of the data node that runs now, and lets them be written."""
        try:
            self.data_node.wait_until(lambda: b"sent block report" in self.data_node.log.read_bytes(), timeout=180)
            self.name_node.wait_until(lambda: not self._is_in_safe_mode(), timeout=180)
        except AssertionError:
            self.stop()
            raise

    def _is_in_safe_mode(self) -> bool:
        query = f"http://{self._name_node_http}/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo"
        with urllib.request.urlopen(query, timeout=10) as answer:
            return bool(json.load(answer)["beans"][0]["Safemode"])

    def stop(self) -> None:
        for node in (self.data_node, self.name_node):
            node.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _hadoop_configuration(settings: Mapping[str, str]) -> str:
    pairs = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items())
    return f"<configuration>{''.join(pairs)}</configuration>"
