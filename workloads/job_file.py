"""fio's own job files under ``workloads/jobs/``: one source for the lab and for people.

Read as fio's ``init.c`` reads them, so that a file does what ``fio FILE`` does: comments end lines,
every ``[global]`` holds for the sections below it, ``include`` takes another file's lines.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from errors import SpecError
from experiment.frozen import as_name
from results import door
from results.door import StoreError
from text import words

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


JOBS = Path(__file__).parent / "jobs"
GLOBAL, DEFAULT = "global", "default"
# A job file that runs by hand holds these as well; in the lab they are the guest's, the
# experiment's or the seed's, and each section is a run of its own, which waits for none.
LAB_GIVES = words(
    "numjobs size runtime time_based ramp_time group_reporting directory loops stonewall "
    "new_group wait_for"
)
# Two names of one option: the second is the one that fio prints.
ALIASES = dict(
    pair.split("=")
    for pair in words(
        "readwrite=rw blocksize=bs blockalign=ba blocksize_range=bsrange iodepth_batch_submit="
        "iodepth_batch blocksize_unaligned=bs_unaligned iodepth_batch_complete="
        "iodepth_batch_complete_min io_limit=io_size fill_fs=fill_device fileoffset=offset "
        "nr_files=nrfiles timeout=runtime iomem=mem ratemin=rate_min ratecycle=rate_cycle "
        "wait_for_previous=stonewall disable_bw=disable_bw_measurement ss=steadystate "
        "ss_dur=steadystate_duration ss_ramp=steadystate_ramp_time"
    )
)
# On a command line fio knows these behind their engine only; in a file it reads that first.
OF_ENGINES = frozenset(
    words(
        "thp hipri hipri_percentage uncached nowait userspace_reap cmdprio_percentage "
        "cmdprio_class cmdprio cmdprio_bssplit fixedbufs registerfiles sqthread_poll "
        "sqthread_poll_cpu nonvectored force_async cmd_type stat_type donorname inplace"
    )
)
# What fio puts in their places is the guest's (``Workload.in_guest``).
KEYWORDS = ("$pagesize", "$ncpus", "$mb_memory")
CALCULATED = "bc"
REFUSED = {
    "$mb_memory": "what a guest's kernel leaves is not known before it boots; write a number",
    CALCULATED: "fio has bc calculate this, which no guest has; write the result",
    "read_iolog": "the guest has no such file; describe the I/O by rw, bs and the like",
    "unified_rw_reporting": "reads and writes are told apart in every result; leave it out",
}
INCLUDE, DEEPEST = "include", 8
# Of one with all that it includes; those that people publish have some KiB.
LARGEST, MOST_FILES = 256 << 10, 100
BLANKS = " \t\n\v\f\r"
COMMENT, OPERATOR = re.compile("[;#]"), re.compile(r"[-+*/]")
VARIABLE, OWN = re.compile(r"\$\{([^}]+)\}"), "FIO_"


class JobSection(NamedTuple):
    """One job: fio arguments, and ``FILE:LINE [SECTION]`` of each option and of ``name``."""

    fio: tuple[str, ...]
    places: Mapping[str, str]


class _Option(NamedTuple):
    value: str | None
    place: str


def read_job_file(path: Path, within: Path | None = None) -> dict[str, JobSection]:
    """The sections by the names of their variants (:func:`variant_name`), in the file's order.

    A file that is not named by the user is below ``within``.
    A job has the options of every ``[global]`` above it, then its own.  What the lab gives itself
    (:data:`LAB_GIVES`) is left out.  Raises SpecError: the file cannot be read, fio would refuse
    it, it has no section to run, or it holds what no run of the lab can do; one line for each
    mistake, with its place.
    """
    mistakes: list[str] = []
    shared: dict[str, _Option] = {}
    sections: dict[str, JobSection] = {}
    # Of the section that is being read: its title, its first line and its options.
    title, place = "", ""
    options: dict[str, _Option] | None = None

    def end() -> None:
        if options is None or options is shared:
            return
        given = dict(options)
        own = given.pop("name", None)
        if "ioengine" in given and not OF_ENGINES.isdisjoint(given):
            given = {"ioengine": given["ioengine"], **given}
        arguments = (
            f"--{key}" if option.value is None else f"--{key}={option.value}"
            for key, option in given.items()
        )
        places = {key: option.place for key, option in given.items()}
        name = own.value if own and own.value else title
        sections[variant_name(title, sections)] = JobSection(
            (f"--name={name}", *arguments), {"name": f"{place} [{title}]", **places}
        )

    top = within or path.parent
    if not path.is_relative_to(top):
        raise SpecError([f"{path}: is no name below {top}"])
    name = path.relative_to(top).as_posix()
    for at, text in _lines(top, name, str(path), mistakes, [], is_named=not within):
        if text.startswith("["):
            end()
            title, place = text[1:-1], at
            # fio compares no more of the title than this.
            options = shared if title.startswith(GLOBAL) else dict(shared)
            # One of [global] is nobody's.
            options.pop("name", None)
        elif options is None:
            mistakes.append(f"{at}: found {text!r} before the first [section]")
            break
        else:
            _add_option(text, options, f"{at} [{title}]", mistakes)
    end()
    if not sections and not mistakes:
        mistakes = [f"{path}: no section besides [{GLOBAL}]: nothing to run"]
    if mistakes:
        raise SpecError(mistakes)
    return sections


def variant_name(title: str, taken: Collection[str] = ()) -> str:
    """What experiments call a section: ``rnd4k-q32t16``; by number if empty or ``taken``."""
    name = as_name(title)
    return f"section-{len(taken) + 1}" if name in ("", DEFAULT) or name in taken else name


def _lines(
    top: Path,
    name: str,
    named: str,
    mistakes: list[str],
    read: list[int],
    depth: int = 0,
    *,
    is_named: bool = False,
) -> Iterator[tuple[str, str]]:
    """Place and text of a file's lines, and of included ones, without blanks and comments.

    ``name`` is below ``top``; ``read`` are the sizes of the files so far.  One that ``is_named`` by
    the user may be a link.
    """
    try:
        if not is_named:
            data = door.read(top, name, LARGEST)
        else:
            with door.opened_named(top / name, LARGEST) as file:
                data = file.read(LARGEST)
        text = data.decode()
    except (StoreError, OSError, ValueError) as error:
        known = ", ".join(file.name for file in sorted(JOBS.glob("*.fio")))
        why = error.what if isinstance(error, StoreError) else " ".join(str(error).split())
        mistakes.append(f"{named}: no job file that can be read: {why}; known: {known}")
        return
    read.append(len(data))
    if sum(read) > LARGEST or len(read) > MOST_FILES:
        mistakes.append(f"{named}: more than {MOST_FILES} files, or {LARGEST >> 10} KiB of them")
        return
    for number, raw in enumerate(text.split("\n"), start=1):
        place, line = f"{named}:{number}", COMMENT.split(raw)[0].strip(BLANKS)
        if mistakes and depth:
            return
        if line.startswith("[") and depth:
            mistakes.append(f"{place}: a section in a file that another one includes")
            return
        if line.startswith(INCLUDE):
            if depth == DEEPEST:
                mistakes.append(f"{place}: more than {DEEPEST} files include each other")
                return
            # fio passes over one character, whatever it is.
            included = line[len(INCLUDE) + 1 :].strip(BLANKS)
            within = f"{name.rpartition('/')[0]}/{included}".removeprefix("/")
            if included.startswith("/"):
                within = included  # which is no name of a file below
            where = f"{place}: {Path(included).name}"
            yield from _lines(top, within, where, mistakes, read, depth + 1)
        elif line:
            yield place, line


def _add_option(line: str, options: dict[str, _Option], place: str, mistakes: list[str]) -> None:
    """Put one option among those of its section, where a run can have it."""
    given = {name: value for name, value in os.environ.items() if name.startswith(OWN)}
    text = VARIABLE.sub(lambda word: given.get(word[1], word[0]), line)
    key, is_given, value = text.partition("=")
    key = ALIASES.get(key.rstrip(BLANKS), key.rstrip(BLANKS))
    if key in LAB_GIVES:
        return
    if unset := VARIABLE.search(text):
        why = "is not set in this environment"
        if not unset[1].startswith(OWN):  # which may be a password, and would be on record
            why = f"is of this host's environment, of which {OWN}... alone is put in; name it so"
        mistakes.append(f"{place}: {line}: {unset[1]} {why}")
    refused = [key, *(word for word in REFUSED if word in value and word.startswith("$"))]
    if any(word in value for word in KEYWORDS) and OPERATOR.search(value):
        refused.append(CALCULATED)
    mistakes += [f"{place}: {line}: {REFUSED[word]}" for word in refused if word in REFUSED]
    if key == "filename" and key in options:
        # fio adds to the files that it has, also to those of [global].
        value = f"{options[key].value}:{value}"
    options[key] = _Option(value if is_given else None, place)
