"""What reads a mail, a guest or somebody's file, with damaged versions of real inputs.

The same inputs each time: a number is the seed of each.  Nothing here knows a format; what finds
most is a real input with a few pieces taken out, doubled, or replaced by what parsers trip over.
"""

from __future__ import annotations

import random
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from errors import LabError
from experiment.load import load_experiment
from fleet import plain
from fleet.parcel import Answer
from guests import channel, console
from guests.exact import Outcome
from guests.probe import counts
from history import exchange
from history.known import load_known
from kernels import elf, kallsyms
from kernels.diff import read_diff
from kernels.mail import read_mails
from kernels.revert import reverted
from kernels.series import read_patch
from queues.posted import read_posted
from queues.table import read_table
from results.session import open_session
from results.store import SessionStore
from runs import prepare
from runs.archive import unpack
from runs.repro import read_archive
from tests.guests.probe.test_counts import LOCKS, MISSES, ROWS, written
from tests.kernels.poison import ODD, UNREADABLE
from tests.kernels.posting import mbox
from tests.queues.archive import series
from tests.reports import factory
from workloads import contention, lock_stat, metrics, parse, sampled, splats
from workloads.spec import load_catalogue

CHECKOUT = Path(__file__).resolve().parent.parent
RECORDED = CHECKOUT / "tests/workloads/recorded"
# What numbers, names and brackets are replaced by.
ODD_PIECES = (
    b"", b"0", b"-1", b"9" * 401, b"9" * 5000, b"1e999", b"NaN", b"Infinity", b"0ms", b"-2000ms",
    b"\0", b"\xff\xfe", b"\xd9\xa3", b"\xed\xb2\x80", b"\r", b"\n", b"\n\n", b"(" * 3000,
    b"[" * 3000, b'{"a":' * 3000, b'"', b"'", b"\\", b"=?utf-8?q?=", b"=?utf-\xd9\xa3?q?x?=",
    b"../../", b"\x1b]52;", b"\xe2\x80\xae", b"%s", b",", b"null", b"true", b"[]", b"{}",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A reader, real inputs for it, and how much of the usual number it is worth.

    Readers of files are given the bytes in a file.  ``share`` is less for those that take more
    CPU time each.
    """

    name: str
    read: Callable[[bytes, Path], object]
    inputs: Callable[[], Sequence[bytes]]
    share: float = 1.0


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


def failure_of(target: Target, data: bytes, scratch: Path) -> str:
    """What a reader raises that is no error of the lab's, or nothing."""
    try:
        target.read(data, scratch)
    except LabError:
        return ""
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
    return channel.read(RECORDED / f"{name}.result")


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


def _lock_stat(data: bytes, scratch: Path) -> object:
    return lock_stat.classes(text(data), (RECORDED / "locks/lockdep").read_text())


def _contention(name: str) -> Callable[[bytes, Path], object]:
    names = (contention.BEGINS, contention.ENDS, contention.WAITS)
    files = {each: (RECORDED / "locks" / each).read_text() for each in names}
    return lambda data, scratch: contention.waits({**files, name: text(data)})


def _manifest() -> list[bytes]:
    return [factory.ExactSession().manifest().model_dump_json().encode()]


def _runs() -> list[bytes]:
    records = factory.ExactSession().records()[:3]
    return ["".join(f"{record.model_dump_json()}\n" for record in records).encode()]


def _session(name: str) -> Callable[[bytes, Path], object]:
    """A session's folder with this file damaged."""

    def act(data: bytes, scratch: Path) -> object:
        folder = scratch / "session"
        if not folder.exists():
            store = SessionStore(folder)
            store.create(factory.ExactSession().manifest())
        for each, made in (("manifest.json", _KEPT[0]), ("runs.jsonl", _KEPT[1])):
            (folder / each).write_bytes(data if each == name else made)
        return open_session(folder)

    return act


_KEPT = (_manifest()[0], _runs()[0])


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


def _archives() -> list[bytes]:
    sink = BytesIO()
    with tarfile.open(fileobj=sink, mode="w:gz") as tar:
        for name in ("repro.json", "session/manifest.json", "a" * 150):
            member = tarfile.TarInfo(name)
            member.size = 20
            tar.addfile(member, BytesIO(b"x" * 20))
    return [sink.getvalue()]


def _posted() -> list[bytes]:
    return [mbox(series("a", 2)), mbox(series("b", 1, version=3))]


def _patches() -> list[bytes]:
    return [
        path.read_bytes() for path in sorted((CHECKOUT / "configs/series").rglob("*.patch"))[:4]
    ]


def _answers() -> list[bytes]:
    import zlib

    ending = console.Ending("done", "it ended")
    answer = Answer("tcp://a:1", "a", Outcome({}, ending, 1.0, 2.0), raw={"result": b"\0\1"})
    return [zlib.decompress(plain.packed(answer))]


def _answer(data: bytes, scratch: Path) -> object:
    import zlib

    return plain.unpacked(Answer, zlib.compress(data, 1))


def _experiment(path: Path) -> object:
    return load_experiment(path, catalogue=_CATALOGUE)


_CATALOGUE = prepare.catalogue(CHECKOUT)


def _known() -> list[bytes]:
    return [(CHECKOUT / "configs/known-changes.toml").read_bytes()]


def _tables() -> list[bytes]:
    return [b"series,priority,source,auto,set\na.mbox,5,deb:linux-source-6.12,yes,guest=smoke\n"]


def _elves() -> list[bytes]:
    return [Path("/bin/true").read_bytes()[:20_000]]


TARGETS = (
    Target("a mail", lambda data, scratch: read_posted(data), _mails),
    Target("a mailbox", lambda data, scratch: read_mails(data, "x.mbox"), _posted, 0.5),
    Target("a diff", lambda data, scratch: read_diff(text(data), "x.patch"), _patches),
    Target("a patch", in_file("x.patch", read_patch), _patches, 0.5),
    Target("a patch reverted", lambda data, scratch: reverted(text(data), "x.patch"), _patches),
    Target("a console", lambda data, scratch: console.classify(text(data), agent_done=False),
           _recorded("*.log", CHECKOUT / "tests/guests/recorded"), 0.3),
    Target("splats", lambda data, scratch: splats.find(text(data)), _recorded("splats/*"), 0.1),
    Target("a result", lambda data, scratch: channel.decode(data), _recorded("filemap-4k.result")),
    Target("lock_stat", _lock_stat, _recorded("locks/lock_stat"), 0.3),
    Target("contention", _contention(contention.BEGINS), _recorded("locks/contention_begin")),
    Target("lock waits", _contention(contention.WAITS), _recorded("locks/lock_wait")),
    Target("samples", lambda data, scratch: sampled.waits(text(data)),
           lambda: [b"total 9\n3 folio_lru_move_lock;shrink_lruvec\n2 a;b;c\n"]),
    Target("counts", lambda data, scratch: counts.parse(data),
           lambda: [written(ROWS, locks=LOCKS, misses=MISSES)]),
    Target("kallsyms", lambda data, scratch: kallsyms.symbols(data), _elves, 0.05),
    Target("ELF", in_file("vmlinux", elf.read), _elves, 0.3),
    Target("a table", in_file("x.csv", read_table), _tables),
    Target("known changes", in_file("known.toml", load_known), _known, 0.3),
    Target("exported lines", in_file("x.jsonl", exchange.read), _runs, 0.3),
    Target("exported table", in_file("x.csv", exchange.read), _tables, 0.05),
    Target("a manifest", _session("manifest.json"), _manifest, 0.05),
    Target("runs", _session("runs.jsonl"), _runs, 0.05),
    Target("an archive", _unpacked, _archives, 0.1),
    Target("a session's archive", _repro, _archives, 0.05),
    Target("a worker's answer", _answer, _answers),
    Target("an experiment", in_file("x.toml", _experiment),
           lambda: [(CHECKOUT / "tests/integration/small.toml").read_bytes()], 0.05),
    *(
        Target(f"a guest's {name}", one_file(name), _guest_file(name), 0.1)
        for name in (
            "4k/fio.json", "4k/fio_bw.log", "4k/after/proc/vmstat", "4k/after/proc/stat", "notes",
            "4k/after/proc/diskstats", "4k/after/cgroup/io.stat", "4k/after/cgroup/cpu.stat",
            "4k/after/cgroup/memory.pressure", "4k/after/cgroup/memory.stat",
        )
    ),
)  # fmt: skip
