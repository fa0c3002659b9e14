import os
import shutil
import subprocess
from pathlib import Path

import pytest

from errors import InfraError, UsageError
from host import packages
from host.process import run
from kernels import source
from kernels.source import identify, release_of, unpack
from tests.kernels.fake import FAKE_LINUX, Lab, git, state
from tests.kernels.shipped import Archive
from tests.values import data, script, spaced
from tests.waiting import completed


def tarball(lab: Lab, path: Path) -> Path:
    subprocess.run(
        ["tar", "-C", str(lab.source.parent), "-cJf", str(path), lab.source.name], check=True
    )
    return path


@pytest.fixture
def repository(lab: Lab) -> Path:
    git(lab.source, "init", "-q")
    git(lab.source, "add", ".")
    git(lab.source, "commit", "-qm", "one")
    git(lab.source, "tag", "v1")
    return lab.source


@pytest.mark.parametrize(
    ("spec", "release"), data(__file__, "a_release_is_in_the_name_or_the_makefile")
)
def test_a_release_is_in_the_name_or_the_makefile(lab: Lab, spec: str, release: str) -> None:
    (mine := lab.checkout / "mine").mkdir()
    git(mine, "init", "-q")
    for number in (10, 11):
        (mine / "Makefile").write_text(f"VERSION = 6\nPATCHLEVEL = {number}\nSUBLEVEL = 0\n")
        git(mine, "add", ".")
        git(mine, "commit", "-qm", "release")
        if number == 10:
            git(mine, "tag", "v1")
    assert release_of(spec, lab.checkout) == release


def test_every_kind_lays_out_the_same_tree(lab: Lab, tmp_path: Path, repository: Path) -> None:
    archive = tarball(lab, tmp_path / "linux.tar.xz")
    for number, spec in enumerate(
        (f"dir:{repository}", f"git:{repository}@v1", f"tarball:{archive}")
    ):
        kernel_source = identify(spec, **lab.where)
        assert kernel_source.identity.startswith(spec.partition(":")[0] + ":")
        into = tmp_path / f"out{number}" / "new"
        unpack(kernel_source, into)
        assert state(into) == state(FAKE_LINUX)
        assert [path.name for path in into.parent.iterdir()] == ["new"]


def test_debian_source_is_named_by_its_version(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Any installed package will do to see the version that dpkg knows.
    monkeypatch.setattr(source, "DEBIAN_SOURCES", tmp_path)
    path = tarball(lab, tmp_path / "dpkg.tar.xz")
    version = completed(["dpkg-query", "-W", "-f", "${Version}", "dpkg"]).stdout
    installed = identify("deb:dpkg", **lab.where)
    assert (installed.identity, installed.origin) == (f"deb:dpkg={version}", path)
    # Named by its version it is the same, and is not fetched.
    assert identify(installed.identity, **lab.where) == installed


@pytest.mark.parametrize("known", [False, True])
def test_debian_source_not_installed_names_the_command(
    lab: Lab, archive: Archive, known: bool
) -> None:
    if known:
        archive.add("linux-source-0.2", "0.2.1-1")
    # What apt does not know is the user's mistake, if apt knows any.
    with pytest.raises(UsageError if known else InfraError) as caught:
        identify("deb:linux-source-0.1", **lab.where)
    command = "apt-get install --no-install-recommends linux-source-0.1"
    step = caught.value.next_step
    assert step.startswith("apt knows linux-source-" if known else f"{command}; where this release")
    assert "./lab.py fetch linux-source-0.1" in step


def test_a_system_without_dpkg_wants_a_tree_of_the_users(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(packages, "SYSTEM_FOLDERS", ())
    with pytest.raises(InfraError, match="no packages of Debian's") as caught:
        identify("deb:linux-source-0.1", **lab.where)
    assert "git:PATH@REF" in caught.value.next_step


@pytest.mark.parametrize("name", ["dpkg.tar.bz2", "dpkg/dpkg.tar.bz2"])
def test_an_installed_source_may_be_packed_as_ubuntus_are(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(source, "DEBIAN_SOURCES", tmp_path / "src")
    path = tmp_path / "src" / name
    path.parent.mkdir(parents=True)
    subprocess.run(["tar", "-C", lab.source.parent, "-cjf", path, lab.source.name], check=True)
    kernel_source = identify("deb:dpkg", **lab.where)
    assert kernel_source.origin == path
    unpack(kernel_source, tmp_path / "tree")
    assert state(tmp_path / "tree") == state(FAKE_LINUX)


def test_a_package_by_a_name_with_a_slash_is_looked_up_nowhere(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "DEBIAN_SOURCES", tmp_path / "src")
    (tmp_path / "src").mkdir()
    tarball(lab, tmp_path / "dpkg.tar.xz")
    with pytest.raises(UsageError, match="not the name of a kernel package"):
        identify("deb:../dpkg", **lab.where)


def test_debian_source_of_a_named_version_is_fetched(
    lab: Lab, tmp_path: Path, archive: Archive
) -> None:
    root = tmp_path / "root"
    (root / "usr/src").mkdir(parents=True)
    tarball(lab, root / "usr/src/linux-source-0.1.tar.xz")
    archive.add("linux-source-0.1", "0.1.2-1~deb12u1", root)
    spec = "deb:linux-source-0.1=0.1.2-1~deb12u1"
    kernel_source = identify(spec, **lab.where)
    assert kernel_source.identity == spec
    with pytest.raises(InfraError, match="not installed") as refused:
        identify("deb:linux-source-0.1", **lab.where)
    assert f"write {spec}; or" in refused.value.next_step
    unpack(kernel_source, tmp_path / "tree")
    assert state(tmp_path / "tree") == state(FAKE_LINUX)


@pytest.mark.usefixtures("archive")
def test_debian_source_that_the_archive_has_not(lab: Lab, tmp_path: Path) -> None:
    kernel_source = identify("deb:linux-source-0.1=0.1.2-1", **lab.where)
    match = r"linux-source-0\.1=0\.1\.2-1: apt knows no such package"
    with pytest.raises((InfraError, UsageError), match=match):
        unpack(kernel_source, tmp_path / "tree")


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        *((spec, "no such") for spec in spaced("dir:none tarball:none.tar.xz git:none@v1")),
        ("git:{repository}@v9", "does not know this ref"),
        ("git:{repository}", "needs a ref"),
    ],
)
def test_missing_path_or_ref_is_the_users(
    lab: Lab, repository: Path, spec: str, refusal: str
) -> None:
    with pytest.raises(UsageError, match=refusal):
        identify(spec.format(repository=repository), **lab.where)


def test_relative_paths_start_at_the_checkout(lab: Lab) -> None:
    shutil.copytree(FAKE_LINUX, lab.checkout / "mine")
    assert identify("dir:mine", **lab.where).origin == lab.checkout / "mine"


def test_git_identity_is_the_content_not_the_commit(lab: Lab, repository: Path) -> None:
    before = identify(f"git:{repository}@HEAD", **lab.where)
    git(repository, "commit", "-q", "--allow-empty", "-m", "two")
    assert identify(f"git:{repository}@HEAD", **lab.where) == before
    (repository / "init.c").write_text("int x;\n")
    assert identify(f"git:{repository}@HEAD", **lab.where) == before, "not committed"
    git(repository, "commit", "-qam", "three")
    assert identify(f"git:{repository}@HEAD", **lab.where).key != before.key


def test_folder_identity_sees_what_size_and_time_hide(lab: Lab) -> None:
    path = lab.source / "init.c"
    before = identify(f"dir:{lab.source}", **lab.where)
    stat = path.stat()
    path.write_bytes(path.read_bytes().replace(b"4096", b"8192"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_size == stat.st_size
    assert identify(f"dir:{lab.source}", **lab.where).identity != before.identity


def test_folder_identity_sees_modes_and_links_but_not_git(lab: Lab) -> None:
    def identity() -> str:
        return identify(f"dir:{lab.source}", **lab.where).identity

    identities = [identity()]
    (lab.source / "scripts/configure.awk").chmod(0o755)
    identities.append(identity())
    (lab.source / "link").symlink_to("init.c")
    identities.append(identity())
    (lab.source / "link").unlink()
    (lab.source / "link").symlink_to("Kconfig")
    identities.append(identity())
    assert len(set(identities)) == len(identities)
    git(lab.source, "init", "-q")
    assert identity() == identities[-1]


def test_unchanged_folder_is_not_read_again(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    before = identify(f"dir:{lab.source}", **lab.where)
    monkeypatch.setattr(source, "_hash_folder", lambda top: pytest.fail(f"{top} read again"))
    assert identify(f"dir:{lab.source}", **lab.where) == before


def test_damaged_memory_is_ignored(lab: Lab) -> None:
    before = identify(f"dir:{lab.source}", **lab.where)
    for path in (lab.cache / "digests").iterdir():
        path.write_text("{")
    assert identify(f"dir:{lab.source}", **lab.where) == before


def test_folder_that_was_built_in_is_refused(lab: Lab) -> None:
    (lab.source / ".config").touch()
    with pytest.raises(UsageError, match="mrproper"):
        identify(f"dir:{lab.source}", **lab.where)


def test_folder_that_changes_while_copied_is_refused(lab: Lab, tmp_path: Path) -> None:
    kernel_source = identify(f"dir:{lab.source}", **lab.where)
    (lab.source / "init.c").write_text("int x;\n")
    with pytest.raises(InfraError, match="changed while it was copied"):
        unpack(kernel_source, tmp_path / "into")


def test_a_private_folder_is_looked_at_and_neither_read_nor_copied(
    lab: Lab, tmp_path: Path
) -> None:
    private = tmp_path / "private"
    private.mkdir()
    (private / "id_ed25519").write_text("a key")
    (private / "pipe").symlink_to("/dev/zero")
    archive = shutil.make_archive(str(tmp_path / "private"), "tar", tmp_path, "private")
    subprocess.run(["git", "init", "-q", str(private)], check=True)
    git(private, "add", "-A")
    git(private, "commit", "-q", "-m", "x")
    for spec in (f"dir:{private}", f"git:{private}@HEAD"):
        with pytest.raises(UsageError, match=r"no Linux source: there is no (Makefile|Kconfig)"):
            identify(spec, **lab.where)
    packed = identify(f"tarball:{archive}", **lab.where)
    with pytest.raises(UsageError, match="no Linux source"):
        unpack(packed, tmp_path / "tree")
    assert not (tmp_path / "tree").exists()
    copies = [path for path in lab.cache.rglob("*") if path.is_file()]
    assert all("a key" not in path.read_text() for path in copies)


def test_no_linux_tree_is_the_users(lab: Lab, tmp_path: Path) -> None:
    (lab.source / "Kconfig").unlink()
    with pytest.raises(UsageError, match="no Kconfig"):
        unpack(identify(f"dir:{lab.source}", **lab.where), tmp_path / "into")


def test_damaged_tarball_is_named(lab: Lab, tmp_path: Path) -> None:
    path = tmp_path / "bad.tar.xz"
    path.write_bytes(b"not a tarball")
    with pytest.raises(InfraError, match=r"bad\.tar\.xz"):
        unpack(identify(f"tarball:{path}", **lab.where), tmp_path / "into")


def test_a_source_with_a_pipe_or_device_is_refused_and_not_read(lab: Lab) -> None:
    os.mkfifo(lab.source / "mm/pipe")
    with pytest.raises(UsageError, match="is no file") as error:
        identify(f"dir:{lab.source}", **lab.where)
    assert error.value.where.endswith("mm/pipe")


def test_settings_and_attributes_of_a_repository_run_no_program(
    lab: Lab, repository: Path, tmp_path: Path
) -> None:
    program = script(tmp_path / "program", f"touch {tmp_path}/it-ran\ncat")
    for name in ("filter.x.smudge", "filter.x.process", "tar.tar.command", "core.fsmonitor"):
        git(repository, "config", name, str(program))
    (repository / ".git/info/attributes").write_text("* filter=x\n")
    plain = state(repository / "mm")
    unpack(identify(f"git:{repository}@HEAD", **lab.where), tmp_path / "tree")
    assert state(tmp_path / "tree/mm") == plain
    assert not (tmp_path / "it-ran").exists()
    assert not (tmp_path / "source.git").exists()


def put(repository: Path, kind: str, content: str) -> str:
    """Write a git object; return its name."""
    words = ["mktree"] if kind == "tree" else ["hash-object", "-w", "--stdin"]
    argv = ["git", "-C", str(repository), *words]
    return run(argv, stdin_text=content, timeout_s=60).stdout.strip()


@pytest.mark.parametrize(
    ("levels", "width", "size", "refusal"),
    [
        (9, 10, 2, "more than 256 MiB"),
        (6, 12, 2, r"has \d{7} files and folders, and no kernel more than 1000000"),
        (70, 1, 2, r"has 7\d folders in folders, and no kernel more than 64"),
        (1, 100, 50 << 20, r"has \d+ bytes, and no kernel more than 4294967296"),
        (3, 10, 2, ""),
    ],
)
def test_a_tree_that_names_itself_again_and_again(
    lab: Lab, repository: Path, tmp_path: Path, levels: int, width: int, size: int, refusal: str
) -> None:
    blob = put(repository, "blob", "x" * size)
    kind, name = "100644 blob", blob
    for _ in range(levels):
        entries = "".join(f"{kind} {name}\tf{number}\n" for number in range(width))
        kind, name = "040000 tree", put(repository, "tree", entries)
    own = git(repository, "ls-tree", "HEAD")
    tree = put(repository, "tree", f"{own}\n040000 tree {name}\tzoo\n")
    source = identify(f"git:{repository}@{tree}", **lab.where)
    if refusal:
        with pytest.raises(UsageError, match=refusal):
            unpack(source, tmp_path / "tree")
    else:
        unpack(source, tmp_path / "tree")
    assert [path.name for path in tmp_path.glob("source.*")] == []
