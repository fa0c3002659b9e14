"""Boxes of the real tools: what can be reached from inside, and what cannot."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from errors import InfraError
from host import sandbox
from host.process import run
from host.sandbox import Box, Limits, Tool
from tests.integration.lab_process import CHECKOUT
from tests.values import data, script
from tests.waiting import completed, wait_until

SECRET = "canary-of-the-home"


@pytest.fixture(params=["bwrap", "unshare"])
def tool(request: pytest.FixtureRequest) -> Tool:
    """Each that works here; at least one does, or nothing is tested."""
    name: Tool = request.param
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    return name


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GH_TOKEN", SECRET)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / ".netrc").write_text(SECRET)
    monkeypatch.setenv("HOME", str(home))
    return home


def inside(tool: Tool, home: Path, script: str, *, limits: Limits | None = None) -> str:
    """What a script prints whose cache lies in a home that nobody else may enter."""
    source, place = home / "cache/src", home / "cache/place"
    (source / "obj").mkdir(parents=True, exist_ok=True)
    place.mkdir(exist_ok=True)
    (source / "file.c").write_text("source\n")
    box = Box(tool, ((place, source / "obj"),), (source,), limits or Limits())
    with box.owned():
        return run(box.argv(["sh", "-c", script], source), timeout_s=300, check=False).stdout


def test_one_of_them_works_here() -> None:
    assert sandbox.available() in ("bwrap", "unshare")


def test_the_tree_is_read_and_only_the_object_folder_is_written(tool: Tool, home: Path) -> None:
    output = inside(
        tool, home, "cat file.c; echo made > obj/out; echo no > file.c; touch ../x; pwd"
    )
    assert output == f"source\n{home}/cache/src\n"
    assert (home / "cache/place/out").read_text() == "made\n"
    assert (home / "cache/place/out").stat().st_uid == os.getuid()
    assert (home / "cache/src/file.c").read_text() == "source\n"
    assert not (home / "cache/x").exists()


def test_neither_home_nor_the_files_of_this_host_are_there(tool: Tool, home: Path) -> None:
    output = inside(
        tool,
        home,
        f"cat {home}/.netrc /etc/shadow /etc/passwd /root/.* /proc/*/environ; env; "
        f"ls -A {home} /home /root /var /sys /run /tmp; touch /usr/x; find / -name .netrc",
    )
    assert SECRET not in output
    assert "root:x:" not in output
    assert "twinboot" not in output


def test_a_box_leaves_nothing_behind_in_the_folder_of_temporary_files(
    tool: Tool, tmp_path: Path
) -> None:
    place, temporary = tmp_path / "place", tmp_path / "temporary"
    place.mkdir()
    temporary.mkdir()
    box = Box(tool, ((place, place),))
    with box.owned():
        run(box.argv(["touch", "made"], place, {"TMPDIR": str(temporary)}), timeout_s=300)
    assert (place / "made").exists()
    assert list(temporary.iterdir()) == []


def test_a_file_may_be_all_that_is_written(tool: Tool, tmp_path: Path) -> None:
    """As a guest's console."""
    file = tmp_path / "console"
    file.touch()
    box = Box(tool, ((file, file),))
    with box.owned():
        run(box.argv(["sh", "-c", f"echo made > {file}"], Path("/")), timeout_s=300)
    assert file.read_text() == "made\n"
    assert file.stat().st_uid == os.getuid()


def test_there_is_no_network_and_no_process_of_outside(tool: Tool, home: Path) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        output = inside(
            tool,
            home,
            f"bash -c 'echo x > /dev/tcp/127.0.0.1/{port} && echo connected'; "
            "grep -c . /proc/net/route; ls -d /proc/[0-9]* | wc -l; "
            f"kill -0 {os.getpid()} && echo killable",
        )
    assert "connected" not in output
    assert "killable" not in output
    assert int(output.split()[-1]) < 10


def test_nobody_inside_is_root_or_becomes_so(tool: Tool, home: Path) -> None:
    output = inside(tool, home, "id -u; grep -E 'CapEff|CapPrm|NoNewPrivs' /proc/self/status")
    uid, *rights = output.splitlines()
    assert int(uid) == (sandbox.BOX_UID if os.getuid() == 0 else os.getuid()) != 0
    assert [line.split()[1] for line in rights] == ["0" * 16, "0" * 16, "1"]


def test_what_takes_too_much_is_ended(tool: Tool, home: Path) -> None:
    few = Limits(cpu_s=1, memory_bytes=256 << 20, file_bytes=1 << 20)
    text = inside(
        tool,
        home,
        "(while :; do :; done); echo spun; "
        "head -c 9000000 /dev/zero > obj/big; stat -c %s obj/big; "
        "head -c 900m /dev/zero | tail > /dev/null && echo ate",
        limits=few,
    )
    assert text.split() == ["spun", str(1 << 20)]


def test_there_is_an_end_to_the_number_of_processes(tool: Tool, home: Path) -> None:
    # Those of other boxes count: they have the same user.
    limit = 400
    many = f"i=0; while [ $i -lt {limit} ]; do sleep 20 & i=$((i + 1)); done"
    script = f"sh -c '{many}; echo made'; set -- /proc/[0-9]*; echo $#"
    output = inside(tool, home, script, limits=Limits(processes=limit))
    assert "made" not in output
    assert int(output.split()[-1]) <= limit


def test_links_out_of_what_may_be_written_lead_nowhere(tool: Tool, home: Path) -> None:
    (home / "victim").write_text("kept")
    output = inside(tool, home, f"ln -s {home}/victim obj/link; echo gone > obj/link; cat obj/link")
    assert output == ""
    assert (home / "victim").read_text() == "kept"


def test_a_host_without_either_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "available", lambda: None)
    for installed, words in ((None, "bubblewrap"), ("/usr/bin/bwrap", "user namespaces")):
        monkeypatch.setattr(shutil, "which", lambda _, at=installed: at)
        with pytest.raises(InfraError, match="no sandbox can be made") as caught:
            sandbox.box()
        assert words in caught.value.next_step


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of programs that come before the system's."""
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    sandbox.tried.cache_clear()
    yield tools
    sandbox.tried.cache_clear()


@pytest.mark.parametrize(
    ("last", "step"),
    [
        ("Creating new namespace failed: nesting depth", "make user namespaces"),
        ("OSError: [Errno 22] the kernel takes no filter of system calls", "filter system calls"),
    ],
)
def test_what_neither_can_do_here_is_quoted(last: str, step: str, tools: Path) -> None:
    for name in ("bwrap", "unshare"):
        script(tools / name, f"echo first >&2; echo '{name}: {last}' >&2; exit 1")
    with pytest.raises(
        InfraError, match=r"neither bwrap nor unshare works here; bwrap: "
    ) as caught:
        sandbox.box()
    assert f"; bwrap: {last}; unshare: {last[:10]}" in caught.value.what
    assert step in caught.value.next_step


def test_a_user_namespace_of_one_user_is_named_as_the_cause() -> None:
    """Root of such a namespace, as of a container's, has nobody to run a box as."""
    code = "from host import sandbox; sandbox.box()"
    done = completed(["unshare", "-Ur", sys.executable, "-c", code], check=False)
    if "unshare failed" in done.stderr:
        pytest.skip("this host makes no user namespaces")
    assert f"this user namespace has no user {sandbox.BOX_UID}" in done.stderr
    assert "next: run as an ordinary user" in done.stderr


def test_programs_outside_of_the_system_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    script(tools / "gcc", "")
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin")
    assert tools in sandbox.programs("gcc", "make")
    assert tools not in sandbox.programs("make")
    assert all(not place.is_relative_to("/usr") for place in sandbox.programs("gcc", "make"))


def test_a_folder_is_there_by_a_name_that_is_a_link_outside(tool: Tool, tmp_path: Path) -> None:
    """As that of a wall guest's run: virtme-ng wants a plain name of it."""
    folder, name = tmp_path / "a folder", tmp_path / "name"
    folder.mkdir()
    name.symlink_to(folder)
    box = Box(tool, ((folder, name),))
    with box.owned():
        run(box.argv(["touch", f"{name}/made"], Path("/")), timeout_s=300)
    assert (folder / "made").exists()


OWNER = data(__file__, "owner")


def test_what_is_in_a_box_ends_with_the_lab_however_that_ends(tool: Tool, tmp_path: Path) -> None:
    argv = [sys.executable, "-c", OWNER, tool, str(tmp_path)]
    inside = b"\0".join((b"sleep", f"300.{tmp_path.stat().st_ino}".encode(), b""))

    def running() -> list[Path]:
        return [each for each in Path("/proc").glob("[0-9]*") if read(each / "cmdline") == inside]

    with subprocess.Popen(argv, cwd=CHECKOUT) as lab:
        try:
            wait_until(running, "program in the box")
        finally:
            lab.kill()
    wait_until(lambda: not running(), "end of the program in the box")


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.slow
def test_there_is_an_end_to_the_memory_of_all_processes(tool: Tool, home: Path) -> None:
    limits = Limits(memory_bytes=256 << 20, all_memory_bytes=300 << 20)
    # Each holds 128 MiB, which it may.
    hold = "/usr/bin/python3 -c 'import time; held = b\"x\" * (128 << 20); time.sleep(20)' &"
    assert inside(tool, home, f"{hold} sleep 2; echo kept", limits=limits) == "kept\n"
    assert inside(tool, home, f"{hold * 3} sleep 20; echo kept", limits=limits) == ""


@pytest.mark.slow
def test_there_is_an_end_to_the_disk_of_all_files(
    tool: Tool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Limits(file_bytes=64 << 20, all_disk_bytes=100 << 20)
    write = "head -c 60M /dev/zero > obj/"
    assert inside(tool, home, f"{write}a; sleep 2; echo kept", limits=limits) == "kept\n"
    assert inside(tool, home, f"{write}a; {write}b; sleep 20; echo kept", limits=limits) == ""


def test_a_single_file_may_be_what_a_box_writes_to(tmp_path: Path) -> None:
    file = tmp_path / "console.log"
    file.touch()
    box = sandbox.box((file, file))
    with box.owned():
        assert file.stat().st_uid == (sandbox.BOX_UID if os.getuid() == 0 else os.getuid())
    assert file.stat().st_uid == os.getuid()
