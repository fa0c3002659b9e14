"""The set-up script, the lock and the Makefile, with fake package tools on PATH."""

import os
import re
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from host.packages import SYSTEMS, packages, parse_systems
from tests.values import data, spaced
from tests.waiting import completed

CHECKOUT = Path(__file__).resolve().parent.parent
REAL = spaced("sh sed tr cut cat grep tail mkdir dirname sha256sum flock chmod env rm")
DEBIAN_PYTHON = "/usr/bin/python3"
OS_RELEASE = "OS_RELEASE=/etc/os-release"
# As the distributions write it, as far as it matters.
DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nVERSION_ID="13"\nID=debian\n'
UBUNTU = 'NAME="Ubuntu"\nVERSION_ID="24.04"\nID=ubuntu\nID_LIKE=debian\n'
MINT = 'ID=linuxmint\nID_LIKE="ubuntu debian"\n'
FEDORA = 'NAME="Fedora Linux"\nID=fedora\nVARIANT_ID=workstation\n'
CENTOS = 'ID="centos"\nID_LIKE="rhel fedora"\n'
ARCH = 'NAME="Arch Linux"\nID=arch\nBUILD_ID=rolling\n'
MANJARO = "ID=manjaro\nID_LIKE=arch\n"
OTHER = 'ID=nixos\nNAME="NixOS"\n'

DPKG_QUERY = """#!/bin/sh
shift 2
for name in "$@"; do
    grep -qx "$name" "$FAKE/absent" || echo "ii $name"
done
"""
APT_GET = data(__file__, "apt_get")
RPM = """#!/bin/sh
[ "$1 $2 $3" = "-q --quiet --whatprovides" ] || exit 9
if grep -qx "$4" "$FAKE/absent"; then exit 1; fi
"""
PACMAN = data(__file__, "pacman")
# Makes an environment whose python is itself, and a uv in it.
PYTHON = data(__file__, "python")
# Where an environment is made: it, the installer, wheels, and what has none.
CALLS = ["python", "python", "uv", "uv"]


@dataclass
class FreshMachine:
    """A checkout with nothing but what set-up needs, and a PATH of fakes."""

    checkout: Path
    fake: Path

    def program(self, name: str, text: str) -> None:
        path = self.fake / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def absent(self, *names: str) -> None:
        (self.fake / "absent").write_text("".join(f"{name}\n" for name in names))

    def system(self, os_release: str) -> None:
        """Another distribution, with its package tools alone."""
        (self.fake / "os-release").write_text(os_release)
        if "debian" not in os_release:
            for name in ("dpkg-query", "apt-get"):
                (self.fake / "bin" / name).unlink()
            self.program("rpm", RPM)
            self.program("pacman", PACMAN)

    def setup(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return completed(
            ["sh", "setup/prepare.sh", *arguments],
            check=False,
            cwd=self.checkout,
            env={"PATH": f"{self.fake}/bin", "FAKE": f"{self.fake}", "PYTHON": "python3", **env},
        )

    def calls(self) -> list[str]:
        log = self.fake / "calls"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines


@pytest.fixture
def machine(tmp_path: Path) -> FreshMachine:
    machine = FreshMachine(tmp_path / "checkout", tmp_path / "fake")
    for name in spaced(
        "setup/prepare.sh setup/uv.txt host/packages.txt host/systems.txt requirements.lock"
    ):
        place = machine.checkout / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, place)
    # What the script names by path is replaced in it.
    script = machine.checkout / "setup/prepare.sh"
    text = script.read_text()
    assert text.count(DEBIAN_PYTHON) == 1
    assert text.count(OS_RELEASE) == 1
    text = text.replace(OS_RELEASE, f"OS_RELEASE={machine.fake / 'os-release'}")
    script.write_text(text.replace(DEBIAN_PYTHON, str(machine.fake / "bin/debian-python")))
    (machine.fake / "bin").mkdir(parents=True)
    machine.system(DEBIAN)
    for name in REAL:
        program = shutil.which(name)
        assert program
        (machine.fake / "bin" / name).symlink_to(program)
    machine.program("id", "#!/bin/sh\necho 0\n")
    machine.program("dpkg-query", DPKG_QUERY)
    machine.program("apt-get", APT_GET)
    machine.program("python3", PYTHON)
    machine.absent()
    (machine.fake / "python-works").touch()
    return machine


def test_only_what_is_missing_is_installed_and_named(machine: FreshMachine) -> None:
    machine.absent("fio", "linux-source-6.12")
    done = machine.setup()
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "installing packages: linux-source-6.12 fio\n" in done.stderr
    assert re.search(r"installing \d+ Python packages from requirements.lock", done.stderr)
    update, install, venv, pip, *uvs = machine.calls()
    assert update.startswith("noninteractive apt-get ")
    assert update.endswith(" update")
    assert install.endswith(" install --yes --no-install-recommends linux-source-6.12 fio")
    assert venv == "python -m venv --clear .venv"
    assert "--only-binary :all: --require-hashes --requirement setup/uv.txt" in pip
    assert all("--require-hashes" in uv for uv in uvs)
    assert uvs[0].startswith("uv https://index.example pip install")
    assert "--requirement .make/wheels.txt --no-deps --only-binary :all:" in uvs[0]
    assert "--compile-bytecode" not in uvs[0]
    # What is built from source is built by what the first line installed, and no other.
    assert uvs[1].endswith("--requirement .make/sdists.txt --no-deps --no-build-isolation")
    pinned = (machine.checkout / ".make/sdists.txt").read_text()
    assert re.fullmatch(r"dkimpy==\S+ \\\n(    --hash=sha256:\w+( \\)?\n)+    #.*\n", pinned)
    assert not re.search(
        "^(dkimpy|pytest)==", (machine.checkout / ".make/wheels.txt").read_text(), re.M
    )


def test_what_tests_need_is_added_to_what_a_run_needs(machine: FreshMachine) -> None:
    assert machine.setup().returncode == 0
    machine.calls()
    assert machine.setup("tests").returncode == 0
    assert [call.split()[0] for call in machine.calls()] == ["uv", "uv"]
    assert re.search("^pytest==", (machine.checkout / ".make/wheels.txt").read_text(), re.M)
    for arguments in ((), ("tests",)):
        assert machine.setup(*arguments).stderr == ""
    assert machine.calls() == []


def test_where_uv_fails_pip_is_tried(machine: FreshMachine) -> None:
    done = machine.setup(UV_STATUS="2")
    assert done.returncode == 0
    assert "uv could not; trying with pip" in done.stderr
    assert [call.split()[0] for call in machine.calls()] == [
        "python",
        "python",
        *["uv", "python"] * 2,
    ]


def test_a_changed_lock_builds_the_environment_anew(machine: FreshMachine) -> None:
    machine.setup()
    machine.calls()
    with (machine.checkout / "requirements.lock").open("a") as lock:
        lock.write("# changed\n")
    assert machine.setup().returncode == 0
    assert machine.calls()[0] == "python -m venv --clear .venv"
    # So does one whose python is gone; and then there is nothing to do.
    (machine.checkout / ".venv/bin/python").unlink()
    assert machine.setup().returncode == 0
    assert len(machine.calls()) == len(CALLS)
    again = machine.setup()
    assert (again.returncode, again.stdout, again.stderr, machine.calls()) == (0, "", "", [])


def test_a_linked_environment_is_anothers_and_is_not_cleared(machine: FreshMachine) -> None:
    machine.setup()
    (machine.checkout / ".venv").rename(machine.fake / "theirs")
    (machine.checkout / ".venv").symlink_to(machine.fake / "theirs")
    (machine.fake / "theirs/.made-from").unlink()
    machine.calls()
    done = machine.setup()
    assert (done.returncode, machine.calls()) == (3, [])
    assert (machine.fake / "theirs/bin/python").exists()


def test_a_failed_pip_is_tried_again_next_time(machine: FreshMachine) -> None:
    done = machine.setup(PIP_STATUS="1", UV_STATUS="1")
    assert done.returncode == 3
    assert "requirements.lock could not be installed" in done.stderr
    machine.calls()
    assert machine.setup().returncode == 0
    assert len(machine.calls()) == len(CALLS)


def test_a_python_without_venv_brings_debians_own(machine: FreshMachine) -> None:
    machine.program("python3", "#!/bin/sh\nexit 1\n")
    machine.program("debian-python", PYTHON)
    (machine.fake / "python-works").unlink()
    machine.absent("python3-venv")
    done = machine.setup(PYTHON="")
    assert done.returncode == 0, done.stderr
    assert machine.calls()[1].endswith(" python3-venv")
    assert (machine.checkout / ".venv/bin/python").exists()
    assert machine.setup(PYTHON="").stderr == ""


def test_a_named_python_that_cannot_do_it_is_an_error(machine: FreshMachine) -> None:
    (machine.fake / "python-works").unlink()
    done = machine.setup()
    assert done.returncode == 3
    assert "no Python 3.11 or newer with venv and ssl; tried python3" in done.stderr
    assert machine.calls() == []


@pytest.mark.parametrize(
    ("status", "code", "shown"),
    [
        ("UPDATE_STATUS", 0, ["apt-get update failed"]),
        ("INSTALL_STATUS", 3, ["E: no such package", "apt-get install failed"]),
    ],
)
def test_a_failed_update_is_no_reason_to_stop_and_a_failed_install_is(
    machine: FreshMachine, status: str, code: int, shown: list[str]
) -> None:
    machine.absent("fio")
    done = machine.setup(**{status: "100"})
    assert done.returncode == code
    assert all(words in done.stderr for words in shown)


@pytest.mark.parametrize(
    ("os_release", "absent", "line"),
    [
        (
            DEBIAN,
            ("fio", "libelf-dev"),
            "apt-get update && apt-get install --yes --no-install-recommends fio libelf-dev",
        ),
        (UBUNTU, ("fio",), "apt-get update && apt-get install --yes --no-install-recommends fio"),
        (MINT, ("fio",), "apt-get update && apt-get install --yes --no-install-recommends fio"),
        (
            FEDORA,
            ("qemu-system-x86-core", "perl-interpreter", "elfutils-libelf-devel"),
            "dnf install --setopt=install_weak_deps=False qemu-system-x86-core perl-interpreter "
            "elfutils-libelf-devel",
        ),
        (CENTOS, ("glibc-static",), "dnf install --setopt=install_weak_deps=False glibc-static"),
        (ARCH, ("qemu-system-x86", "libelf"), "pacman -S --needed qemu-system-x86 libelf"),
        (MANJARO, ("busybox",), "pacman -S --needed busybox"),
    ],
)
def test_each_distribution_has_its_own_line(
    machine: FreshMachine, os_release: str, absent: tuple[str, ...], line: str
) -> None:
    machine.system(os_release)
    # Root of a Debian has it done; no other package manager was ever run by the script.
    for user in (1000,) if "apt-get" in line else (1000, 0):
        machine.program("id", f"#!/bin/sh\necho {user}\n")
        machine.absent(*absent)
        done = machine.setup()
        assert done.returncode == 3
        assert done.stderr.splitlines()[-1] == line
        assert machine.calls() == []
        assert not (machine.checkout / ".venv").exists()


@pytest.mark.parametrize("os_release", [DEBIAN, UBUNTU, FEDORA, ARCH])
def test_no_distribution_needs_root_where_nothing_is_missing(
    machine: FreshMachine, os_release: str
) -> None:
    machine.system(os_release)
    machine.program("id", "#!/bin/sh\necho 1000\n")
    # Debian's alone: no other has to have it.
    machine.absent(*([] if os_release == DEBIAN else ["linux-source-6.12"]))
    done = machine.setup()
    assert done.returncode == 0, done.stderr
    assert [call.split()[0] for call in machine.calls()] == CALLS


@pytest.mark.parametrize(
    ("os_release", "line"),
    [
        (UBUNTU, "apt-get update && apt-get install --yes --no-install-recommends ccache"),
        (FEDORA, "dnf install --setopt=install_weak_deps=False ccache"),
    ],
)
def test_what_is_only_useful_is_named_once_and_waited_for_by_nobody(
    machine: FreshMachine, os_release: str, line: str
) -> None:
    machine.system(os_release)
    machine.program("id", "#!/bin/sh\necho 1000\n")
    machine.absent("ccache")
    done = machine.setup()
    assert done.returncode == 0, done.stderr
    assert line in done.stderr.splitlines()
    assert (machine.checkout / ".venv/bin/python").exists()
    assert machine.setup().stderr == ""


def test_a_system_that_no_list_knows_is_ready_when_all_programs_are_there(
    machine: FreshMachine,
) -> None:
    machine.system(OTHER)
    required = machine.fake / "header.h"
    (machine.checkout / "host/packages.txt").write_text(
        f"fio | required | fio | why\nlibelf-dev | required | /none/x.h,{required} | why\n"
        f"libc6-dev | required | {machine.fake}/lib*/libc.a | why\n"
    )
    done = machine.setup()
    assert done.returncode == 3
    assert "install what Debian calls fio libelf-dev libc6-dev, by hand" in done.stderr
    machine.program("fio", "#!/bin/sh\n")
    required.touch()
    (machine.fake / "lib64").mkdir()
    (machine.fake / "lib64/libc.a").touch()
    done = machine.setup()
    assert done.returncode == 0, done.stderr
    assert [call.split()[0] for call in machine.calls()] == CALLS


def test_script_and_lab_read_the_same_list(machine: FreshMachine) -> None:
    systems = {system.id: system for system in parse_systems(SYSTEMS.read_text())}
    for os_release, name in ((DEBIAN, "debian"), (UBUNTU, "ubuntu"), (FEDORA, "fedora")):
        machine.system(os_release)
        machine.program("id", "#!/bin/sh\necho 1000\n")
        listed = packages(systems[name])
        names = [p.name for p in listed if p.need in ("required", "useful")]
        machine.absent(*" ".join(names).split())
        line = machine.setup().stderr.splitlines()[-1].replace(" --yes", "")
        assert line.removeprefix("apt-get update && ") == " ".join([systems[name].install, *names])


def test_what_only_tests_need_is_installed_for_them_alone(machine: FreshMachine) -> None:
    machine.absent("chromium-headless-shell", "fio")
    machine.setup()
    assert machine.calls()[1].endswith(" fio")
    machine.absent("chromium-headless-shell")
    machine.setup("tests")
    assert machine.calls()[1].endswith(" chromium-headless-shell")


def test_the_lock_has_hashes_and_names_no_place() -> None:
    lock = (CHECKOUT / "requirements.lock").read_text()
    entries = re.findall(r"^([a-z0-9.-]+)==(\S+) \\\n    --hash=sha256:", lock, re.M)
    assert len(entries) == len(re.findall(r"^[a-z]", lock, re.M))
    assert "://" not in lock
    assert not re.search(r"^-|/", re.sub(r"#.*", "", lock), re.M)


def test_the_lock_holds_every_package_that_the_project_names() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = {re.split(r"[<>=!~\[; ]", each)[0].lower().replace(".", "-") for each in requirements}
    locked = set(re.findall(r"^([a-z0-9-]+)==", (CHECKOUT / "requirements.lock").read_text(), re.M))
    assert names <= locked
    lock = (CHECKOUT / "requirements.lock").read_text()
    for_run, mark, for_tests = lock.partition("# --- for tests\n")
    assert mark
    assert "numpy==" in for_run
    assert "pytest==" in for_tests


def test_make_targets_all_set_up_first() -> None:
    for target in ("run", "test", "check"):
        done = completed(["make", "--dry-run", target], cwd=CHECKOUT)
        group = "" if target == "run" else " tests"
        assert done.stdout.splitlines()[0] == f"sh setup/prepare.sh{group}"
    (command,) = [line for line in done.stdout.splitlines() if " -m pytest -n " in line]
    # Apart, the table of the last run would be taken for tests, and with it no conftest be read.
    assert "--durations-table=.make/durations.csv" in command.split()


def test_ci_runs_make_test_with_nobody_to_ask() -> None:
    script = CHECKOUT / ".ci/run"
    assert os.access(script, os.X_OK)
    assert script.read_text().splitlines()[-1] == "exec make test </dev/null"


def test_actions_are_pinned_by_commit_and_may_only_read() -> None:
    github = CHECKOUT / ".github"
    for workflow in sorted([*github.glob("workflows/*.yml"), *github.glob("actions/*/action.yml")]):
        text = workflow.read_text()
        used = re.findall(r"uses: (\S+)(.*)", text)
        assert used
        for action, comment in used:
            if action.startswith("./lab/"):
                continue  # the lab's own, of the commit that the caller named
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", action), action
            assert re.fullmatch(r" # v\d+\.\d+\.\d+", comment), action
        if workflow.name != "action.yml":
            assert re.search(r"^permissions:\n  contents: read$", text, re.M), workflow.name
    assert "run: bash .ci/run" in (CHECKOUT / ".github/workflows/ci.yml").read_text()


def test_the_interpreter_of_the_environment_reaches_set_up_through_make() -> None:
    """A variable of the Makefile's, once called PYTHON, took its place."""
    done = completed(
        ["make", "--no-print-directory", "--eval", "shown:; @echo $$PYTHON", "shown"],
        cwd=CHECKOUT,
        env=os.environ | {"PYTHON": "python3.99"},
    )
    assert done.stdout == "python3.99\n"
