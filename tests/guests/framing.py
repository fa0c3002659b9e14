"""Results framed as the agent frames them."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping


def framed(payload: bytes) -> bytes:
    """``payload`` behind its header line."""
    # agent.sh: set -- $(wc -c) $(sha256sum FILE); sha256sum's file name is $3, not sent.
    return f"TWINBOOT1 {len(payload)} {hashlib.sha256(payload).hexdigest()}\n".encode() + payload


def archived(files: Mapping[str, bytes]) -> bytes:
    """A tar of ``files``, named as ``tar -cf - .`` names them."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive:
        archive.addfile(folder("./"))
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def folder(name: str) -> tarfile.TarInfo:
    """A folder's member."""
    member = tarfile.TarInfo(name)
    member.type = tarfile.DIRTYPE
    return member


def sent(files: Mapping[str, bytes]) -> bytes:
    """What arrives when the agent sends ``files``."""
    return framed(gzip.compress(archived(files), compresslevel=1, mtime=0))
