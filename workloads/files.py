"""Which files a phase's fio works on: on the file system under test, and laid out before it.

A file with another name than those is on the guest's own root, in memory: fio would make it,
and what is measured would be another file system.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

# Where the file system is in a guest, and the file of jobs that name none.
MOUNT = "/mnt"
SHARED_FILE = f"{MOUNT}/test.img"
PER_JOB = "data.$jobnum.$filenum"
SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
# Engines that read and write no file.
# Of those that change files and neither read nor write them nothing need be seen afterwards.
NO_DATA = ("ftruncate", "filecreate", "filestat", "filedelete", "falloc", "e4defrag")
NO_FILE = ("null", "cpuio", "net", "netsplice", "exec", "rdma", "rados", "rbd", "nbd", "gfapi")


def options_of(fio: Iterable[str]) -> dict[str, str]:
    """The options of a command line by name, the last one where several are given."""
    pairs = (argument.removeprefix("--").partition("=") for argument in fio)
    return {name: value for name, _, value in pairs}


def names_of(fio: Sequence[str]) -> tuple[str, ...]:
    """The files that a command line names; fio parts them by colons that no backslash precedes."""
    values = [word.partition("=")[2] for word in fio if word.startswith("--filename=")]
    parts = (part for value in values for part in re.split(r"(?<!\\):", value))
    return tuple(part.replace("\\:", ":").strip() for part in parts if part)


def placed(fio: Sequence[str], *, file_per_job: bool) -> tuple[str, ...]:
    """The arguments of a job file with its files in the file system under test.

    There fio is run by hand in a folder of that file system, so a relative name is one of it; jobs
    without a name work on the file that the lab lays out, or each on its own.
    """
    names = names_of(fio)
    if file_per_job:
        formats = () if "filename_format" in options_of(fio) else (f"--filename_format={PER_JOB}",)
        return (*fio, *formats, f"--directory={MOUNT}")
    if not names:
        return (*fio, f"--filename={SHARED_FILE}")
    within = [str(PurePosixPath(MOUNT, name)).replace(":", "\\:") for name in names]
    return tuple(
        f"--filename={':'.join(within)}" if argument.startswith("--filename=") else argument
        for argument in fio
    )


def laid_out(commands: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """The files that are there before the first of these phases, each once."""
    return tuple(dict.fromkeys(name for fio in commands for name in names_of(fio))) or (
        SHARED_FILE,
    )


def elsewhere(fio: Sequence[str], *, file_per_job: bool) -> Iterator[tuple[str, str]]:
    """What would be read or written elsewhere: the option, and what is wrong with it."""
    options, names = options_of(fio), names_of(fio)
    engine = options.get("ioengine", "")
    if engine in NO_FILE:
        yield "ioengine", f"{engine} reads and writes no file; nothing of a file system is measured"
    if "opendir" in options:
        yield "opendir", "the files of a folder are not laid out; name files by filename"
    if file_per_job and names:
        yield "filename", "with file_per_job each job has a file of its own; leave one of them out"
    elif file_per_job:
        if options.get("directory") != MOUNT:
            yield "directory", f"the file system under test is in {MOUNT}: --directory={MOUNT}"
    elif not names:
        yield "filename", f"no file is named, and fio's own would be elsewhere: {SHARED_FILE}"
    for name in () if file_per_job else names:
        path = PurePosixPath(options.get("directory", "/") + "/" + name)
        if ".." in path.parts or path.parent != PurePosixPath(MOUNT):
            yield (
                "filename",
                f"{name} is not in {MOUNT}, where the file system under test is and files are laid "
                f"out; name it {MOUNT}/{path.name}",
            )
        elif not SAFE.fullmatch(path.name):
            yield "filename", f"{name}: letters, digits, dots, dashes and + are wanted in its name"


def place_of(places: Mapping[str, str], words: str) -> str:
    """Where what fio complains of is written: its option's line, else that of the job."""
    named = (
        place
        for option, place in places.items()
        if option != "name" and re.search(rf"(?<![\w-])(--)?{re.escape(option)}['=>]", words)
    )
    return next(named, places.get("name", ""))
