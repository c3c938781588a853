"""What is compiled: the record codec always, the broker's hot path in a release.

Everything else about the package stands in pyproject.toml.

The codec: 13 modules of `barnabas.records` become the extension `barnabas.records._codec_c`. It is optional: where
it cannot be built, a notice is printed and the codec runs as plain Python. With BARNABAS_REQUIRE_COMPILED=1 that is an
error instead. Cython gets the sources joined, with Cython's own imports in place of theirs, and with the digest by
which `barnabas.records.engine` tells whether the extension still fits them.

The hot path: with BARNABAS_COMPILE_BROKER=1, mypyc compiles the modules that produce and group requests pass, and those
that a producer's records pass, as they are and under their own names. Such a wheel is for use, not for work on the
sources: edits would not run beside it.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

MODULE = "barnabas.records._codec_c"
CODECS = (
    "codec",
    "column_codec",
    "row_codec",
    "compaction_codec",
    "append_codec",
    "utf8",
    "value_sinks",
    "json_scanner",
    "value_numbers",
    "json_codec",
    "csv_codec",
    "avro_decoder",
    "avro_codec",
)
SOURCES = [Path("src/barnabas/records", name + ".py") for name in CODECS]
MARK = "# The build puts other imports in place of what stands above (see setup.py).\n"
PREAMBLE = """
from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable
from hashlib import blake2s

import cython
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cython.cimports.libc.string import memcmp, memcpy

from barnabas.records.batch import HEADER_SIZE, LOG_APPEND_TIME, NO_TIMESTAMP, BatchHeader, CorruptBatch
from barnabas.records.record import Header, Record

Bytes = cython.typedef(cython.const[cython.uchar][::1])
Doubles = cython.typedef(cython.const[cython.double][::1])
Int32s = cython.typedef(cython.const[cython.int][::1])
Int64s = cython.typedef(cython.const[cython.longlong][::1])
MutableBytes = cython.typedef(cython.uchar[::1])
MutableDoubles = cython.typedef(cython.double[::1])
MutableInt32s = cython.typedef(cython.int[::1])
MutableInt64s = cython.typedef(cython.longlong[::1])
"""
DIRECTIVES = {
    "language_level": "3",
    "boundscheck": False,  # the codec checks every length itself
    "wraparound": False,
    "initializedcheck": False,
}


def digest() -> str:
    """As `barnabas.records.engine` computes it."""
    return hashlib.sha256(b"".join(source.read_bytes() for source in SOURCES)).hexdigest()


HOT_PATH = [
    "wire/frames.py", "wire/headers.py",
    "records/batch.py", "records/builder.py",
    "storage/boundaries.py", "storage/log.py", "storage/log_config.py", "storage/offset_index.py",
    "storage/producer_state.py", "storage/results.py", "storage/segment.py", "storage/segments.py",
    "storage/time_index.py", "storage/validation.py",
    "net/server.py",
    "coordinator/classic_group.py", "coordinator/classic_members.py", "coordinator/classic_state.py",
    "coordinator/group_shard.py", "coordinator/membership.py", "coordinator/offset_requests.py",
    "coordinator/offsets.py", "coordinator/records.py", "coordinator/timers.py",
    "cluster/isr.py", "cluster/partition.py", "cluster/replicas.py", "cluster/waiters.py",
    "broker/coordinator_runtime.py", "broker/coordinators.py", "broker/dispatch.py", "broker/metrics.py",
    "broker/handlers/k00_produce.py", "broker/handlers/k08_offset_commit.py", "broker/handlers/k11_join_group.py",
    "broker/handlers/k12_heartbeat.py", "broker/handlers/k14_sync_group.py",
    "client/session.py", "client/produce/accumulator.py", "client/produce/buffer_memory.py",
    "client/produce/partition_queue.py", "client/produce/posting.py", "client/produce/producer_topics.py",
]  # fmt: skip


class BuildCodec(build_ext):
    def build_extension(self, extension: Extension) -> None:
        if extension.name == MODULE:
            extension.sources = [self.translate()]
        super().build_extension(extension)

    def translate(self) -> str:
        """The path of the C source, made anew only if the codec has changed."""
        try:
            from Cython.Build import cythonize
        except ImportError as error:
            raise CompileError(f"Cython is missing, so {MODULE} cannot be built: {error}") from error
        text = PREAMBLE + f'SOURCE_DIGEST = "{digest()}"\n'
        for source in SOURCES:
            _, mark, body = source.read_text().partition(MARK)
            if not mark:
                raise SystemExit(f"{source} lacks the line at which its compiled part begins: {MARK}")
            text += body
        copy = Path(self.build_temp, MODULE.rpartition(".")[2] + ".py")
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists() or copy.read_text() != text:
            copy.write_text(text)
        (translated,) = cythonize(Extension(MODULE, [str(copy)]), compiler_directives=DIRECTIVES, quiet=True)
        return str(translated.sources[0])


EXTENSION = Extension(
    MODULE,
    [str(source) for source in SOURCES],
    optional=os.environ.get("BARNABAS_REQUIRE_COMPILED") != "1",
    # Compiles in 7 s where -O3 with debug symbols takes 16 s; the loops ran within 5 % of each other.
    extra_compile_args=["-O2", "-g0"] if os.name == "posix" else [],
)


def hot_path() -> list[Extension]:
    if os.environ.get("BARNABAS_COMPILE_BROKER") != "1":
        return []
    from mypyc.build import mypycify

    level = os.environ.get("BARNABAS_COMPILE_LEVEL", "2")  # a compiler takes a minute less at 0
    return mypycify([f"src/barnabas/{name}" for name in HOT_PATH], opt_level=level, debug_level="0")


setup(ext_modules=[EXTENSION, *hot_path()], cmdclass={"build_ext": BuildCodec})
