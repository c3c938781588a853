"""Compiles the record codec: `src/barnabas/records/codec.py` becomes the extension `barnabas.records._codec_c`.

Everything else about the package stands in pyproject.toml. The extension is optional: where it cannot be built, a
notice is printed and the codec runs as plain Python. With BARNABAS_REQUIRE_COMPILED=1 that is an error instead.

Cython gets a copy of the source under the name of the extension, in which the stand-in for Cython has given way to
Cython itself, and which carries the digest of its source.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

SOURCE = Path("src/barnabas/records/codec.py")
MODULE = "barnabas.records._codec_c"

REPLACEMENTS = {
    "from barnabas.records import uncompiled as cython\n": """
import cython
from cython.cimports.libc.string import memcpy

Bytes = cython.typedef(cython.const[cython.uchar][::1])
MutableBytes = cython.typedef(cython.uchar[::1])
Int32s = cython.typedef(cython.const[cython.int][::1])
Int64s = cython.typedef(cython.longlong[::1])
""",
    "from barnabas.records.uncompiled import Bytes, Int32s, Int64s, MutableBytes, memcpy\n": "",
    'SOURCE_DIGEST = ""': f'SOURCE_DIGEST = "{hashlib.sha256(SOURCE.read_bytes()).hexdigest()}"',
}
DIRECTIVES = {
    "language_level": "3",
    "boundscheck": False,  # codec.py checks every length itself
    "wraparound": False,
    "initializedcheck": False,
}


class BuildCodec(build_ext):
    def build_extension(self, extension: Extension) -> None:
        extension.sources = [self.translate()]
        super().build_extension(extension)

    def translate(self) -> str:
        """The path of the C source, made anew only if the codec has changed."""
        try:
            from Cython.Build import cythonize
        except ImportError as error:
            raise CompileError(f"Cython is missing, so {MODULE} cannot be built: {error}") from error
        text = SOURCE.read_text()
        for plain, compiled in REPLACEMENTS.items():
            if text.count(plain) != 1:
                raise SystemExit(f"{SOURCE} must contain this line once, for the build replaces it: {plain!r}")
            text = text.replace(plain, compiled)
        copy = Path(self.build_temp, MODULE.rpartition(".")[2] + ".py")
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists() or copy.read_text() != text:
            copy.write_text(text)
        (translated,) = cythonize(Extension(MODULE, [str(copy)]), compiler_directives=DIRECTIVES, quiet=True)
        return str(translated.sources[0])


setup(
    ext_modules=[Extension(MODULE, [str(SOURCE)], optional=os.environ.get("BARNABAS_REQUIRE_COMPILED") != "1")],
    cmdclass={"build_ext": BuildCodec},
)
