"""Small C sources of the lab's own, built with the host's compiler and kept by content."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock

from files import written_beside
from host.process import run

HERE = Path(__file__).parent
ADD_ENTROPY = HERE / "add_entropy.c"
PRELOAD = HERE / "preload.c"
MARK = HERE / "mark.c"
OUTB = HERE / "outb.c"
STATIC_PROGRAM = ("-Os", "-static", "-s", "-Wl,--build-id=none")
SHARED_LIBRARY = ("-O2", "-shared", "-fPIC", "-s")
TIMEOUT_S = 120.0
# A header beside the source.
INCLUDED = re.compile(rb'^#include "([a-z_]+\.h)"$', re.MULTILINE)


def build(
    source: Path,
    flags: Sequence[str],
    cache: Path,
    *,
    tools: str = "",
    beside: Sequence[Path] = (),
) -> Path:
    """Return the built file of ``source``, compiling it if the cache has none.

    ``tools`` is the prefix of another architecture's compiler; ``beside`` are the source's headers,
    and other sources that are linked with it.

    Raises:
        InfraError: there is no compiler, or it failed.
    """
    compiler = f"{tools}gcc"
    built_by = [*([compiler] if tools else []), *flags]
    text = b"".join(_text(file) for file in (source, *beside))
    key = hashlib.sha256(text + " ".join(built_by).encode()).hexdigest()[:16]
    folder = cache / "native"
    folder.mkdir(parents=True, exist_ok=True)
    built = folder / f"{source.stem}-{key}"
    with FileLock(folder / "lock"):
        if not built.exists():
            sources = [str(file) for file in (source, *beside) if file.suffix == ".c"]
            with written_beside(built) as new:
                run([compiler, *flags, "-o", str(new), *sources], timeout_s=TIMEOUT_S)
        # The newest is kept in use; others are removed when the cache is cleaned.
        os.utime(built)
    return built


def digest(source: Path) -> str:
    """SHA-256 of a source with the headers beside it that it includes."""
    return hashlib.sha256(_text(source)).hexdigest()


def _text(source: Path) -> bytes:
    text = source.read_bytes()
    headers = [source.parent / name.decode() for name in INCLUDED.findall(text)]
    return b"".join([text, *(header.read_bytes() for header in headers)])
