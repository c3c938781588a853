"""For processes under libfaketime, which calls it an error (EINVAL) to sleep until a time that has passed.

To the kernel that sleep is over.
"""

from __future__ import annotations

import errno
import time
from typing import SupportsIndex

_sleep = time.sleep


def sleep(seconds: float | SupportsIndex, /) -> None:
    try:
        _sleep(seconds)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise


time.sleep = sleep
