"""Recorded consoles, each file named after its condition.

Those of ``done``, ``agent-failed``, ``panic``, ``oops``, ``memcg-oom-kill``,
``hung-task``, ``silent`` and ``lost`` are from guests that were made to end so; the
others follow the formats that Linux 6.12 prints.
"""

import gzip
import io
import lzma
import tarfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guests import channel
from guests.channel import (
    EVIDENCE_LINES,
    LONGEST_LINE,
    MOST_LINES,
    ChannelError,
    Clock,
    Ending,
    Follower,
    Kind,
    agent_done,
    classify,
    decode,
    fingerprint,
    read_console,
)
from tests.guests.framing import archived, framed, sent
from tests.values import data

FILES = {"./uname": b"Linux\n", "./4k/after/proc/vmstat": b"pgfault 1\n" * 100, "./empty": b""}
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=30)


def test_what_is_sent_arrives() -> None:
    assert decode(sent(FILES)) == {name.removeprefix("./"): FILES[name] for name in FILES}


@settings(max_examples=50)
@given(st.dictionaries(NAMES.filter(lambda name: name not in (".", "..")), st.binary()))
def test_any_files_arrive(files: dict[str, bytes]) -> None:
    assert decode(sent({f"./{name}": content for name, content in files.items()})) == files


def test_every_truncation_is_noticed() -> None:
    whole = sent(FILES)
    for kept in range(len(whole)):
        with pytest.raises(ChannelError):
            decode(whole[:kept])


def test_one_changed_bit() -> None:
    data = bytearray(sent(FILES))
    data[-20] ^= 1
    with pytest.raises(ChannelError, match="checksum of the result does not match"):
        decode(bytes(data))


def test_more_bytes_than_announced() -> None:
    data = sent(FILES)
    length = len(data.partition(b"\n")[2])
    with pytest.raises(ChannelError, match=f"^{length + 1} of {length} bytes arrived$"):
        decode(data + b"\n")


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\n",
        b"TWINBOOT1 3\nabc",
        b"TWINBOOT2 0 00\n",
        b"TWINBOOT1 -1 00\n",
        b"\xff\xfe 1 2\n",
        "TWINBOOT1 ٣ 00\n".encode(),
        b"TWINBOOT1 " + b"9" * 5000 + b" 00\n",
    ],
)
def test_no_header(header: bytes) -> None:
    with pytest.raises(ChannelError, match="no result header"):
        decode(header)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"plain text",
        gzip.compress(b"no tar in here" * 100),
        archived(FILES),
        gzip.compress(archived(FILES))[:-30],
        lzma.compress(archived(FILES)),
    ],
    ids=["nothing", "text", "no tar", "not compressed", "gzip cut", "another compression"],
)
def test_no_archive(payload: bytes) -> None:
    with pytest.raises(ChannelError, match="not a gzip'ed tar"):
        decode(framed(payload))


def test_bomb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "MAX_BYTES", 1 << 20)
    assert len(decode(sent({"zeros": bytes(900_000)}))["zeros"]) == 900_000
    with pytest.raises(ChannelError, match="larger than 1048576 bytes"):
        decode(sent({"zeros": bytes(2 << 20)}))


def test_bomb_within_the_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    # A tar reader that guesses compressions would unpack this a second time.
    monkeypatch.setattr(channel, "MAX_BYTES", 1 << 20)
    inner = lzma.compress(archived({"zeros": bytes(8 << 20)}))
    assert len(inner) < 1 << 20
    with pytest.raises(ChannelError, match="not a gzip'ed tar"):
        decode(framed(gzip.compress(inner)))


def with_holes(size: str) -> bytes:
    """A sparse member: a few bytes of archive that read as ``size`` zeros."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("holes")
        content = b"0\n".ljust(512, b"\0")
        member.size = len(content)
        member.pax_headers = {
            "GNU.sparse.major": "1",
            "GNU.sparse.minor": "0",
            "GNU.sparse.name": "holes",
            "GNU.sparse.realsize": size,
        }
        archive.addfile(member, io.BytesIO(content))
    return framed(gzip.compress(stream.getvalue()))


def test_bomb_of_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "MAX_BYTES", 1 << 20)
    assert decode(with_holes("1024")) == {"holes": bytes(1024)}
    for size in (8 << 20, 1 << 80, -1):
        with pytest.raises(ChannelError, match="larger than 1048576 bytes"):
            decode(with_holes(str(size)))


def test_header_that_tarfile_itself_stumbles_over() -> None:
    with pytest.raises(ChannelError, match="not a gzip'ed tar: ValueError"):
        decode(with_holes("many"))


def test_names_that_climb_are_only_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    names = ("../outside", "/etc/twinboot-was-here", f"{tmp_path}/absolute")
    assert set(decode(sent(dict.fromkeys(names, b"x")))) == set(names)
    assert [path.name for path in tmp_path.rglob("*")] == ["home"]
    assert not Path("/etc/twinboot-was-here").exists()


def test_links_and_devices_are_left_out() -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            member = tarfile.TarInfo(f"kind-{kind.decode()}")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    assert decode(framed(gzip.compress(stream.getvalue()))) == {}


def test_fingerprint_is_of_names_and_contents_in_any_order() -> None:
    digest = fingerprint({"a": b"1", "b": b"2"})
    assert digest == fingerprint({"b": b"2", "a": b"1"})
    others = [{"a": b"1"}, {"a": b"2", "b": b"1"}, {"a": b"12", "b": b""}, {"ab": b"1", "b": b"2"}]
    assert digest not in [fingerprint(files) for files in others]


RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> str:
    return (RECORDED / f"{name}.log").read_bytes().decode()


# name, QEMU ended with the agent's status, clock that ended it, kind, part of the message
ENDINGS: tuple[tuple[str, bool, Clock, Kind, str], ...] = (
    ("done", True, "", "done", "the agent finished"),
    (
        "agent-failed",
        False,
        "",
        "failed",
        "the agent stopped: twinboot: failed: mkfs: Invalid value 7q for -l size option.",
    ),
    (
        "panic",
        False,
        "",
        "panic",
        "Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000300",
    ),
    # The kernel panics after an oops: the oops is what happened.
    ("oops", False, "", "oops", "BUG: unable to handle page fault for address: ffff888001000000"),
    ("kernel-bug", False, "", "oops", "kernel BUG at mm/filemap.c:871!"),
    ("lockdep", True, "", "oops", "WARNING: possible circular locking dependency detected"),
    ("memcg-oom-kill", True, "", "oom", "Memory cgroup out of memory: Killed process 71 (fio)"),
    ("hung-task", True, "", "hung", "INFO: task touch:72 blocked for more than 1 seconds."),
    ("soft-lockup", False, "silence", "hung", "soft lockup - CPU#0 stuck for 26s! [fio:93]"),
    ("rcu-stall", False, "run", "hung", "rcu: INFO: rcu_preempt self-detected stall on CPU"),
    ("smp-bring-up-hang", False, "boot", "boot", "hung while bringing up vCPUs"),
    ("silent-from-the-start", False, "boot", "boot", "use 1 vCPU"),
    ("silent", False, "silence", "silent", "timed out: no output for too long"),
    ("silent", False, "run", "hung", "timed out: the run did not finish in time"),
    ("lost", False, "", "lost", "QEMU ended before the agent reported anything"),
    # A program of the guest that crashes is no oops; what it broke shows elsewhere.
    ("user-segfault", True, "", "done", "the agent finished"),
)


@pytest.mark.parametrize(
    ("name", "agent_done", "deadline", "kind", "message"),
    ENDINGS,
    ids=[f"{name}-{deadline or 'ended'}" for name, _, deadline, _, _ in ENDINGS],
)
def test_recorded(name: str, agent_done: bool, deadline: Clock, kind: Kind, message: str) -> None:
    ending = classify(recorded(name), agent_done=agent_done, deadline=deadline)
    assert ending.kind == kind
    assert message in ending.message


@pytest.mark.parametrize(("name", "kind"), [("cgroups", "done"), ("cgroups-2", "oom")])
def test_a_task_that_is_killed_on_purpose_is_no_ending(name: str, kind: Kind) -> None:
    """From 7.x on a console is told by a thread, after the workload has restored its level."""
    text = recorded("memcg-oom-kill").replace("(fio)", f"({name})")
    assert classify(text, agent_done=True).kind == kind


def test_every_recorded_console_is_classified() -> None:
    assert {path.stem for path in RECORDED.iterdir()} == {name for name, *_ in ENDINGS}


def test_evidence_begins_before_the_line_and_is_short() -> None:
    ending = classify(recorded("oops"), agent_done=False)
    assert ending.evidence[:2] == (
        "twinboot: prepare: mkfs.xfs -q -f --unsupported -m reflink=0,rmapbt=0,"
        "uuid=5477696e-626f-6f74-0000-000000000001 -l size=7m",
        "twinboot: layout: 52 MiB",
    )
    assert "BUG: unable to handle page fault" in ending.evidence[2]
    assert len(ending.evidence) == 2 + EVIDENCE_LINES


def test_hung_boot_shows_the_last_lines() -> None:
    ending = classify(recorded("smp-bring-up-hang"), agent_done=False, deadline="boot")
    assert ending.evidence[-2:] == (
        "[    0.498797] smpboot: x86: Booting SMP configuration:",
        "[    0.498805] .... node  #0, CPUs:      #1",
    )


def test_slow_preparation_is_not_put_down_to_the_vcpus() -> None:
    log = "twinboot: prepare: mkfs.xfs\ntwinboot: layout: 13312 MiB\n"
    ending = classify(log, agent_done=False, deadline="boot")
    assert ending == Ending(
        "boot", "timed out: the guest was not ready in time", tuple(log.splitlines()), by_clock=True
    )


def test_failure_of_the_agent_is_taken_from_the_result_when_one_came() -> None:
    assert classify(recorded("agent-failed"), agent_done=True).kind == "done"


def word_of(name: str) -> str:
    return Follower(RECORDED / f"{name}.log").more()


@pytest.mark.parametrize(("name", "word"), data(__file__, "progress_is_the_agents_last_word"))
def test_progress_is_the_agents_last_word(name: str, word: str) -> None:
    assert word_of(name) == word


@given(st.text(), st.booleans(), st.sampled_from(("", "boot", "silence", "run", "flood")))
def test_any_console_has_an_ending(text: str, agent_done: bool, deadline: Clock) -> None:
    ending = classify(text, agent_done=agent_done, deadline=deadline)
    assert ending.message
    assert set(ending.evidence) <= set(text.splitlines())


@pytest.mark.parametrize(
    ("status", "expected", "name", "is_done"),
    [
        (33, 33, "done", True),
        (0, 33, "done", False),
        (None, 33, "silent", False),
        # Where switching off is the status the last word decides; an agent that failed has said so
        # in what it sent.
        (0, 0, "done", True),
        (0, 0, "agent-failed", True),
        (1, 0, "done", False),
        *((0, 0, name, False) for name in ("panic", "oops", "lost", "silent")),
    ],
)
def test_status_and_last_word_say_that_the_agent_is_done(
    status: int | None, expected: int, name: str, is_done: bool
) -> None:
    assert agent_done(status, expected, word_of(name)) == is_done


def test_a_console_that_grows_is_read_piece_by_piece(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    follower = Follower(log)
    assert follower.more() == ""
    with log.open("wb") as sink:
        for text, word in (
            (b"twinboot: re", "re"),
            (b"ady\n[ 1.0] x", "ready"),
            (b"\r\ntwinboot: phase \xff\n", "phase \ufffd"),
            (b"x" * (3 << 20), "phase \ufffd"),
            (b"\ntwinboot: done\n", "done"),
        ):
            sink.write(text)
            sink.flush()
            assert follower.more() == word
    assert follower.ready
    assert follower.size == log.stat().st_size
    assert len(follower._rest) <= LONGEST_LINE


def test_no_more_of_a_console_is_followed_or_read_than_it_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "LARGEST", 8 << 20)
    log = tmp_path / "console.log"
    with log.open("wb") as sink:
        sink.truncate(16 << 20)
    follower = Follower(log)
    follower.more()
    assert channel.LARGEST < follower.size < log.stat().st_size
    assert len(read_console(log)) <= LONGEST_LINE + 1


def test_a_console_of_line_breaks_is_read_within_its_bound(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    log.write_bytes(
        b"a\n" * MOST_LINES
        + b"BUG: x\n"
        + "\x1c\x85\u2028\n\r\n".encode() * MOST_LINES
        + b"BUG: y\nb"
    )
    lines = read_console(log).split("\n")
    assert len(lines) <= MOST_LINES + 1
    assert (lines[0], lines[-1]) == ("a", "b")
    assert f"({3 * MOST_LINES + 3 - len(lines) + 1} lines left out)" in lines
    assert classify("\n".join(lines), agent_done=False).message.endswith("BUG: y")


def test_a_console_of_line_breaks_is_followed_at_once(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    log.write_bytes(b"\ntwinboot: ready\r\n" + b"\n" * (16 << 20))
    follower = Follower(log)
    before = time.process_time()
    assert follower.more() == "ready"
    assert follower.size == log.stat().st_size
    # Of each line break a call took 7 s.
    assert time.process_time() - before < 3


def test_patterns_see_the_begin_of_a_long_line(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    log.write_text("a" * 9000 + "BUG: x\r\n" + "Kernel panic - not syncing: y" + "b" * 9000 + "\n")
    text = read_console(log)
    assert [len(line) for line in text.splitlines()] == [LONGEST_LINE] * 2
    assert classify(text, agent_done=False).kind == "panic"
    assert "\r" not in text


@pytest.mark.parametrize("line", ["WARNING: " * 40_000, "possible " * 40_000, "a" * 400_000])
def test_a_line_of_any_length_is_classified_at_once(line: str) -> None:
    # The square of this length is 10^11.
    assert classify(line, agent_done=True).kind == "done"
