"""The command line: verbs, exit codes, what goes to which stream, and messages."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

import lab
from analysis.model import ReportError
from errors import Exit, InfraError, SeriesError, SpecError, UsageError, WorkloadError
from host import doctor
from kernels import build
from results.door import StoreError
from runs import building, session
from tests.analysis.factory import ExactSession, fails, stored
from tests.conftest import Terminal
from tests.kernels import shipped
from tests.values import data
from tests.waiting import completed

CHECKOUT = Path(lab.__file__).resolve().parent
FORMS = ("text", "markdown", "letter", "html", "json", "summary")


def as_process(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return completed([sys.executable, str(CHECKOUT / "lab.py"), *arguments], check=False, cwd=cwd)


def store(folder: Path, *broken: str, session: ExactSession | None = None, **failure: str) -> Path:
    session = session or ExactSession()
    records = fails(session.records(), *broken, **failure) if broken else None
    return stored(folder, session, records).folder


KCONFIG = Path(__file__).parents[1] / "configs/kconfig"


@pytest.mark.parametrize(("arguments", "message"), data(__file__, "mistakes_of_the_user"))
def test_mistakes_of_the_user(main: Terminal, arguments: str, message: str) -> None:
    assert main(*arguments.split()) == 2
    assert main.out == ""
    assert message in main.err
    assert main.err.startswith("error: ")
    assert "Traceback" not in main.err


def test_every_mistake_is_reported_at_once(main: Terminal) -> None:
    assert main("plan", "filemap-v4", "--set", "blokcs=2", "--set", "guest=lap") == 2
    assert [line[:14] for line in main.err.splitlines()] == ["error: --set b", "error: --set g"]


def test_what_is_refused_leaves_no_folder(main: Terminal, tmp_path: Path) -> None:
    folder = tmp_path / "session"
    assert main("run", "filemap-v5", "--session", folder) == 2
    assert main("run", "--resume", folder) == 2
    assert not folder.exists()


def test_list_as_json(main: Terminal) -> None:
    assert main("list", "--json") == 0
    known = json.loads(main.out)
    assert main.err == ""
    assert "filemap-v4" in known["experiments"]
    assert {"smoke", "laptop", "full"} <= set(known["guests"])
    assert "configs/series/noop" in known["series"]
    assert known["kernels"] == []


def test_plan_as_json_is_the_plan(main: Terminal) -> None:
    assert main("plan", "filemap-v4", "--set", "blocks=2", "--json") == 0
    plan = json.loads(main.out)
    assert main.err.startswith('series: "mm/filemap')
    assert plan["seeds"] == [1, 2]
    assert len([run for run in plan["runs"] if not run["twin"]]) == 10
    assert {run["twin"] for run in plan["runs"]} == {
        "",
        "memory",
        "contended",
        "lines",
        "lines-longer-turns",
    }
    assert len(plan["checks"]) == 6
    kernels = [(kernel["arm"], kernel["flavour"]) for kernel in plan["kernels"]]
    assert kernels[:2] == [("patched", "perf"), ("base", "perf")]
    assert len({kernel["key"] for kernel in plan["kernels"]}) == len(kernels) == 6
    assert not any(kernel["cached"] for kernel in plan["kernels"])
    assert plan["checks"][2] == {
        "run_id": "check.base.selftest.v1",
        "arm": "base",
        "flavour": "selftest",
        "vcpus": 1,
        "cases": ["filemap-4k", "filemap-thp"],
        "selftests": ["xarray"],
    }
    assert [run["run_id"] for run in plan["runs"] if run["repeat"]] == [
        "filemap-4k.b00.patched.repeat",
        "filemap-thp.b00.patched.repeat",
    ]


def test_plan_for_people_has_a_line_a_run(main: Terminal) -> None:
    words = ("plan", "filemap-v4", "--set", "blocks=2", "--set", "guest=smoke")
    assert main(*words, "--json") == 0
    plan = json.loads(main.out)
    assert main(*words) == 0
    head, _, runs_and_checks = main.out.partition("\n\n")
    lines = runs_and_checks.splitlines()
    assert lines[0].split() == ["filemap-4k.b00.base", "seed", "1"]
    # The runs that are judged come first, those that explain last.
    judged = [run for run in plan["runs"] if not run["twin"]]
    explain = [run for run in plan["runs"] if run["twin"]]
    listed = [each["run_id"] for each in (*judged, *plan["checks"], *explain)]
    assert [line.split()[0] for line in lines] == listed
    assert "lockdep, 4 vCPUs: filemap-4k, filemap-thp" in runs_and_checks
    assert [line for line in lines if "repeat" in line] == [
        line for line in lines if "checks exactness" in line
    ]
    kernels, guests, runs, sizes, codes = head.splitlines()
    assert codes.startswith("exit: 0 no regression")
    assert kernels.startswith("6 kernels: 0 in the cache, 6 to be built, about ")
    assert "(an estimate): patched (perf), base (perf), patched (lockdep), " in kernels
    assert guests.startswith("6 guests for correctness checks")
    assert re.match(r"26 runs, \d+ at once: about \d+m\d\ds \(an estimate ", runs)
    assert sizes == "cgroup limit 32 MiB, file 52 MiB, brd 64 MiB, 4 jobs"
    assert main("plan", "filemap-v4", "--no-check") == 0
    assert "check." not in main.out


def test_the_cache_key_takes_the_options_of_a_run(main: Terminal, tmp_path: Path) -> None:
    def key(*arguments: str) -> str:
        assert main("cache-key", *arguments) == 0
        return main.out

    images = []
    for name in ("one", "two"):
        shipped.shipped(tmp_path / name, name)
        options = "".join(file.read_text() for file in sorted(KCONFIG.glob("*.config")))
        options += "CONFIG_X86_IOPL_IOPERM=y\n"
        (tmp_path / name / "boot/config-6.1.2-test").write_text(options)
        images.append(f"image:{tmp_path / name}/boot/vmlinuz-6.1.2-test")
    first, second = images
    both = key("--arm", first, "--arm", second)
    assert both == key("--arm", second, "--arm", first)
    assert both.startswith("kernels-")
    # A wall guest's kernel has the network besides.
    exact = key("noop")
    wall = key("noop", "--mode", "wall")
    assert len({exact, wall, both}) == 3
    assert main("cache-key", "noop", "--mode", "real") == 2


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UsageError("w", where="here", next_step="do"), 2, "error: here: w\nnext: do\n"),
        (InfraError("w", where="here"), 3, "error: here: w\n"),
        (WorkloadError("w"), 3, "error: w\n"),
        (SeriesError("w", where="0001.patch"), 4, "error: 0001.patch: w\n"),
        (SpecError(["a: b", "c: d"]), 2, "error: a: b\nerror: c: d\n"),
        (StoreError("torn"), 2, "error: torn\n"),
        (ReportError("mixed"), 2, "error: mixed\n"),
        (OSError(28, "No space left on device"), 3, "next: ./lab.py doctor\n"),
        (KeyboardInterrupt(), 130, "run the same command again\ninterrupted\n"),
        (ZeroDivisionError("oops"), 3, "a bug in the lab"),
        (AssertionError(), 3, "a bug in the lab"),
        (EOFError(), 3, "a bug in the lab"),
    ],
)
def test_whose_fault_it_was_is_the_exit_code(
    main: Terminal, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(build, "require_applies", lambda request: None)  # unpacks a kernel
    monkeypatch.setattr(building, "build_arms", fail)
    assert main("build", "noop") == code
    assert main.out == ""
    assert main.err.endswith(message) or message in main.err.splitlines()[-1]
    # People need the traceback of a bug, and no other.
    assert ("Traceback" in main.err) == ("a bug in the lab" in message)


@pytest.mark.parametrize(
    ("arguments", "option"),
    data(__file__, "a_folder_that_cannot_be_written_is_named_with_its_option"),
)
def test_a_folder_that_cannot_be_written_is_named_with_its_option(
    main: Terminal, tmp_path: Path, arguments: str, option: str
) -> None:
    file = tmp_path / "file"
    file.touch()
    store(tmp_path / "store")
    assert main("history", "add", tmp_path / "store", "--history", tmp_path / "h") == 0
    places = {"FILE": str(file), "STORE": str(tmp_path / "store"), "HISTORY": str(tmp_path / "h")}
    for word, place in places.items():
        arguments = arguments.replace(word, place)
    assert main(*arguments.split()) == Exit.USAGE
    shown = main.err
    assert f"\nerror: {option} {file}/" in f"\n{shown}"
    assert "Errno" not in shown
    assert "doctor" not in shown


def test_a_place_that_nobody_named_is_the_hosts() -> None:
    refused = OSError(errno.ENOTDIR, "Not a directory", "/etc/passwd/cache/x")
    named = ["run", "--session", "/etc/passwd/cache"]
    assert lab.option_of(refused, named) == "--session /etc/passwd/cache"
    assert lab.option_of(refused, ["run", "--session", "elsewhere"]) == ""
    full = OSError(errno.ENOSPC, "No space left on device", "/etc/passwd/cache/x")
    assert lab.option_of(full, named) == ""


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("verb", ["run", "measure"])
def test_an_interrupt_names_what_can_be_resumed(
    main: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verb: str, begun: bool
) -> None:
    folder = tmp_path / "my session"

    def start(*_: object) -> None:
        if begun:
            store(folder)
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "start", start)
    assert main(verb, "noop", "--session", folder) == lab.INTERRUPTED
    lines = main.err.splitlines()
    assert lines[-1] == "interrupted"
    resumed = f"./lab.py {verb} --resume '{folder}'"
    assert (resumed in lines[-2]) == begun
    assert ("run the same command again" in lines[-2]) != begun


def test_doctor_fails_only_where_a_check_does(
    main: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = doctor.DoctorCheck("fio", "ok", "3.33", "measures")
    old = doctor.DoctorCheck("fio", "warn", "3.1", "measures", "apt-get install fio")
    none = doctor.DoctorCheck("fio", "fail", "not found", "measures", "apt-get install fio")
    for check, code in ((good, 0), (old, 0), (none, 3)):
        monkeypatch.setattr(doctor, "run_checks", lambda check=check: [good, check])
        assert main("doctor") == code
        assert ("apt-get install fio" in main.out) == bool(check.mend)
        assert main("doctor", "--json") == code
        shown = json.loads(main.out)
        assert [row["status"] for row in shown] == ["ok", check.status]


SLOW = ExactSession(effect={"4k": -0.013, "thp": 0.0, "switch": 0.0})
NOISY = ExactSession(noise=0.02)
PATCHED = tuple(f"filemap-4k-{block:03d}-patched" for block in range(8))


@pytest.mark.parametrize(
    ("session", "broken", "failure", "flag", "code"),
    [
        (ExactSession(), (), {}, "--strict", 0),
        (SLOW, (), {}, "", 1),
        (SLOW, (), {}, "--no-judge", 0),
        (SLOW, PATCHED, {"kind": "lost", "blame": "host"}, "", 3),
        (ExactSession(), PATCHED, {"kind": "invalid", "blame": "workload"}, "", 3),
        (ExactSession(), PATCHED[:1], {"kind": "panic", "blame": "series"}, "", 4),
        (NOISY, (), {}, "", 0),
        (NOISY, (), {}, "--strict", 5),
        (ExactSession(same_code=True), (), {}, "--strict", 0),
    ],
)
def test_the_exit_code_of_a_report_is_its_verdict(
    main: Terminal,
    tmp_path: Path,
    session: ExactSession,
    broken: tuple[str, ...],
    failure: dict[str, str],
    flag: str,
    code: int,
) -> None:
    folder = store(tmp_path / "session", *broken, session=session, **failure)
    assert main("report", folder, *flag.split()) == code


def test_json_is_the_verdicts_and_in_full_everything(main: Terminal, tmp_path: Path) -> None:
    folder = store(tmp_path / "session", session=SLOW)
    assert main("report", folder, "--json") == Exit.REGRESSION
    printed = main.out
    shown = json.loads(printed)
    assert len(printed) < 20_000
    schema = json.loads((CHECKOUT / "docs/schema/verdicts.schema.json").read_text())
    jsonschema.validate(shown, schema)
    assert (shown["exit_code"], shown["primary"][0]["verdict"]) == (1, "regression")
    assert shown["primary"][0]["low"] < shown["primary"][0]["change"] < shown["primary"][0]["high"]
    assert main("report", folder, "--json=full") == Exit.REGRESSION
    assert "cases" in json.loads(main.out)["comparisons"][0]


def test_a_form_without_drawings_does_not_import_what_draws(tmp_path: Path) -> None:
    folder = str(store(tmp_path / "session"))
    code = (
        "import lab, sys\n"
        "for form in ('letter', 'lkp', 'mmtests', 'summary', 'text', 'json'):\n"
        f"    assert lab.main(['report', {folder!r}, '--form', form]) == 0\n"
        "    assert not {'matplotlib', 'pandas', 'pyarrow'} & set(sys.modules), form"
    )
    completed([sys.executable, "-c", code], cwd=CHECKOUT)


def test_overrides_of_the_environment_are_those_of_set(
    main: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWINBOOT_SET", "guest=smoke blocks=3")
    assert main("plan", "noop", "--json") == 0
    printed = main.out
    monkeypatch.delenv("TWINBOOT_SET")
    assert json.loads(printed)["seeds"] == [1, 2, 3]
    assert main("plan", "noop", "--json", "--set", "guest=smoke", "--set", "blocks=3") == 0
    assert main.out == printed


def test_pages_of_a_history(main: Terminal, tmp_path: Path) -> None:
    history, output = tmp_path / "history", tmp_path / "site"
    folder = store(tmp_path / "sessions" / "one")
    assert main("history", "add", folder, "--history", history) == 0
    assert main("pages", history, "-o", output) == 0
    assert main.out == f"{output / 'index.html'}\n"
    (output / "twinboot-site").unlink()
    assert main("pages", history, "-o", output) == Exit.USAGE
    assert "no site of the lab's" in main.err
    assert main("pages", history, "-o", output, "--sessions", "nowhere") == Exit.USAGE


def test_every_form_is_the_product_and_the_rest_is_log(main: Terminal, tmp_path: Path) -> None:
    folder = store(tmp_path / "session")
    before = set(folder.iterdir())
    printed = {}
    for form in FORMS:
        assert main("report", folder, "--form", form) == 0
        printed[form] = main.out
        # A form is printed and nothing else.
        assert "report.html" not in main.err
        assert "improvement" not in main.err
        # Text for people names the folder where it lies; a file says the same wherever it is.
        assert (str(folder) in main.out) == (form == "text")
    assert set(folder.iterdir()) == before
    assert json.loads(printed["json"])["manifest"]["session"] == "filemap-v4-20260101-000000"
    assert all("+1.3" in printed[form] for form in ("text", "letter", "summary"))
    assert main("report", folder, "--write") == 0
    assert main.out == printed["text"]
    assert main.err.endswith(f"report: {folder / 'report.html'}\n")
    for form, name in {"html": "report.html", "markdown": "report.md"}.items():
        # Printed: with the newline that print adds.
        assert printed[form].rstrip("\n") == (folder / name).read_text().rstrip("\n")


def test_as_a_process_from_anywhere(tmp_path: Path) -> None:
    done = as_process("plan", "noop", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["runs"]
    assert "Traceback" not in done.stderr


def test_without_a_verb_help_is_shown(main: Terminal) -> None:
    done = as_process()
    assert done.returncode == 2
    assert "Usage: lab.py" in done.stdout + done.stderr
    assert done.stderr.endswith("error: no verb named\nnext: ./lab.py --help\n")
    assert main("--help") == 0


@pytest.mark.parametrize(
    ("verb", "unbuffered"), [(("list",), "1"), (("plan", "noop", "--set", "blocks=200"), "")]
)
def test_a_reader_that_leaves_is_no_regression(verb: tuple[str, ...], unbuffered: str) -> None:
    """``./lab.py report SESSION | head -1`` under pipefail."""
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        done = subprocess.run(
            [sys.executable, str(CHECKOUT / "lab.py"), *verb],
            stdout=theirs,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    finally:
        os.close(theirs)
    assert done.returncode == 128 + signal.SIGPIPE
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def planned(main: Terminal) -> list[str]:
    runs = json.loads(main.out)["runs"]
    return sorted({run["case"] for run in runs})


def test_a_series_alone_makes_a_plan(
    main: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks = CHECKOUT / "configs/series/filemap-walks"
    patches = sorted(walks.glob("*.patch"))
    (tmp_path / "walks.mbox").write_bytes(b"".join(path.read_bytes() for path in patches))
    monkeypatch.chdir(tmp_path)
    assert main("plan", "--series", "walks.mbox", "--json") == 0
    assert planned(main) == ["filemap-4k", "filemap-thp"]
    argv = ["--series", "walks.mbox", "--workloads", "filemap-thp", "--set", "blocks=2", "--json"]
    assert main("plan", *argv) == 0
    assert planned(main) == ["filemap-thp"]
    stack = ["--series", "walks.mbox", "--series", str(CHECKOUT / "configs/series/noop")]
    assert main("plan", *stack, "--auto", "--json") == 0
    assert planned(main) == ["filemap-4k", "filemap-thp"]


@pytest.mark.parametrize("words", [(), ("--auto",)])
def test_a_series_is_measured_by_what_executes_it(main: Terminal, words: tuple[str, ...]) -> None:
    series = str(CHECKOUT / "configs/series/vmalloc-per-page")
    assert main("plan", "--series", series, *words, "--json") == 0
    assert "workloads: vmalloc (chosen by what the series changes)" in main.err
    assert {run["case"] for run in json.loads(main.out)["runs"]} == {"vmalloc"}


def test_a_hostile_series_ends_before_anything_is_built(main: Terminal, tmp_path: Path) -> None:
    patch = tmp_path / "evil.patch"
    patch.write_text(
        "From: a <a@b>\nSubject: [PATCH] \x1b[2Jx\n\n--- /dev/null\n+++ b/../\x1b[2Jevil\n"
        "@@ -0,0 +1 @@\n+x\n"
    )
    assert main("run", "--series", patch) == 4
    shown = main.err
    assert "names a path outside the kernel tree: b/../?[2Jevil" in shown
    assert "\x1b" not in shown
    assert not (tmp_path / "cache/trees").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root's boxes run as another user")
def test_boxes_can_read_what_a_careful_root_writes(main: Terminal, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        main("list", "--json")
        (tmp_path / "folder").mkdir()
    finally:
        os.umask(before)
    assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o755
