"""Series that travel: out of the cache into a folder, and from such a folder into a cache."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from errors import SeriesError
from experiment.spec import SeriesSpec
from kernels.intake import RECORDS, kept_folder, key_of, patches_of
from kernels.series import LARGEST, read_patch
from results import door
from text import clean


def copy_out(spec: SeriesSpec, into: Path, *, checkout: Path, cache: Path) -> None:
    """Copy the patches of a series, and their record where they were kept, into a folder.

    Raises:
        UsageError, SeriesError, InfraError: as ``kernels.intake.keep``.
    """
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    for patch in patches_of(spec, checkout=checkout, cache=cache):
        shutil.copyfile(patch, into / patch.name)
    if spec.kept:
        shutil.copyfile(kept_folder(cache, spec.kept) / RECORDS, into / RECORDS)


def adopt(spec: SeriesSpec, folder: Path, *, cache: Path) -> SeriesSpec:
    """The same series, with the patches that lie in ``folder`` under its key in the cache.

    A series that is a plain folder is this folder from now on.  What is in the cache
    already stays.

    Raises:
        SeriesError: the patches are not those of the key, or one does what no patch may.
        StoreError: a file in the folder, which may be a stranger's, is a link or no plain file.
    """
    names = [name for name in door.names(folder) if name.endswith(".patch")]
    files = [(name, door.read(folder, name, LARGEST)) for name in names]
    for name in names:
        read_patch(folder / name)
    if not spec.kept:
        return spec.model_copy(update={"path": str(folder.resolve())})
    place = kept_folder(cache, spec.kept)
    if place.is_dir():
        return spec
    if key_of(files) != spec.kept or not door.exists(folder, RECORDS):
        raise SeriesError(
            f"holds another series than that of key {spec.kept}",
            where=clean(str(folder)),
            next_step="name the series again, in a new session",
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=".new-", dir=place.parent))
    try:
        for name, content in (*files, (RECORDS, door.read(folder, RECORDS))):
            door.write(beside, name, content)
        beside.rename(place)
    except OSError:
        # Another lab process was first, with the same patches.
        if not place.is_dir():
            raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return spec
