"""Job files: what fio itself makes of them is what the lab gives to fio."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errors import SpecError
from workloads.job_file import (
    ALIASES,
    JOBS,
    LAB_GIVES,
    OF_ENGINES,
    JobSection,
    options_of,
    read_job_file,
)
from workloads.spec import load_catalogue

SHIPPED = sorted(JOBS.glob("*.fio"))
SECTIONS = [
    pytest.param(path, section, id=f"{path.stem}-{section}")
    for path in SHIPPED
    for section in read_job_file(path)
]


def fios_own(text: str, folder: Path) -> dict[str, str]:
    """The options of a file with one section, besides its name, as fio writes them."""
    file = folder / "fios.fio"
    file.write_text(text)
    done = subprocess.run(
        ["fio", "--showcmd", str(file)],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
    )
    assert not done.stderr
    options: dict[str, str] = {}
    for word in done.stdout.strip().split(" --")[1:]:
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


OPTIONS = (
    "bs=4k",
    "blocksize=8k",
    "bs=16k,4k",
    "bs=$pagesize",
    "bs=${TWINBOOT_BS}",
    "rw=randread",
    "readwrite=write",
    "rw=read",
    "thread",
    "thread=0",
    "direct=1",
    "iodepth=4",
    "iodepth = 8",
    "blockalign=8k",
    "ba=4k",
    "filename=x",
    "filename=y:z",
    "ioengine=psync",
    "ioengine=mmap",
    "description=a b c",
    "bsrange=4k-64k",
    "loops=3",
    "size=1g",
    "numjobs=$ncpus",
    "stonewall",
    "include common.fio",
    "includeXcommon.fio",
    "timeout=9",
    "nr_files=2",
    "invalidate=0",
    "rwmixread=50",
    "random_distribution=normal:20",
    "percentage_random=100,50",
    "thinktime=1",
)
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
@settings(max_examples=25, deadline=None)
def test_any_file_is_what_fio_reads_in_it(blocks: list[tuple[str, str, list[str]]]) -> None:
    texts = ["\n".join([form.format(title), *lines]) for title, form, lines in blocks]
    jobs = [number for number, block in enumerate(blocks) if not block[0].startswith("global")]
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TWINBOOT_BS", "32k")
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
            assert ours(section) == fios_own("\n".join([*above, texts[number]]), place)
            assert section.fio[0] == f"--name={blocks[number][0]}"


@pytest.mark.parametrize(("path", "section"), SECTIONS)
def test_arguments_say_what_fio_reads_in_a_shipped_file(
    path: Path, section: str, tmp_path: Path
) -> None:
    head, *rest = re.split(r"^(?=\[)", path.read_text(), flags=re.M)
    shared, own = rest[0], next(text for text in rest if text.startswith(f"[{section}]"))
    job = read_job_file(path)[section]
    assert job.fio[0] == f"--name={section}"
    assert ours(job) == fios_own(head + shared + own, tmp_path)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_fio_takes_the_file_as_it_is(path: Path) -> None:
    done = subprocess.run(
        ["fio", "--parse-only", str(path)], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
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
            "[a]\n\nbs=${TWINBOOT_NONE}\n",
            "x.fio:3 [a]: bs=${TWINBOOT_NONE}: TWINBOOT_NONE is not set in this environment",
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


def test_every_mistake_of_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.fio"
    path.write_text("[a]\nread_iolog=1\n[b]\nbs=${TWINBOOT_NONE}\n")
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
    done = subprocess.run(
        ["fio", "--output-format=json", str(tmp_path / "x.fio")],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
    )
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
        return subprocess.run(
            ["fio", word], check=True, capture_output=True, text=True, timeout=300
        ).stdout

    for alias, name in ALIASES.items():
        assert re.search(rf"alias: {alias}\n", output_of(f"--cmdhelp={name}")), name
    engines = ("mmap", "pvsync2", "libaio", "io_uring", "filestat", "e4defrag")
    every = "".join(output_of(f"--enghelp={engine}") for engine in engines)
    assert frozenset(re.findall(r"^ *([a-z0-9_]+) +:", every, re.M)) == OF_ENGINES
