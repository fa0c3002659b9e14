import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from errors import SpecError
from tests.values import data, spaced
from tests.waiting import completed
from workloads.job_file import (
    ALIASES,
    JOBS,
    LAB_GIVES,
    OF_ENGINES,
    JobSection,
    options_of,
    read_job_file,
)
from workloads.spec import (
    CATALOGUE,
    Phase,
    load_catalogue,
    load_workload,
    phase_names,
    read_catalogue,
)

FIO_B = 'fio = ["--name=b", "--filename=/mnt/b"]'
GOOD: str = data(__file__, "good")


def add(line: str) -> str:
    """The good file with one more line in its first phase."""
    return swap("drop_caches = true", f"drop_caches = true\n{line}")


def load(folder: Path, text: str) -> list[str]:
    """Problems with a file of this text, without the folder."""
    file = folder / "small.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_workload(file)
    assert all(problem.startswith(f"{file}:") for problem in caught.value.problems)
    return [problem.removeprefix(f"{folder}/") for problem in caught.value.problems]


def swap(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new, 1)


def test_shipped_catalogue() -> None:
    loaded = load_catalogue()
    assert list(loaded) == [
        *spaced(
            "block cgroups compile direct filemap-4k filemap-thp iomap-dirty mapped-file "
            "memory-calls memory messaging metadata pages policies reclaim-overwrite redis sqlite "
            "statistics swap-compressed swap syscalls thp-matrix tracing trees vmalloc"
        )
    ]
    assert list(loaded) == [path.stem for path in sorted(CATALOGUE.glob("*.toml"))]
    names = {name: phases for name, phases in phase_names(loaded).items() if loaded[name].files(1)}
    assert len(names.pop("thp-matrix")) == 19
    assert names == {
        "filemap-4k": dict.fromkeys(("default", "ext4", "v1"), ("4k",)),
        "filemap-thp": dict.fromkeys(("default", "eight-opens", "v1"), ("thp", "switch")),
        "iomap-dirty": dict.fromkeys(("default", "1m", "64k", "ext4"), ("overwrite",)),
        "reclaim-overwrite": {"default": ("overwrite",)},
    }


def test_shipped_thp_keeps_the_caches_between_its_phases() -> None:
    thp, switch = load_catalogue()["filemap-thp"].phases
    assert (thp.drop_caches, thp.thp) == (True, "always")
    assert (switch.drop_caches, switch.thp) == (False, "never")


@pytest.mark.parametrize(
    ("release", "opens"), [("", 1), ("6.12", 1), ("6.18", 1), ("7.0", 8), ("7.3", 8), ("10.1", 8)]
)
def test_a_release_has_its_variant_for_the_default_one(release: str, opens: int) -> None:
    shipped = load_catalogue()["filemap-thp"]
    whole = shipped.on_release(release)
    for variant in ("default", "v1"):
        thp, switch = whole.phases_of(variant)
        assert thp.option("filename").split(":") == opens * ["/mnt/test.img"]
        assert switch == shipped.phases_of(variant)[1]
    assert (whole == shipped) == (opens == 1)
    assert ("eight" in whole.title) == (opens == 8)
    assert whole.files(4) == ("/mnt/test.img",)


def test_variant_changes_the_phases_it_names(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(GOOD)
    workload = load_workload(file)
    assert workload.phases_of("default") == workload.phases
    first, second = workload.phases_of("quick")
    assert first == workload.phases[0]
    assert second.fio == ("--name=c", "--filename=/mnt/b")
    assert second.thp == "always"


@pytest.mark.parametrize(
    ("old", "new", "problem"), data(__file__, "mistake_is_named_with_file_and_key")
)
def test_mistake_is_named_with_file_and_key(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    start = f"small.toml: {problem}"
    (message,) = [line for line in load(tmp_path, swap(old, new)) if line.startswith(start)]
    assert message != start


def test_what_only_a_file_system_on_a_device_has_and_what_is_no_toml(tmp_path: Path) -> None:
    text = swap('mkfs = "mkfs.ext4 -q"', 'fs = "tmpfs"').replace(
        "drop_caches = true", "drop_caches = true\nreadahead_kib = 64"
    )
    assert [line.split(": ")[1] for line in load(tmp_path, text)] == ["phases[0].readahead_kib"]
    assert load(tmp_path, "name = ")[0].startswith("small.toml:")


def test_units_of_work_are_data(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    unit = '{ name = "folio", title = "folio added", calls = ["__filemap_add_folio"] }'
    ratio = '{ name = "walks", title = "walks", calls = ["xas_load"], unit = "folio" }'
    file.write_text(add(f"units = [{unit}]\nratios = [{ratio}]"))
    first, second = load_workload(file).phases
    assert first.units[0].calls == ("__filemap_add_folio",)
    assert first.ratios[0].unit == "folio"
    # Without a word about it, work is I/O.
    assert [(unit.name, unit.ios) for unit in second.units] == [("io", True)]


def test_unknown_key_names_its_value(tmp_path: Path) -> None:
    (problem,) = load(tmp_path, swap("drop_caches = true", 'drop_caches = true\nnumjobs = "4"'))
    assert problem.startswith('small.toml: phases[0].numjobs: unknown key (value "4"); allowed: ')


@pytest.mark.parametrize(
    ("pattern", "directions"),
    [
        ("--rw=randread", {"read"}),
        ("--rw=read", {"read"}),
        ("--readwrite=write", {"write"}),
        ("--rw=randwrite:8", {"write"}),
        ("--rw=readwrite", {"read", "write"}),
        ("--rw=rw", {"read", "write"}),
        ("--rw=randrw", {"read", "write"}),
        ("--bs=4k", {"read"}),
    ],
)
def test_directions_of_a_phase(pattern: str, directions: set[str]) -> None:
    phase = Phase(name="p", drop_caches=True, thp="never", fio=("--name=a", pattern))
    assert phase.directions == directions


def test_the_last_value_of_an_option_holds() -> None:
    phase = Phase(name="p", drop_caches=True, thp="never", fio=("--bs=4k", "--bs=8k", "--fsync=0"))
    assert (phase.option("bs"), phase.option("b"), phase.syncs) == ("8k", "", False)


def test_a_variant_keeps_caches_that_cannot_be_dropped() -> None:
    workload = load_catalogue()["metadata"]
    dropped = {
        variant: [phase.name for phase in workload.phases_of(variant) if phase.drop_caches]
        for variant in ("default", "ext4", "tmpfs")
    }
    assert dropped == {"default": ["truncate"], "ext4": [], "tmpfs": ["truncate"]}


def test_a_variant_has_its_readahead_and_keeps_the_rest() -> None:
    workload = load_catalogue()["iomap-dirty"]
    (default,), (large,) = workload.phases_of("default"), workload.phases_of("1m")
    assert (default.readahead_kib, large.readahead_kib) == (64, 1024)
    assert (default.option("bs"), large.option("bs")) == ("64k,4k", "1m,4k")
    assert default.fio[2:] == tuple(
        "--bs=64k,4k" if argument == "--bs=1m,4k" else argument for argument in large.fio[2:]
    )


def test_only_a_workload_of_tmpfs_has_no_device() -> None:
    catalogue = load_catalogue()
    on_device = {
        name: {phase.on_device for phase in workload.phases_of("default")}
        for name, workload in catalogue.items()
    }
    without = {name for name, values in on_device.items() if values == {False}}
    assert without == {
        *spaced(
            "memory messaging pages policies swap swap-compressed syscalls thp-matrix trees vmalloc"
        )
    }
    assert all(on_device[name] == {True} for name in {*on_device} - without)
    # A variant may have another file system.
    assert {phase.on_device for phase in catalogue["metadata"].phases_of("tmpfs")} == {False}
    assert catalogue["metadata"].as_variant("tmpfs").mkfs == ""
    assert catalogue["metadata"].as_variant("ext4").mkfs.startswith("mkfs.ext4 ")


def test_files_are_the_jobs_own_or_one() -> None:
    loaded = load_catalogue()
    assert loaded["filemap-4k"].files(4) == ("/mnt/test.img",)
    assert loaded["iomap-dirty"].files(2) == ("/mnt/data.0.0", "/mnt/data.1.0")


JOB = data(__file__, "job")


def with_job(folder: Path, patch: pytest.MonkeyPatch, job: str, *more: str) -> Path:
    """A catalogue file whose second phase is this job file."""
    patch.setattr("workloads.spec.JOBS", folder)
    (folder / "own.fio").write_text(job)
    text = swap(FIO_B, 'job_file = "own.fio"').partition("[variants")[0]
    file = folder / "small.toml"
    file.write_text("\n".join([*more, text]))
    return file


def test_sections_are_variants_on_the_file_system_under_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = load_workload(with_job(tmp_path, monkeypatch, JOB))
    assert list(workload.variants) == ["seq-read", "rand"]
    fio = {name: workload.phases_of(name)[1].fio for name in ("default", "seq-read", "rand")}
    assert fio["default"] == fio["seq-read"]
    assert fio["seq-read"] == (
        "--name=Seq Read",
        "--bs=4k",
        "--filename=/mnt/test-file",
        "--rw=read",
    )
    # What is read is there before it is read.
    assert workload.as_variant("rand").files(4) == ("/mnt/test.img", "/mnt/test-file")
    guest = workload.in_guest(page_bytes=16384, vcpus=3)
    assert guest.phases_of("rand")[1].fio[1:] == spaced(
        "--bs=16384 --filename=/mnt/test-file --rw=randread --iodepth=3"
    )
    places = guest.phases_of("rand")[1].places
    assert places["bs"] == f"{tmp_path}/own.fio:9 [rand]"
    assert places["filename"] == f"{tmp_path}/own.fio:3 [global]"


def test_jobs_with_files_of_their_own_have_those_that_are_laid_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = with_job(tmp_path, monkeypatch, "[a]\nrw=read\n", "file_per_job = true")
    file.write_text(file.read_text().replace('"--filename=/mnt/test.img"', '"--directory=/mnt"'))
    assert load_workload(file).phases[1].fio == spaced(
        "--name=a --rw=read --filename_format=data.$jobnum.$filenum --directory=/mnt"
    )


@pytest.mark.parametrize(
    ("job", "line"), data(__file__, "mistakes_of_a_job_are_named_at_their_line")
)
def test_mistakes_of_a_job_are_named_at_their_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str, line: str
) -> None:
    with pytest.raises(SpecError) as caught:
        load_workload(with_job(tmp_path, monkeypatch, job))
    assert f"{tmp_path}/{line}" in caught.value.problems[0]


def test_a_file_that_cannot_be_used_stops_no_other(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(GOOD)
    for name, text in (("bad", GOOD), ("cut", "name = "), ("job", swap(FIO_B, "job_file = 'x'"))):
        (tmp_path / f"{name}.toml").write_text(text)
    (tmp_path / "bytes.toml").write_bytes(b"name = '\xff'")
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "large.toml").write_text(f"{GOOD}#{'x' * (1 << 20)}")
    (tmp_path / "nested.toml").write_text(f"name = {'[' * 5000}")
    os.mkfifo(tmp_path / "pipe.toml")
    assert list(load_catalogue(tmp_path)) == ["small"]
    usable, broken = read_catalogue(tmp_path)
    assert list(usable) == ["small"]
    assert list(broken) == ["bad", "bytes", "cut", "folder", "job", "large", "nested", "pipe"]
    assert broken["bad"] == (
        f"{tmp_path}/bad.toml: name: found 'small'; the name of the file is wanted, 'bad'",
    )
    assert all(
        lines[0].startswith(str(tmp_path)) for name, lines in broken.items() if name != "job"
    )


SHIPPED = sorted(JOBS.glob("*.fio"))


def command_of(file: Path) -> str:
    """What fio reads in a file, as the command line that it shows."""
    done = completed(["fio", "--showcmd", str(file)], cwd=file.parent)
    assert not done.stderr
    return done.stdout.strip()


def fios_own(command: str) -> dict[str, str]:
    """The options of one job on a command line of fio's, besides its name."""
    options: dict[str, str] = {}
    for word in command.split(" --")[1:]:
        key, _, value = word.rstrip().partition("=")
        # It quotes what has a blank in it, and leaves the blank where none is needed.
        key, value = key.strip(), value.strip('"')
        # A section's own value comes after the one of [global]; files are added.
        options[key] = f"{options[key]}:{value}" if key in options and key == "filename" else value
    return {key: value for key, value in options.items() if key not in (*LAB_GIVES, "name")}


def ours(section: JobSection) -> dict[str, str]:
    keywords = {"$pagesize": str(os.sysconf("SC_PAGESIZE")), "$ncpus": str(os.cpu_count())}
    options = options_of(section.fio[1:])
    for word, value in keywords.items():
        options = {key: each.replace(word, value) for key, each in options.items()}
    return options


OPTIONS = data(__file__, "options")
NOISE = st.sampled_from(["", "; a", "#b=c", "  # [x]", "\t", "   "])
LINES = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "  ", "\t"]),
    st.sampled_from(OPTIONS),
    st.sampled_from(["", " ", "  ; c", "\t#c;d", "# e=f"]),
)
BLOCKS = st.tuples(
    st.sampled_from(["global", "global", "globals", "a", "job one", "Q8T1", "a", "1"]),
    st.sampled_from(["[{}]", "  [{}]", "[{}] ; c", "[{}]#"]),
    st.lists(st.one_of(LINES, LINES, NOISE), max_size=6),
)


@given(st.lists(BLOCKS, min_size=1, max_size=5))
@example([("global", "[{}]", ["filename=x"]), ("global", "[{}]", []), ("a", "[{}]", [])])
# Each asks fio once a job.
@settings(max_examples=8, deadline=None)
def test_any_file_is_what_fio_reads_in_it(blocks: list[tuple[str, str, list[str]]]) -> None:
    texts = ["\n".join([form.format(title), *lines]) for title, form, lines in blocks]
    jobs = [number for number, block in enumerate(blocks) if not block[0].startswith("global")]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIO_BS", "32k")
        place = Path(folder)
        (place / "common.fio").write_text("; of all\n  bs=2k ; c\n\nfsync=1\n")
        (place / "all.fio").write_text("\n; head\n" + "\n".join(texts))
        if not jobs:
            with pytest.raises(SpecError, match="nothing to run"):
                read_job_file(place / "all.fio")
            return
        sections = read_job_file(place / "all.fio")
        assert len(sections) == len(jobs)
        for number, section in zip(jobs, sections.values(), strict=True):
            above = [text for at, text in enumerate(texts[:number]) if at not in jobs]
            # Under one head: for each further one fio shows all that is above it once more.
            above[1:] = [text.partition("\n")[2] for text in above[1:]]
            (place / "own.fio").write_text("\n".join([*above, texts[number]]))
            assert ours(section) == fios_own(command_of(place / "own.fio"))
            assert section.fio[0] == f"--name={blocks[number][0]}"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_arguments_say_what_fio_reads_in_a_shipped_file(path: Path) -> None:
    # Each has one [global], which is shown first and holds for all.
    shared, *jobs = command_of(path).split(" --name=")
    sections = read_job_file(path)
    assert [section.fio[0] for section in sections.values()] == [f"--name={n}" for n in sections]
    assert [ours(section) for section in sections.values()] == [
        fios_own(f"{shared} --name={job}") for job in jobs
    ]
    # To be run by hand it needs a size, jobs and an end.
    assert {"size", "numjobs", "runtime"} <= {
        line.partition("=")[0] for line in path.read_text().splitlines()
    }


def test_workloads_have_the_settings_of_their_files() -> None:
    loaded = load_catalogue()
    matrix = read_job_file(JOBS / "thp-matrix.fio")
    assert len(matrix) == 18
    for section, job in matrix.items():
        (phase,) = loaded["thp-matrix"].phases_of(section)
        assert phase.fio == (*job.fio, "--directory=/mnt")
        engine, _, pattern = section.partition("-")
        assert (phase.option("ioengine"), phase.option("rw")) == (engine, pattern)
        assert phase.places["rw"].endswith(f"thp-matrix.fio:{phase.places['rw'].split(':')[1]}")
    assert loaded["thp-matrix"].phases[0].fio[:-1] == matrix["sync-read"].fio
    dirty = read_job_file(JOBS / "iomap-dirty.fio")
    for section, job in dirty.items():
        assert loaded["iomap-dirty"].phases_of(section)[0].fio[:-1] == job.fio


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[global]\nbs=4k\n", "x.fio: no section besides [global]"),
        ("", "x.fio: no section besides [global]"),
        ("\n bs=4k ; c\n[a]\n", "x.fio:2: found 'bs=4k' before the first [section]"),
        (None, "x.fio: no job file that can be read: "),
        ("[a]\ninclude gone.fio\n", "x.fio:2: gone.fio: no job file that can be read: "),
        ("[a]\ninclude x.fio\n", "x.fio:2: x.fio:1: a section in a file that another one includes"),
        ("[a]\nbs=$pagesize*2\n", "x.fio:2 [a]: bs=$pagesize*2: fio has bc calculate this"),
        ("[a b]\nrate=$mb_memory\n", "x.fio:2 [a b]: rate=$mb_memory: what a guest's kernel"),
        (
            "[a]\n\nbs=${FIO_NONE}\n",
            "x.fio:3 [a]: bs=${FIO_NONE}: FIO_NONE is not set in this environment",
        ),
        (
            "[a]\ndescription=${HOME}\n",
            "x.fio:2 [a]: description=${HOME}: HOME is of this host's environment",
        ),
        ("[global]\nread_iolog=/x\n[a]\n", "x.fio:2 [global]: read_iolog=/x: the guest has no"),
        ("[a]\nunified_rw_reporting=1\n", "x.fio:2 [a]: unified_rw_reporting=1: reads and writes"),
    ],
)
def test_mistake_is_named_with_its_place(tmp_path: Path, text: str | None, problem: str) -> None:
    path = tmp_path / "x.fio"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SpecError) as caught:
        read_job_file(path)
    assert caught.value.problems[0].startswith(f"{tmp_path}/{problem}")


@pytest.mark.parametrize(
    ("included", "problem"),
    [
        ("pipe", "is no plain file"),
        ("link", "is a link, which is not followed"),
        ("large", "has more than"),
        ("secret", "more than 100 files, or 256 KiB of them"),
        ("/etc/passwd", "is no name below its folder"),
        ("../secret", "is no name below its folder"),
    ],
)
def test_what_a_job_file_includes_is_a_small_plain_file_beside_it(
    tmp_path: Path, included: str, problem: str
) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    (tmp_path / "secret").write_text("x\n")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "secret").write_text("bs=4k\n")
    with (folder / "large").open("wb") as file:
        file.truncate(1 << 40)
    (folder / "x.fio").write_text("[a]\n" + f"include {included}\n" * 120)
    with pytest.raises(SpecError) as caught:
        read_job_file(folder / "x.fio")
    assert problem in caught.value.problems[0]


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "../jobs/../../secret"])
def test_a_workload_names_no_file_beside_the_job_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "secret").write_text("[a]\nbs=4k\n")
    (tmp_path / "workloads/jobs").mkdir(parents=True)
    monkeypatch.setattr("workloads.spec.JOBS", tmp_path / "workloads/jobs")
    job = swap('fio = ["--name=b", "--filename=/mnt/b"]', f'job_file = "{name}"')
    (tmp_path / "small.toml").write_text(job)
    with pytest.raises(SpecError, match="is no name below"):
        load_workload(tmp_path / "small.toml")


def test_a_workload_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret = [\n")
    (tmp_path / "small.toml").symlink_to(tmp_path / "secret")
    with pytest.raises(SpecError, match="is no plain file"):
        load_workload(tmp_path / "small.toml")


def test_files_that_include_themselves_many_times_end(tmp_path: Path) -> None:
    (tmp_path / "self").write_text("include self\n" * 200)
    (tmp_path / "x.fio").write_text("[a]\ninclude self\n")
    with pytest.raises(SpecError, match="include each other"):
        read_job_file(tmp_path / "x.fio")


def test_every_mistake_of_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.fio"
    path.write_text("[a]\nread_iolog=1\n[b]\nbs=${FIO_NONE}\n")
    with pytest.raises(SpecError) as caught:
        read_job_file(path)
    assert len(caught.value.problems) == 2


def read(folder: Path, text: str) -> dict[str, tuple[str, ...]]:
    path = folder / "x.fio"
    path.write_text(text)
    return {name: job.fio for name, job in read_job_file(path).items()}


def test_sections_have_names_that_experiments_can_use(tmp_path: Path) -> None:
    titles = ["RND4K Q32T16", "a_b", "a b", "A-B", "default", "読む", "rnd4k-q32t16"]
    sections = read(tmp_path, "".join(f"[{title}]\nrw=read\n" for title in titles))
    names = ["rnd4k-q32t16", "a_b", "a-b", "section-4", "section-5", "section-6", "section-7"]
    assert list(sections) == names
    assert [fio[0] for fio in sections.values()] == [f"--name={title}" for title in titles]


def test_a_job_has_the_name_that_fio_gives_it(tmp_path: Path) -> None:
    shared = "[global]\nname=all\nioengine=null\nsize=4k\n"
    sections = read(tmp_path, f"{shared}[a]\nrw=read\n[b]\nname=own name\nrw=read\n")
    done = completed(["fio", "--output-format=json", str(tmp_path / "x.fio")], cwd=tmp_path)
    names = [job["jobname"] for job in json.loads(done.stdout)["jobs"]]
    assert [fio[0] for fio in sections.values()] == [f"--name={name}" for name in names]
    assert names == ["a", "own name"]


def test_an_engine_comes_before_its_options(tmp_path: Path) -> None:
    text = "[global]\nhipri\nrw=read\n[a]\nioengine=io_uring\n"
    fio = read(tmp_path, text)["a"]
    assert fio == ("--name=a", "--ioengine=io_uring", "--hipri", "--rw=read")
    parse = ["fio", "--parse-only"]
    assert subprocess.run([*parse, *fio], timeout=300, cwd=tmp_path).returncode == 0
    before = [fio[0], *fio[2:], fio[1]]
    assert subprocess.run([*parse, *before], timeout=300, cwd=tmp_path).returncode != 0


def test_names_of_options_are_those_of_fio() -> None:
    def output_of(word: str) -> str:
        return completed(["fio", word]).stdout

    for alias, name in ALIASES.items():
        assert re.search(rf"alias: {alias}\n", output_of(f"--cmdhelp={name}")), name
    engines = ("mmap", "pvsync2", "libaio", "io_uring", "filestat", "e4defrag")
    every = "".join(output_of(f"--enghelp={engine}") for engine in engines)
    assert frozenset(re.findall(r"^ *([a-z0-9_]+) +:", every, re.M)) == OF_ENGINES
