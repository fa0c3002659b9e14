"""Names that the catalogue does not hold: what may stand there, and what was meant."""

from dataclasses import replace
from pathlib import Path

import pytest

from errors import SpecError
from experiment.load import Catalogue, load_experiment
from experiment.spec import Experiment
from tests.experiment.conftest import GOOD, Problems, swap
from tests.values import spaced

NEAREST_SERIES = "configs/series/noop, configs/series/slow-add-80, configs/series/filemap-walks"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param(
            swap('workload = "filemap-4k"', 'workload = "filemap-4kb"'),
            'small.toml: cases[0].workload: found "filemap-4kb": unknown; '
            "allowed: filemap-4k, filemap-thp; did you mean 'filemap-4k'?",
            id="unknown workload",
        ),
        pytest.param(
            swap('workload = "filemap-4k"', 'workload = "filemap-4k"\nvariant = "v2"'),
            'small.toml: cases[0].variant: found "v2": unknown; allowed: v1, default',
            id="unknown variant",
        ),
        pytest.param(
            f'guest = "labtop"\n{GOOD}',
            'small.toml: guest: found "labtop": unknown; allowed: laptop, wall, full, smoke; '
            "did you mean 'laptop'?",
            id="unknown guest",
        ),
        pytest.param(
            swap("[kernel]", '[kernel]\nflavour = "lockdeps"'),
            'small.toml: kernel.flavour: found "lockdeps": unknown; allowed: lockdep, perf, '
            "selftest; "
            "did you mean 'lockdep'?",
            id="unknown flavour",
        ),
        pytest.param(
            swap('path = "configs/series/noop"', 'path = "noop"'),
            f'small.toml: series.path: found "noop": unknown; allowed: {NEAREST_SERIES}; '
            "did you mean 'configs/series/noop'?",
            id="unknown series",
        ),
        pytest.param(
            swap(
                'path = "configs/series/noop"',
                'path = "/my/own.mbox"\nstack = ["mid:a@b", "v1..v2", "/my/own", "nop"]',
            ),
            f'small.toml: series.stack[3]: found "nop": unknown; allowed: {NEAREST_SERIES}; '
            "did you mean 'configs/series/noop'?",
            id="unknown series in a stack",
        ),
        pytest.param(
            swap('primary = ["thp.bw"]', 'primary = ["thp.bw"]\nwall_primary = ["thp.bww"]'),
            'small.toml: cases[1].wall_primary[0]: found "thp.bww": no metric is named '
            "'bww'; allowed: bw, work, file_thp_mib, refaults_per_io, path and 4 more; "
            "did you mean 'thp.bw'?",
            id="primary of wall mode names an unknown metric",
        ),
        pytest.param(
            swap(
                'primary = ["thp.bw"]',
                'primary = ["thp.bw"]\nthresholds = { "thp.runtime" = 0.05 }',
            ),
            'small.toml: cases[1].thresholds."thp.runtime": found "thp.runtime": no metric is '
            "named 'runtime'; allowed: file_thp_mib, ios, work, refaults_per_io, path and 4 more",
            id="threshold of an unknown metric",
        ),
        pytest.param(
            swap('"4k.iops"', '"4k.iopps"'),
            'small.toml: cases[0].primary[1]: found "4k.iopps": no metric is named '
            "'iopps'; allowed: iops, ios, file_thp_mib, work, path and 4 more; "
            "did you mean '4k.iops'?",
            id="primary names an unknown metric",
        ),
        pytest.param(
            swap('primary = ["thp.bw"]', 'primary = ["4k.bw"]'),
            'small.toml: cases[1].primary[0]: found "4k.bw": the workload has no phase '
            "'4k'; allowed: switch, thp",
            id="primary names a phase of another workload",
        ),
        pytest.param(
            swap('primary = ["thp.bw"]', 'primary = ["tph.bw"]'),
            'small.toml: cases[1].primary[0]: found "tph.bw": the workload has no phase '
            "'tph'; allowed: thp, switch; did you mean 'thp.bw'?",
            id="primary names a phase that does not exist",
        ),
        pytest.param(
            swap('"4k.iops"', '"iops"'),
            'small.toml: cases[0].primary[1]: found "iops": is not PHASE.METRIC; '
            "allowed: 4k.iops, 4k.ios, 4k.work, 4k.path, 4k.file_thp_mib and 4 more; "
            "did you mean '4k.iops'?",
            id="primary without a phase",
        ),
        pytest.param(
            swap('"4k.iops"', '"4k.bw"'),
            'small.toml: cases[0].primary[1]: found "4k.bw": named twice',
            id="primary twice",
        ),
        pytest.param(
            swap('metric = "4k.bw"', 'metric = "4k.bandwith"'),
            'small.toml: cases[0].published[0].metric: found "4k.bandwith": no metric is '
            "named 'bandwith'; allowed: path, bw, file_thp_mib, ios, refaults_per_io and 4 more",
            id="published metric that does not exist",
        ),
        pytest.param(
            swap("base = 100", "base = 0"),
            "small.toml: cases[0].published[0].base: found 0: must not be 0, the change is "
            "relative to it",
            id="published change of nothing",
        ),
        pytest.param(
            f'guest = "smoke"\n{swap("laptop.4k", "smoke.4k")}',
            "small.toml: cases[1].times.smoke: missing: no times for guest 'smoke'; "
            "given for: laptop",
            id="no times for the guest",
        ),
        pytest.param(
            swap("laptop.switch = { ramp_s = 0, runtime_s = 0.5 }\n", ""),
            "small.toml: cases[1].times.laptop.switch: missing: no times for phase "
            "'switch'; given for: thp",
            id="no times for a phase",
        ),
        pytest.param(
            swap("[cases.times]", "[cases.times]\nlapdog.4k = { ramp_s = 0, runtime_s = 2 }"),
            'small.toml: cases[0].times.lapdog: found "lapdog": unknown guest; '
            "allowed: laptop, wall, full, smoke; did you mean 'laptop'?",
            id="times for an unknown guest",
        ),
        pytest.param(
            swap("[cases.times]", "[cases.times]\nlaptop.4kb = { ramp_s = 0, runtime_s = 2 }"),
            'small.toml: cases[0].times.laptop.4kb: found "4kb": unknown phase; '
            "allowed: 4k; did you mean '4k'?",
            id="times for an unknown phase",
        ),
    ],
)
def test_one_unknown_name_is_one_line(problems: Problems, text: str, line: str) -> None:
    assert problems(text) == [line]


def test_an_unknown_workload_does_not_hide_other_mistakes(problems: Problems) -> None:
    text = swap('workload = "filemap-4k"', 'workload = "filemap-4kb"').replace(
        "4k.iops", "4k.ioops"
    )
    keys = [line.split(": ")[1] for line in problems(text.replace("laptop.4k", "lapdog.4k"))]
    assert keys == [
        *spaced("cases[0].workload cases[0].times.lapdog cases[0].times.laptop cases[0].primary[1]")
    ]


def test_an_invalid_name_is_reported_once(problems: Problems) -> None:
    (line,) = problems(f'guest = "Laptop"\n{GOOD}')
    assert line.endswith("unknown; allowed: laptop, wall, full, smoke; did you mean 'laptop'?")


def test_what_a_workload_needs_of_the_kernel_is_named(tmp_path: Path, catalogue: Catalogue) -> None:
    needing = replace(catalogue, additions=("tests",), needs={"filemap-thp": ("tests",)})
    file = tmp_path / "small.toml"

    def load(text: str) -> Experiment:
        file.write_text(text, encoding="utf-8")
        return load_experiment(file, catalogue=needing)

    with pytest.raises(SpecError) as caught:
        load(GOOD)
    (line,) = caught.value.problems
    assert line.endswith(
        "kernel.additions: found an array of 0: filemap-thp needs tests; allowed: tests"
    )
    with_it = swap("[kernel]", '[kernel]\nadditions = ["tests"]')
    assert load(with_it).kernel.configuration == "perf+tests"
    with pytest.raises(SpecError, match=r"additions\[0\]: found \"test\": unknown"):
        load(with_it.replace('"tests"', '"test"'))


def test_a_workload_whose_file_cannot_be_used_is_named_with_its_mistakes(
    tmp_path: Path, catalogue: Catalogue
) -> None:
    file = tmp_path / "small.toml"
    file.write_text(GOOD)
    known = {name: catalogue.workloads[name] for name in ("filemap-4k",)}
    broken = replace(catalogue, workloads=known, broken={"filemap-thp": ("x.toml: a", "x.toml: b")})
    with pytest.raises(SpecError) as caught:
        load_experiment(file, catalogue=broken)
    assert caught.value.problems == [
        f'{file}: cases[1].workload: found "filemap-thp": its file cannot be used: '
        "x.toml: a; x.toml: b"
    ]


def test_a_variant_may_be_called_as_its_section_is(tmp_path: Path, catalogue: Catalogue) -> None:
    file = tmp_path / "small.toml"
    file.write_text(swap('workload = "filemap-4k"', 'workload = "filemap-4k"\nvariant = "Q8 T1"'))
    known = {**catalogue.workloads, "filemap-4k": {"default": ("4k",), "q8-t1": ("4k",)}}
    case = load_experiment(file, catalogue=replace(catalogue, workloads=known)).cases[0]
    assert case.name == "filemap-4k:q8-t1"
