from __future__ import annotations

from pathlib import Path

import pytest

from errors import SpecError
from workloads.spec import (
    CATALOGUE,
    Phase,
    load_catalogue,
    load_workload,
    phase_names,
    read_catalogue,
)

FIO_B = 'fio = ["--name=b", "--filename=/mnt/b"]'
GOOD = """\
name = "small"
title = "a small workload"
mkfs = "mkfs.ext4 -q"
mount_options = "noatime"

[[phases]]
name = "one"
drop_caches = true
thp = "never"
fio = ["--name=a", "--rw=randread", "--filename=/mnt/test.img"]
checks = ["refaults"]

[[phases]]
name = "two"
drop_caches = false
thp = "always"
fio = ["--name=b", "--filename=/mnt/b"]

[variants.quick.fio]
two = ["--name=c", "--filename=/mnt/b"]
"""


def add(line: str) -> str:
    """The good file with one more line in its first phase."""
    return swap("drop_caches = true", f"drop_caches = true\n{line}")


def load(folder: Path, text: str) -> list[str]:
    """Problems with a file of this text, without the folder."""
    file = folder / "small.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_workload(file)
    assert all(problem.startswith(f"{file}: ") for problem in caught.value.problems)
    return [problem.removeprefix(f"{folder}/") for problem in caught.value.problems]


def swap(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new, 1)


def test_shipped_catalogue() -> None:
    loaded = load_catalogue()
    assert list(loaded) == [
        "block",
        "cgroups",
        "compile",
        "direct",
        "filemap-4k",
        "filemap-thp",
        "iomap-dirty",
        "memory-calls",
        "memory",
        "messaging",
        "metadata",
        "pages",
        "policies",
        "reclaim-overwrite",
        "redis",
        "sqlite",
        "statistics",
        "swap-compressed",
        "swap",
        "syscalls",
        "thp-matrix",
        "tracing",
        "trees",
        "vmalloc",
    ]
    assert list(loaded) == [path.stem for path in sorted(CATALOGUE.glob("*.toml"))]
    names = {name: phases for name, phases in phase_names(loaded).items() if loaded[name].files(1)}
    assert len(names.pop("thp-matrix")) == 19
    assert names == {
        "filemap-4k": dict.fromkeys(("default", "ext4", "v1"), ("4k",)),
        "filemap-thp": {"default": ("thp", "switch"), "v1": ("thp", "switch")},
        "iomap-dirty": dict.fromkeys(("default", "1m", "64k", "ext4"), ("overwrite",)),
        "reclaim-overwrite": {"default": ("overwrite",)},
    }


def test_shipped_thp_keeps_the_caches_between_its_phases() -> None:
    thp, switch = load_catalogue()["filemap-thp"].phases
    assert (thp.drop_caches, thp.thp) == (True, "always")
    assert (switch.drop_caches, switch.thp) == (False, "never")


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
    ("text", "problem"),
    [
        (swap("title =", "titel ="), "small.toml: titel: "),
        (swap('mkfs = "mkfs.ext4 -q"\n', ""), "small.toml: mkfs: "),
        (swap("mkfs =", 'fs = "tmpfs"\nmkfs ='), "small.toml: mkfs: "),
        (swap('mkfs = "mkfs.ext4 -q"', 'fs = "ext9"'), "small.toml: fs: "),
        (add("on_device = false"), "small.toml: phases.0.on_device: "),
        (add("readahead_kib = -1"), "small.toml: phases.0.readahead_kib: "),
        (
            swap('mkfs = "mkfs.ext4 -q"', 'fs = "tmpfs"').replace(
                "drop_caches = true", "drop_caches = true\nreadahead_kib = 64"
            ),
            "small.toml: phases.0.readahead_kib: ",
        ),
        (
            swap(
                "[variants.quick.fio]",
                "[variants.quick.readahead_kib]\nthree = 4\n[variants.quick.fio]",
            ),
            "small.toml: variants.quick.readahead_kib.three: ",
        ),
        (
            swap(
                "[variants.quick.fio]",
                "[variants.quick.drop_caches]\nthree = true\n[variants.quick.fio]",
            ),
            "small.toml: variants.quick.drop_caches.three: ",
        ),
        (swap(FIO_B, "fio = []\njob_file = 7"), "small.toml: phases.1.job_file: "),
        (swap("drop_caches = true", "drop_cache = true"), "small.toml: phases.0.drop_cache: "),
        (swap('thp = "never"', 'thp = "off"'), "small.toml: phases.0.thp: "),
        (swap('["refaults"]', '["refault"]'), "small.toml: phases.0.checks.0: "),
        (swap(FIO_B, 'fio = "--name=b"'), "small.toml: phases.1.fio: "),
        (swap("[variants.quick.fio]", "[variants.quick.fioo]"), "small.toml: variants.quick.fioo"),
        (swap('two = ["--name=c"', 'tow = ["--name=c"'), "small.toml: variants.quick.fio.tow: "),
        (swap('name = "two"', 'name = "one"'), "small.toml: phases.1.name: "),
        (swap("variants.quick", "variants.default"), "small.toml: variants.default: "),
        (swap('"--name=b"', '"--allrandrepeat=1"'), "small.toml: phases.1.fio.0: "),
        (
            swap('"--name=c"', '"--name=c", "--randrepeat=1"'),
            "small.toml: variants.quick.fio.two.1: ",
        ),
        (swap('"--rw=randread"', '"--randseed=3"'), "small.toml: phases.0.fio.1: "),
        (swap('name = "small"', 'name = "smalls"'), "small.toml: name: "),
        (add('units = [{ name = "f", title = "fault" }]'), "small.toml: phases.0.units.0: "),
        (
            add('units = [{ name = "f", title = "fault", ios = true, counter = "pgfault" }]'),
            "small.toml: phases.0.units.0: ",
        ),
        (
            add(
                'units = [{ name = "f", title = "", ios = true }, '
                '{ name = "f", title = "", counter = "pgfault" }]'
            ),
            "small.toml: phases.0: ",
        ),
        (
            add('ratios = [{ name = "r", title = "", calls = ["a"], unit = "folio" }]'),
            "small.toml: phases.0: ",
        ),
        ("name = ", "small.toml: "),
    ],
)
def test_mistake_is_named_with_file_and_key(tmp_path: Path, text: str, problem: str) -> None:
    (message,) = [line for line in load(tmp_path, text) if line.startswith(problem)]
    assert message != problem


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
    problems = load(tmp_path, swap("drop_caches = true", 'drop_caches = true\nnumjobs = "4"'))
    assert problems == ["small.toml: phases.0.numjobs: Extra inputs are not permitted (found '4')"]


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
        "memory",
        "messaging",
        "pages",
        "policies",
        "swap",
        "swap-compressed",
        "syscalls",
        "thp-matrix",
        "trees",
        "vmalloc",
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


JOB = """\
[global]
bs=4k
filename=test-file

[Seq Read]
rw=read
[rand]
rw=randread
bs=$pagesize ; of the guest
iodepth=$ncpus
"""


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
    assert guest.phases_of("rand")[1].fio[1:] == (
        "--bs=16384",
        "--filename=/mnt/test-file",
        "--rw=randread",
        "--iodepth=3",
    )
    places = guest.phases_of("rand")[1].places
    assert places["bs"] == f"{tmp_path}/own.fio:9 [rand]"
    assert places["filename"] == f"{tmp_path}/own.fio:3 [global]"


def test_jobs_with_files_of_their_own_have_those_that_are_laid_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = with_job(tmp_path, monkeypatch, "[a]\nrw=read\n", "file_per_job = true")
    file.write_text(file.read_text().replace('"--filename=/mnt/test.img"', '"--directory=/mnt"'))
    assert load_workload(file).phases[1].fio == (
        "--name=a",
        "--rw=read",
        "--filename_format=data.$jobnum.$filenum",
        "--directory=/mnt",
    )


@pytest.mark.parametrize(
    ("job", "line"),
    [
        ("[a]\nfilename=/tmp/x\n", "own.fio:2 [a]: filename: /tmp/x is not in /mnt"),
        ("[global]\nfilename=x:../y\n[a]\n", "own.fio:2 [global]: filename: /mnt/../y is not in"),
        ("[a]\nfilename=/mnt/d/x\n", "own.fio:2 [a]: filename: /mnt/d/x is not in /mnt"),
        ("[a]\nfilename=/dev/ram0\n", "own.fio:2 [a]: filename: /dev/ram0 is not in /mnt"),
        ("[a]\nfilename=a b\n", "own.fio:2 [a]: filename: /mnt/a b: letters"),
        ("[a]\nopendir=/mnt\n", "own.fio:2 [a]: opendir: "),
        ("[a]\nioengine=null\n", "own.fio:2 [a]: ioengine: null reads and writes no file"),
        ("[a]\nrandseed=3\n", "own.fio:2 [a]: --randseed is the lab's to give"),
        ("[a]\nrate=$mb_memory\n", "own.fio:2 [a]: rate=$mb_memory: "),
    ],
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
    assert list(load_catalogue(tmp_path)) == ["small"]
    usable, broken = read_catalogue(tmp_path)
    assert list(usable) == ["small"]
    assert list(broken) == ["bad", "bytes", "cut", "folder", "job"]
    assert broken["bad"] == (
        f"{tmp_path}/bad.toml: name: found 'small'; the name of the file is wanted, 'bad'",
    )
    assert all(
        lines[0].startswith(str(tmp_path)) for name, lines in broken.items() if name != "job"
    )
