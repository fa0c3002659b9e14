"""What may be asked on the command line, and what may not be asked together."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import runs.resolved
from errors import SpecError, UsageError
from experiment.spec import Experiment
from kernels import settle
from runs.request import Request, arguments
from runs.resolve import resolve_request
from runs.resolved import Resolved, catalogue
from tests.kernels import shipped
from tests.values import spaced

CHECKOUT = Path(__file__).resolve().parents[2]
FULL = ("guest=full",)


def resolved(request: Request, cache: Path, here: Path = CHECKOUT) -> Experiment:
    return whole(request, cache, here).experiment


def whole(
    request: Request,
    cache: Path,
    here: Path = CHECKOUT,
    *,
    code: Callable[[Resolved], tuple[str, ...] | None] = lambda resolved: None,
    nearest: tuple[str, ...] = (),
) -> Resolved:
    return resolve_request(
        request,
        checkout=CHECKOUT,
        cache=cache,
        here=here,
        catalogue=catalogue(CHECKOUT),
        code=code,
        nearest=nearest,
    )


@pytest.fixture
def images(tmp_path: Path) -> Path:
    for name in ("one", "two"):
        shipped.shipped(tmp_path / name, name)
        (tmp_path / name / "boot/vmlinuz-6.1.2-test").rename(tmp_path / f"bzImage-{name}")
    return tmp_path


def test_cases_are_overridden_without_the_diagnostic_runs_of_others(tmp_path: Path) -> None:
    cases = 'cases=[{workload="syscalls", primary=["pipe.path"]}]'
    request = Request(name="filemap-v4", overrides=(cases,))
    with pytest.raises(SpecError, match=r"twins: memory: no such case: filemap-4k"):
        resolved(request, tmp_path)
    alone = dataclasses.replace(request, twins=False)
    assert (resolved(alone, tmp_path).twins, alone.recorded) == ((), request.recorded)


def test_kernels_are_settled_from_where_the_user_is(images: Path, tmp_path: Path) -> None:
    arms = ("image:bzImage-one@one/lib/modules/6.1.2-test", "image:bzImage-two")
    request = Request(arms=arms, workloads="filemap-4k", overrides=("guest=smoke",))
    made = resolved(request, tmp_path / "cache", here=images)
    assert [arm.kernel.source for arm in made.all_arms if arm.kernel] == [
        f"image:{images}/bzImage-one@{images}/one/lib/modules/6.1.2-test",
        f"image:{images}/bzImage-two",
    ]
    assert made.kernel == made.all_arms[0].kernel
    assert made.guest == "smoke"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Request(), "no experiment named"),
        (Request(workloads="filemap-4k"), "no experiment named"),
        (Request(arms=("deb:linux-image-a",)), "at least two"),
        (Request(arms=("image:a", "image:b"), series=("x.mbox",)), "at least two kernels"),
        (Request(arms=("image:a", "image:b"), source="deb:a"), "at least two kernels"),
        (Request(arms=("image:a", "image:b"), automatic=True), "at least two kernels"),
        (Request(arms=("image:a", "image:b"), per_patch=True), "at least two kernels"),
        (Request(name="noop", arms=("image:a", "image:b")), "cannot be combined"),
        (Request(arms=("image:nowhere/a", "image:nowhere/b")), "no such file: .*nowhere/a"),
        (Request(name="filemap-v4", quick=True, check=True), "has no correctness checks"),
        (Request(name="noop", quick=True, twins=True), "has no diagnostic runs"),
        (Request(name="noop", mode="native", twins=True), "has no diagnostic runs"),
        (
            Request(name="noop", overrides=("kernel.arch=arm64", "guest=smoke"), twins=True),
            "no diagnostic run can be made of guests of arm64",
        ),
        # A machine is modelled with one vCPU.
        (Request(name="filemap-v4", quick=True, memory="zen3-epyc"), "no diagnostic runs"),
        (Request(name="filemap-v4", mode="wall", memory="zen3-epyc"), "in exact mode"),
        (Request(name="filemap-v4", overrides=FULL, memory="zen3-epyc"), "with one vCPU"),
    ],
)
def test_what_does_not_go_together(given: Request, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        resolved(given, tmp_path)


def of_memory(request: Request, cache: Path) -> dict[str, tuple[str | None, tuple[str, ...]]]:
    """Machine and cases of the diagnostic runs that model one, by name."""
    twins = resolved(request, cache).twins
    return {twin.name: (twin.machine, twin.cases) for twin in twins if twin.observe == "memory"}


BOTH = ("filemap-4k", "filemap-thp")


@pytest.mark.parametrize(
    ("given", "machines"),
    [
        (Request(name="filemap-v4"), {"memory": ("ice-lake-sp", BOTH)}),
        (Request(name="filemap-v4", memory="zen3-epyc"), {"memory": ("zen3-epyc", BOTH)}),
        (Request(name="filemap-v4", memory="none"), {}),
        (Request(name="filemap-v4", twins=False), {}),
        (
            Request(name="filemap-v4", twins=False, memory="neoverse-n1"),
            {"memory": ("neoverse-n1", BOTH)},
        ),
        (Request(name="filemap-v4", quick=True), {}),
        (Request(name="noop", memory="zen3-epyc"), {"memory": ("zen3-epyc", ("filemap-4k",))}),
        (Request(name="noop"), {}),
    ],
)
def test_a_machine_is_modelled_where_the_request_has_it(
    given: Request, machines: dict[str, object], tmp_path: Path
) -> None:
    assert of_memory(given, tmp_path) == machines


def test_other_diagnostic_runs_stay_as_they_are_and_lines_are_of_the_same_machine(
    tmp_path: Path,
) -> None:
    none, only, both = (
        resolved(Request(name="filemap-v4", twins=twins, memory=machine), tmp_path).twins
        for twins, machine in ((None, "none"), (False, "zen3-epyc"), (None, "zen3-epyc"))
    )
    assert [twin.name for twin in none] == ["contended"]
    assert [twin.name for twin in only] == ["memory"]
    assert [twin.machine for twin in both if twin.observe == "lines"] == ["zen3-epyc"] * 2


def test_diagnostics_are_made_of_every_case(tmp_path: Path) -> None:
    """Of an experiment that names none they were left out without a word."""
    request = Request(series=("configs/series/slow-add-64",), workloads="trees,filemap-4k")
    assert resolved(request, tmp_path).twins == ()
    twins = resolved(dataclasses.replace(request, twins=True), tmp_path).twins
    assert [(twin.observe, twin.cases) for twin in twins] == [
        (kind, ("trees", "filemap-4k")) for kind in ("memory", "lines", "lines", "contention")
    ]
    # A machine is modelled of one vCPU, and lines move between several.
    several = dataclasses.replace(request, twins=True, overrides=("guest=full",))
    assert {twin.observe for twin in resolved(several, tmp_path).twins} == {"lines", "contention"}
    other = dataclasses.replace(request, twins=True, memory="zen3-epyc")
    machines = [twin.machine for twin in resolved(other, tmp_path).twins]
    assert sorted(map(str, machines)) == ["None", *["zen3-epyc"] * 3]
    ours = resolved(Request(name="filemap-v4"), tmp_path).twins
    assert resolved(Request(name="filemap-v4", twins=True), tmp_path).twins == ours


ARM64 = ("kernel.arch=arm64", "guest=smoke")
NUMA = (ARM64[0], "guest=smoke-numa")
TWO = 'arms=[{name="one"}, {name="two", patches=true, guest={cpu="Nehalem"}}]'


def test_arm64_is_refused_what_is_not_known_to_work(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        resolved(Request(name="filemap-v4", overrides=ARM64), tmp_path)
    text = str(caught.value)
    assert "check: correctness checks are untested on arm64; --no-check leaves them out" in text
    assert "twins: contended: guest.cpu = 'Nehalem,-hypervisor' is a model of x86_64" in text
    small = resolved(
        Request(name="filemap-v4", overrides=ARM64, twins=False, check=False), tmp_path
    )
    assert (small.kernel.arch, small.twins, small.check) == ("arm64", (), None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Request(name="filemap-v4", memory="zen3"), r"zen3: .*no such machine.*zen3-epyc"),
        (Request(name="filemap-v4", overrides=("twins.0.machine=zen3",)), r"twins.*machine.*zen3"),
        (
            Request(name="noop", overrides=(*ARM64, TWO)),
            r"arms: two: guest\.cpu = 'Nehalem' is a model of x86_64",
        ),
        # On arm64 one vCPU on one node.
        (
            Request(name="noop", overrides=(ARM64[0], "guest=full"), twins=False, check=False),
            "guest: vcpus = 16: exactness is untested",
        ),
        (
            Request(name="reclaim-contention", overrides=NUMA, twins=False, check=False),
            "guest: numa_nodes = 4: exactness is untested",
        ),
    ],
)
def test_what_no_session_can_be_of_is_named(given: Request, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=message):
        resolved(given, tmp_path)


def test_quick_is_the_first_case_without_gate_and_twins(tmp_path: Path) -> None:
    whole = resolved(Request(name="filemap-v4"), tmp_path / "cache")
    quick = Request(name="filemap-v4", overrides=("guest=smoke",), quick=True)
    made = resolved(quick, tmp_path / "cache")
    assert len(whole.cases) > 1
    assert whole.twins
    assert (made.cases, made.twins, made.check) == (whole.cases[:1], (), None)
    assert made.blocks == whole.blocks
    # What the session keeps says so; what the experiment is read with does not know it.
    assert quick.recorded == ("guest=smoke", "--quick")
    assert quick.all_overrides == ("guest=smoke",)
    assert not Request(quick=True).is_empty


def test_a_request_is_repeated_with_the_same_arguments(tmp_path: Path) -> None:
    (tmp_path / "x.mbox").write_text("")
    (tmp_path / "mine.toml").write_text("")

    def again(request: Request) -> tuple[str, ...]:
        return arguments(request, here=tmp_path, checkout=CHECKOUT)

    named = Request(name="filemap-v4", overrides=("blocks=2", "seed=3"), twins=False, check=True)
    assert again(named) == spaced("filemap-v4 --set blocks=2 --set seed=3 --no-diagnostics --check")
    posted = Request(
        series=("x.mbox", "mid@example.org"),
        source="deb:linux-source-6.12",
        workloads="a,b",
        mode="wall",
        automatic=True,
        reverse=True,
        per_patch=True,
        twins=True,
        check=False,
    )
    # What lies beside the user is named by its whole path: the command is for the checkout.
    assert again(posted) == spaced(
        f"--mode wall --diagnostics --series {tmp_path}/x.mbox --series mid@example.org --source "
        "deb:linux-source-6.12 --workloads a,b --auto --reverse --per-patch --no-check"
    )
    assert again(Request(name="mine.toml")) == (str(tmp_path / "mine.toml"),)
    assert again(Request(arms=("deb:a=1", "deb:b=2"))) == ("--arm", "deb:a=1", "--arm", "deb:b=2")
    assert again(Request()) == ()


def test_series_and_guest_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were taken in thirteen times for one `run`, and read five times."""
    reads: list[str] = []

    def counted(module: Any, name: str) -> None:
        read = getattr(module, name)

        def once_more(*given: Any, **named: Any) -> Any:
            reads.append(name)
            return read(*given, **named)

        monkeypatch.setattr(module, name, once_more)

    counted(settle, "take_in")
    counted(runs.resolved, "take_in")
    counted(runs.resolved, "load_guest")
    made = whole(Request(name="filemap-v4", check=False), tmp_path / "cache")
    assert reads == ["take_in", "load_guest"]
    assert [len(arm.patches) for arm in made.arms] == [3, 0]


def test_both_kernels_of_a_headers_series_are_compared_for_its_workloads(tmp_path: Path) -> None:
    compared: list[Resolved] = []

    def code(usual: Resolved) -> tuple[str, ...]:
        compared.append(usual)
        return ("blk_finish_plug", "__blk_mq_end_request")

    request = Request(
        series=("configs/series/published/p17-block-clock-each-time",), config=("CONFIG_LRU_GEN=y",)
    )
    made = whole(request, tmp_path, code=code)
    assert {case.workload for case in made.experiment.cases} & {"block", "direct"}
    (usual,) = compared
    # Of the same words as the session's: what is built for the choice is what it measures.
    assert [len(arm.patches) for arm in usual.built] == [0, 1]
    assert [arm.kernels for arm in usual.built] == [arm.kernels for arm in made.built]


def test_the_nearest_workloads_stand_before_those_that_are_chosen(tmp_path: Path) -> None:
    request = Request(
        series=("configs/series/slow-add-16",), source="deb:linux-source-6.12", seeds=1
    )
    alone, beside = (
        whole(request, tmp_path, nearest=nearest) for nearest in ((), ("messaging", "redis"))
    )
    chosen = [case.workload for case in alone.experiment.cases]
    names = list(dict.fromkeys(case.workload for case in beside.experiment.cases))
    assert names == ["messaging", "redis", chosen[0]]


def test_nothing_is_built_for_what_wall_mode_cannot_measure(tmp_path: Path) -> None:
    def built(_: Resolved) -> None:
        raise AssertionError("built")

    series = ("configs/series/slab-events",)
    exact = whole(Request(series=series), tmp_path).experiment
    assert "memory" in {case.workload for case in exact.cases}
    with pytest.raises(SpecError, match=r"counted by the probe; .* judge \w+\.bw"):
        whole(Request(series=series, mode="wall"), tmp_path, code=built)
    request = Request(series=series, workloads="filemap-4k,syscalls", mode="wall")
    with pytest.raises(SpecError, match=r"^case syscalls: primary: getppid\.path"):
        whole(request, tmp_path, code=built)
    adding = Request(series=("configs/series/slow-add-16",), mode="wall")
    cases = whole(adding, tmp_path, code=built).experiment.cases
    assert {case.judged("wall") for case in cases} == {("4k.bw",), ("thp.bw",)}
