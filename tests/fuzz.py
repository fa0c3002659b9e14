"""What reads a mail, a guest or somebody's file, with damaged versions of real inputs.

The same inputs each time: a number is the seed of each.  Nothing here knows a format; what finds
most is a real input with a few pieces taken out, doubled, or replaced by what parsers trip over.
"""

import bz2
import gzip
import json
import random
import tarfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import BaseModel

from analysis.many import compare_session
from errors import LabError
from experiment.load import load, load_experiment
from guests import channel
from guests.exact import Outcome
from guests.probe import counts
from history import wording
from history.changes import changes_of
from history.ingest import entry_of
from history.policy import Policy, load_known
from history.store import HistoryStore
from kernels import addresses, blame, btf, linetable, symbols, vmlinux
from kernels.diff import read_diff
from kernels.intake import read_series
from kernels.mail import as_patch, read_mail, read_mails
from kernels.series import read_patch, reverted
from queues import page as queue_page
from queues.store import QueueEntry, QueueStore
from queues.watch import read_posted
from reports import forms
from results.session import open_session
from runs import resolved
from runs.archive import unpack
from runs.fleet.parcel import Answer, unpacked
from runs.repro import read_archive
from runs.request import Request
from tests.analysis import counts_factory, factory
from tests.analysis.measured import measured
from tests.guests.probe.test_counts import LOCKS, MISSES, ROWS, written
from tests.kernels.posting import ODD, UNREADABLE, mbox
from tests.kernels.test_blame import COMPILER
from tests.kernels.test_btf import SOURCE, types_of
from tests.kernels.test_linetable import WORK
from tests.queues.archive import series
from tests.values import spaced
from tests.waiting import completed
from text import is_unfit
from workloads import check, metrics, parse
from workloads.spec import load_catalogue

CHECKOUT = Path(__file__).resolve().parent.parent
RECORDED = CHECKOUT / "tests/workloads/recorded"
# What numbers, names and brackets are replaced by.
ODD_PIECES = (
    *b"0 -1 1e999 NaN Infinity 0ms -2000ms ../../ %s , null true [] {} \" ' \\ =?utf-8?q?=".split(),
    *(b"", b"9" * 401, b"9" * 5000, b"(" * 3000, b"[" * 3000, b'{"a":' * 3000),
    *(b"\0", b"\xff\xfe", b"\xd9\xa3", b"\xed\xb2\x80", b"\r", b"\n", b"\n\n"),
    *(b"=?utf-\xd9\xa3?q?x?=", b"\x1b]52;", b"\xe2\x80\xae"),
)


# Values that have the right type, and are no run's.
ODD_VALUES: tuple[Any, ...] = (
    *(0, 1, -1, 2, 7, 10**6, 2**31, 2**62, -(2**62), 10**400),
    *(0.0, -0.0, -1.0, 0.5, 1e30, -1e30, 1e-30, 5e-324, 1e16),
    *("", "base", "patched", "4k", "filemap-4k", "/etc/passwd", "../../x", "x" * 5000),
    *("\u202e", "\x1b]0;x\x07", "<script>", "%s{}", "2026-13-45", "9999-12-31T00:00:00Z"),
    *(True, False, None, [], {}, [0], {"": 0}, [[]], [None], ["base", "base"]),
)


@dataclass(frozen=True)
class Target:
    """A reader, real inputs for it, and how much of the usual number it is worth.

    Readers of files are given the bytes in a file.  ``share`` is less for those that take more
    CPU time each.  Of what ``is_json`` the values are altered, too, and not only bytes damaged.
    """

    name: str
    read: Callable[[bytes, Path], object]
    inputs: Callable[[], Sequence[bytes]]
    share: float = 1.0
    is_json: bool = False

    def input(self, inputs: Sequence[bytes], number: int) -> bytes:
        """The ``number``-th input for it, made of these real ones."""
        change = altered if self.is_json and number % 2 else damaged
        return change(inputs[number % len(inputs)], number)


def damaged(data: bytes, number: int) -> bytes:
    """A version of ``data`` with one to four pieces of it changed: the ``number``-th."""
    dice = random.Random(number)
    for _ in range(dice.randint(1, 4)):
        start = dice.randrange(len(data) + 1)
        end = min(len(data), start + dice.choice((0, 1, 1, 2, 4, 8, 16, 64, 256)))
        data = _changed(data, start, end, dice)
    return data


def _changed(data: bytes, start: int, end: int, dice: random.Random) -> bytes:
    before, piece, after = data[:start], data[start:end], data[end:]
    match dice.randrange(7):
        case 0 | 1:
            return before + dice.choice(ODD_PIECES) + after
        case 2:
            return before + after
        case 3:
            return before + piece * dice.choice((1, 2, 50)) + after
        case 4:
            return before + bytes(byte ^ 1 << dice.randrange(8) for byte in piece) + after
        case 5:
            return before
    return _number(data, dice)


def _number(data: bytes, dice: random.Random) -> bytes:
    """With one of its runs of digits replaced."""
    start = dice.randrange(len(data) + 1)
    while start < len(data) and not data[start : start + 1].isdigit():
        start += 1
    end = start
    while end < len(data) and data[end : end + 1].isdigit():
        end += 1
    return data[:start] + dice.choice(ODD_PIECES) + data[end:]


def altered(data: bytes, number: int) -> bytes:
    """A version of lines of JSON in which one to three values are others: the ``number``-th.

    What comes out is what a stranger writes who knows the form.
    """
    dice = random.Random(number)
    lines = data.split(b"\n")
    for _ in range(dice.randint(1, 3)):
        at = dice.choice([at for at, line in enumerate(lines) if line])
        value = json.loads(lines[at])
        _alter(value, dice)
        lines[at] = json.dumps(value).encode()
    return b"\n".join(lines)


def _alter(value: Any, dice: random.Random) -> None:
    """Replace something in a value: walk down until the dice say to stop."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = dice.choice(keys)
        if isinstance(value[key], dict | list) and value[key] and dice.random() < 0.9:
            value = value[key]
            continue
        old = value[key]
        others = [each for each in ODD_VALUES if type(each) is type(old)] or list(ODD_VALUES)
        if dice.random() < 0.2:
            others = list(ODD_VALUES)
        value[key] = dice.choice(others)
        if isinstance(value, list) and dice.random() < 0.3:
            value[key : key + 1] = dice.choice(([], [old, old]))
        elif isinstance(value, dict) and dice.random() < 0.2:
            value[str(dice.choice(others))[:40]] = value.pop(key)
        return


def failure_of(target: Target, data: bytes, scratch: Path) -> str:
    """What a reader raises that is no error of the lab's, or nothing."""
    try:
        target.read(data, scratch)
    except LabError as error:
        unfit = sorted({letter for letter in str(error) if letter != "\n" and is_unfit(letter)})
        return f"an error that cannot be printed: {unfit}" if unfit else ""
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return ""


def text(data: bytes) -> str:
    """As the lab reads what guests print."""
    return data.decode(errors="replace")


def in_file(name: str, read: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    """A reader of a file of this name."""

    def act(data: bytes, scratch: Path) -> object:
        path = scratch / name
        path.write_bytes(data)
        return read(path)

    return act


def guest_files(name: str = "filemap-4k") -> dict[str, bytes]:
    """What a real guest sent."""
    return channel.read_result(RECORDED / f"{name}.result")


def one_file(name: str) -> Callable[[bytes, Path], object]:
    """Of a guest's files this one is damaged."""
    files = guest_files()
    assert name in files, sorted(files)
    phases = load_catalogue()["filemap-4k"].phases_of("default")

    def act(data: bytes, scratch: Path) -> object:
        result = parse.guest_result({**files, name: data}, ("4k",))
        return metrics.samples(result.phases, phases, real_time=False)

    return act


def _guest_file(name: str) -> Callable[[], Sequence[bytes]]:
    return lambda: [guest_files()[name]]


def _recorded(pattern: str, top: Path = RECORDED) -> Callable[[], Sequence[bytes]]:
    return lambda: [path.read_bytes() for path in sorted(top.glob(pattern))]


def _mails() -> list[bytes]:
    return [*UNREADABLE.values(), *ODD.values(), *(post.encoded() for post in series("a", 2))]


def _contention(name: str) -> Callable[[bytes, Path], object]:
    names = (parse.BEGINS, parse.ENDS, parse.WAITS)
    files = {each: (RECORDED / "locks" / each).read_text() for each in names}
    return lambda data, scratch: parse.waits({**files, name: text(data)})


def _lines(records: Iterable[BaseModel]) -> bytes:
    return "".join(f"{record.model_dump_json()}\n" for record in records).encode()


@cache
def _kept() -> dict[str, bytes]:
    """The files of a session of few runs in which everything is on record."""
    session = factory.ExactSession(seeds=factory.SEEDS[:2])
    manifest = counts_factory.with_twins(counts_factory.counted(session.manifest()))
    twins, profiles, locks = counts_factory.twin_runs(manifest)
    profiles += counts_factory.profiles(session)
    return {
        "manifest.json": manifest.model_dump_json().encode(),
        "runs.jsonl": _lines([*session.records(), *twins]),
        "profiles.jsonl": _lines(profiles),
        "locks.jsonl": _lines(locks),
    }


def _of_session(name: str) -> Callable[[], Sequence[bytes]]:
    return lambda: [_kept()[name]]


def _session(name: str) -> Callable[[bytes, Path], object]:
    """A session's folder with this file damaged, as it is compared for its report."""

    def act(data: bytes, scratch: Path) -> object:
        folder = scratch / "session"
        folder.mkdir(exist_ok=True)
        for each, made in _kept().items():
            (folder / each).write_bytes(data if each == name else made)
        return forms.render(compare_session(open_session(folder)), "text")

    return act


@cache
def _night_bytes() -> bytes:
    """An entry of a history."""
    session = factory.ExactSession(seeds=factory.SEEDS[:2])
    manifest = counts_factory.counted(session.manifest())
    made = measured(manifest, session.records(), counts_factory.profiles(session))
    return entry_of(made).model_dump_json().encode()


def _history(name: str) -> Callable[[bytes, Path], object]:
    """A history of one night with this file damaged, as a gate and a site would read it."""

    def act(data: bytes, scratch: Path) -> object:
        files = {"history.json": HISTORY_HEAD, "nights/2026/a.json": _night_bytes()}
        for each, made in files.items():
            place = scratch / "history" / each
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data if each == name else made)
        store = HistoryStore(scratch / "history")
        read = store.read()
        return wording.overview(read), changes_of(read.entries)

    return act


HISTORY_HEAD = b'{"format": "twinboot history", "schema_version": 5}'
QUEUE_HEAD = b'{"format": "twinboot queue", "schema_version": 3}'


def _queue(name: str) -> Callable[[bytes, Path], object]:
    """A queue with this file damaged, as it is listed and shown."""

    def act(data: bytes, scratch: Path) -> object:
        for each, made in (("queue.json", QUEUE_HEAD), ("entries/a.json", _entries()[0])):
            place = scratch / "queue" / each
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data if each == name else made)
        store = QueueStore(scratch / "queue")
        return queue_page.render(store, store.read())

    return act


def _entries() -> list[bytes]:
    entry = QueueEntry(id="a", question=Request(series=("a.mbox",)), added="2026-01-01T00:00:00Z")
    return [entry.model_dump_json().encode()]


def _system_map(data: bytes, scratch: Path) -> object:
    return addresses.functions(addresses.parse(text(data)))


def _maps() -> list[bytes]:
    names = ("_stext", "walk", "walk.cold", "__pfx_walk", "_etext", "_sinittext", "_einittext")
    lines = [
        f"{0xFFFFFFFF81000000 + 64 * at:016x} {'tT'[at % 2]} {name}"
        for at, name in enumerate(names)
    ]
    return ["\n".join([*lines, "ffffffff82000000 D jiffies", ""]).encode()]


def _unpacked(data: bytes, scratch: Path) -> object:
    into = scratch / "into"
    into.mkdir()
    try:
        (scratch / "x.tar.gz").write_bytes(data)
        return unpack(scratch / "x.tar.gz", into, most_bytes=1 << 20)
    finally:
        _remove(into)


def _repro(data: bytes, scratch: Path) -> object:
    into = scratch / "into"
    into.mkdir()
    try:
        (scratch / "x.tar.gz").write_bytes(data)
        return read_archive(scratch / "x.tar.gz", into)
    finally:
        _remove(into)


def _remove(top: Path) -> None:
    for path in sorted(top.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    top.rmdir()


def _packed(read: Callable[[bytes, Path], object]) -> Callable[[bytes, Path], object]:
    """A reader of what is damaged before it is packed, so that its packing is sound."""
    return lambda data, scratch: read(gzip.compress(data, 1), scratch)


def _archives() -> list[bytes]:
    sink = BytesIO()
    with tarfile.open(fileobj=sink, mode="w:gz") as tar:
        for name in ("repro.json", "session/manifest.json", "a" * 150):
            member = tarfile.TarInfo(name)
            member.size = 20
            tar.addfile(member, BytesIO(b"x" * 20))
    return [sink.getvalue()]


def _tars() -> list[bytes]:
    return [gzip.decompress(packed) for packed in _archives()]


def _posted() -> list[bytes]:
    return [mbox(series("a", 2)), mbox(series("b", 1, version=3))]


def _packed_posts() -> list[bytes]:
    return [pack(posts) for posts in _posted() for pack in (bytes, gzip.compress, bz2.compress)]


def _reverted(data: bytes) -> object:
    return reverted(as_patch(read_mail(data), 1, 1).decode(errors="surrogateescape"), "x")


def _patches() -> list[bytes]:
    return [
        path.read_bytes() for path in sorted((CHECKOUT / "configs/series").rglob("*.patch"))[:4]
    ]


def _answers() -> list[bytes]:
    import zlib

    ending = channel.Ending("done", "it ended")
    answer = Answer("tcp://a:1", "a", Outcome({}, ending, 1.0, 2.0), raw={"result": b"\0\1"})
    return [zlib.decompress(answer.packed())]


def _answer(data: bytes, scratch: Path) -> object:
    import zlib

    return unpacked(zlib.compress(data, 1))


def _experiment(path: Path) -> object:
    return load_experiment(path, catalogue=_CATALOGUE)


_CATALOGUE = resolved.catalogue(CHECKOUT)


def _policies() -> list[bytes]:
    return [(CHECKOUT / "configs/gate.toml").read_bytes()]


def _known() -> list[bytes]:
    return [(CHECKOUT / "configs/known-changes.toml").read_bytes()]


def _elves() -> list[bytes]:
    return [Path("/bin/true").read_bytes()[:20_000]]


@cache
def _objects() -> list[bytes]:
    """An object as it is built, with lines, and the types of another, of the host's gcc."""
    with TemporaryDirectory() as folder:
        place = Path(folder) / "x.o"
        completed(["gcc", *linetable.FLAGS.split(), "-O2", "-c", "-o", place, WORK])
        return [place.read_bytes(), types_of(SOURCE, place.parent)]


def _line_table(path: Path) -> object:
    return linetable.read(path, path, {"work.c"})


def _members(path: Path) -> object:
    types = btf.load.__wrapped__((path,))
    return [types.member_at("outer", offset) for offset in range(64)]


def _log(data: bytes, scratch: Path) -> object:
    log = text(data)
    objects = [blame.failed_object(log, mistake) for mistake in blame.mistakes(log)]
    return objects, blame.host_trouble(log), blame.new_warnings("", log)


TARGETS = (
    Target("a mail", lambda data, scratch: read_posted(data), _mails),
    Target("a mailbox", lambda data, scratch: read_mails(data, "x.mbox"), _posted, 0.5),
    Target("a mail's patch", lambda data, scratch: _reverted(data), _mails),
    Target("a series", lambda data, scratch: read_series(data, "x"), _packed_posts, 0.3),
    Target("a diff", lambda data, scratch: read_diff(text(data), "x.patch"), _patches),
    Target("a patch", in_file("x.patch", read_patch), _patches, 0.5),
    Target("a patch reverted", lambda data, scratch: reverted(text(data), "x.patch"), _patches),
    Target(
        "a console",
        lambda data, scratch: channel.classify(text(data), agent_done=False),
        _recorded("*.log", CHECKOUT / "tests/guests/recorded"),
        0.3,
    ),
    Target("splats", lambda data, scratch: check.find(text(data)), _recorded("splats/*"), 0.1),
    Target("a result", lambda data, scratch: channel.decode(data), _recorded("filemap-4k.result")),
    Target("contention", _contention(parse.BEGINS), _recorded("locks/contention_begin")),
    Target("lock waits", _contention(parse.WAITS), _recorded("locks/lock_wait")),
    Target(
        "counts",
        lambda data, scratch: counts.parse(data),
        lambda: [written(ROWS, locks=LOCKS, misses=MISSES)],
    ),
    Target("kallsyms", lambda data, scratch: vmlinux.symbols(data), _elves, 0.05),
    Target("ELF", in_file("vmlinux", symbols.read), _elves, 0.3),
    Target(
        "functions of an object", in_file("x.o", symbols.functions), lambda: _objects()[:1], 0.3
    ),
    Target("lines of an object", in_file("x.o", _line_table), lambda: _objects()[:1], 0.1),
    Target("types", in_file("x.btf", _members), lambda: _objects()[1:]),
    Target("a build's log", _log, lambda: [COMPILER.encode()]),
    Target("known changes", in_file("known.toml", load_known), _known, 0.3),
    Target("a policy", in_file("gate.toml", lambda file: load(file, Policy)), _policies, 0.3),
    *(
        Target(f"a session's {name}", _session(name), _of_session(name), 0.02, is_json=True)
        for name in ("manifest.json", "runs.jsonl", "profiles.jsonl", "locks.jsonl")
    ),
    Target("a night", _history("nights/2026/a.json"), lambda: [_night_bytes()], 0.1, True),
    Target("a history's head", _history("history.json"), lambda: [HISTORY_HEAD], 0.03, True),
    Target("a queue's entry", _queue("entries/a.json"), _entries, 0.1, True),
    Target("a queue's head", _queue("queue.json"), lambda: [QUEUE_HEAD], 0.1, True),
    Target("System.map", _system_map, _maps),
    Target("an archive", _unpacked, _archives, 0.1),
    Target("an archive's headers", _packed(_unpacked), _tars, 0.1),
    Target("a session's archive", _repro, _archives, 0.05),
    Target("a worker's answer", _answer, _answers),
    Target(
        "an experiment",
        in_file("x.toml", _experiment),
        lambda: [(CHECKOUT / "tests/integration/small.toml").read_bytes()],
        0.05,
    ),
    *(
        Target(f"a guest's {name}", one_file(name), _guest_file(name), 0.1)
        for name in spaced(
            "4k/fio.json 4k/after/proc/vmstat 4k/after/proc/stat notes "
            "4k/after/proc/diskstats 4k/after/cgroup/io.stat 4k/after/cgroup/cpu.stat "
            "4k/after/cgroup/memory.pressure 4k/after/cgroup/memory.stat"
        )
    ),
)
