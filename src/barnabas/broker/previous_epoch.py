"""The epoch of the process before this one, if all that it had written is still there.

That is so if it has closed its directories, which then hold its epoch (`.kafka_cleanshutdown`, KIP-966), and also if
it was merely killed: what a process has written stays in the page cache, until the machine itself goes down. The kernel
has another boot id then than the one that is noted in every directory, beside the epoch:

    .barnabas_boot      {"bootId":"8c1f...","brokerEpoch":7}

A directory that is new, or is missing, has lost what the broker had in it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.storage.checkpoints import UNKNOWN_BROKER_EPOCH

if TYPE_CHECKING:
    from barnabas.core.seams import Disk
    from barnabas.storage.directory import LogDirectory

_FILE = ".barnabas_boot"


def previous_epoch(disk: Disk, directories: Sequence[LogDirectory], boot_id: str) -> int:
    """-1 if something may be lost, or there was no process before. An empty boot id is not known, and matches none."""
    epochs = {_epoch_of(disk, directory, boot_id) for directory in directories}
    return epochs.pop() if len(epochs) == 1 else UNKNOWN_BROKER_EPOCH


def note_epoch(disk: Disk, directory: LogDirectory, boot_id: str, epoch: int) -> None:
    """From now on this process is the one before the next."""
    note = json.dumps({"bootId": boot_id, "brokerEpoch": epoch}, separators=(",", ":")).encode()
    disk.replace(f"{directory.path}/{_FILE}", note)


def forget_epoch(disk: Disk, directory: LogDirectory) -> None:
    """What a failing disk has written may be lost, whatever it says later; OSError if it does not let us say so."""
    disk.remove(f"{directory.path}/{_FILE}")


def _epoch_of(disk: Disk, directory: LogDirectory, boot_id: str) -> int:
    if directory.is_offline:
        return UNKNOWN_BROKER_EPOCH
    if directory.clean_epoch is not None:
        return directory.clean_epoch
    path = f"{directory.path}/{_FILE}"
    if not boot_id or not disk.exists(path):
        return UNKNOWN_BROKER_EPOCH
    try:
        noted = json.loads(disk.read_bytes(path))
        return int(noted["brokerEpoch"]) if noted["bootId"] == boot_id else UNKNOWN_BROKER_EPOCH
    except (OSError, ValueError, KeyError, TypeError):  # cut short, or not ours
        return UNKNOWN_BROKER_EPOCH
