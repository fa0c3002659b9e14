"""An experiment from a series alone."""

from pathlib import Path

import pytest

from errors import SpecError
from experiment import ad_hoc
from experiment.ad_hoc import Auto, arm_names, choose, from_kernels, from_series, load_auto, name_of
from experiment.load import load_experiment
from experiment.plan import make_plan
from experiment.series_name import from_here
from experiment.spec import Experiment, SeriesSpec
from runs.resolved import catalogue as shipped_catalogue
from tests.values import data

CHECKOUT = Path(__file__).resolve().parents[2]
CATALOGUE = shipped_catalogue(CHECKOUT)


def series_of(experiment: Experiment) -> SeriesSpec:
    assert experiment.series is not None
    return experiment.series


def test_defaults_are_those_of_the_shipped_experiment() -> None:
    made = from_series(["mid:a.b@c.org"], catalogue=CATALOGUE)
    shipped = load_experiment(Path("filemap-v4"), catalogue=CATALOGUE)
    assert made.dataset == shipped.dataset
    assert made.kernel == shipped.kernel
    assert (made.guest, made.blocks, made.seed) == (shipped.guest, shipped.blocks, shipped.seed)
    assert [case.name for case in made.cases] == [case.name for case in shipped.cases]
    for case, other in zip(made.cases, shipped.cases, strict=True):
        assert (case.times, case.primary, case.published) == (other.times, other.primary, ())
    assert series_of(made).path == "mid:a.b@c.org"
    assert (made.name, series_of(made).reverse) == ("a-b-c-org", False)
    assert make_plan(made).runs


def test_everything_can_be_chosen() -> None:
    made = from_series(
        ["a.mbox", "configs/series/noop"],
        source="git:/src/linux",
        workloads=["filemap-thp", "filemap-thp"],
        reverse=True,
        overrides=["blocks=3", "guest=smoke"],
        catalogue=CATALOGUE,
    )
    assert series_of(made).parts == ("a.mbox", "configs/series/noop")
    assert series_of(made).reverse
    assert made.kernel.source == "git:/src/linux"
    assert made.kernel.flavour == "perf"
    assert [case.name for case in made.cases] == ["filemap-thp"]
    assert (made.blocks, made.guest) == (3, "smoke")
    assert made.thresholds.metrics == {"filemap-thp/thp.work": 0.05}


def test_thresholds_of_what_is_not_measured_are_left_out() -> None:
    made = from_series(["a.mbox"], workloads=["filemap-4k"], catalogue=CATALOGUE)
    assert made.thresholds.metrics == {"filemap-4k/4k.work": 0.005}


@pytest.mark.parametrize(("arguments", "message"), data(__file__, "mistakes_are_named"))
def test_mistakes_are_named(arguments: dict[str, list[str]], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        from_series(**{"series": ["x.mbox"], **arguments}, catalogue=CATALOGUE)  # type: ignore[arg-type]
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("files", "workloads"),
    [
        (["include/linux/pagemap.h"], ("filemap-4k", "filemap-thp")),
        (["Documentation/x", "include/linux/huge_mm.h"], ("filemap-thp",)),
        (["include/linux/iomap.h"], ("iomap-dirty",)),
    ],
)
def test_workloads_by_touched_files(files: list[str], workloads: tuple[str, ...]) -> None:
    assert choose(files) == workloads


def test_files_that_no_rule_knows_are_named() -> None:
    with pytest.raises(SpecError, match=r"no workload is known for net/ipv4/tcp\.c;") as e:
        choose(["net/ipv4/tcp.c"])
    assert "--workloads filemap-4k,filemap-thp" in str(e.value)
    with pytest.raises(SpecError, match="no file at all"):
        choose([])


def test_rules_name_only_what_can_be_measured(tmp_path: Path) -> None:
    assert {*load_auto().workloads} <= {*CATALOGUE.workloads}
    file = tmp_path / "auto.toml"
    file.write_text(
        ad_hoc.AUTO.read_text().replace('workloads = ["filemap-thp"]', 'workloads = ["x"]')
    )
    with pytest.raises(SpecError, match="no case has this workload: x"):
        load_auto(file)
    file.write_text(ad_hoc.AUTO.read_text().replace('usual = ["filemap-4k"', 'usual = ["x"'))
    with pytest.raises(SpecError, match="usual: no case has this workload: x"):
        load_auto(file)
    file.write_text("case = 1\n[touch]\n")
    with pytest.raises(SpecError) as caught:
        load_auto(file)
    assert len(caught.value.problems) == 4


def test_workloads_with_files_of_different_sizes_are_not_measured_together() -> None:
    made = from_series(["a.mbox"], workloads=["iomap-dirty"], catalogue=CATALOGUE)
    shipped = load_experiment(Path("iomap-dirty"), catalogue=CATALOGUE)
    assert made.dataset == shipped.dataset
    assert (made.cases[0].times, made.cases[0].primary) == (
        shipped.cases[0].times,
        shipped.cases[0].primary,
    )
    with pytest.raises(SpecError, match="iomap-dirty has files of another size than filemap-4k"):
        from_series(["a.mbox"], workloads=["filemap-4k", "iomap-dirty"], catalogue=CATALOGUE)


def test_all_are_those_that_can_share_a_session() -> None:
    made = from_series(["a.mbox"], workloads=["all"], catalogue=CATALOGUE)
    names = [case.workload for case in made.cases]
    assert {"filemap-4k", "filemap-thp", "memory", "syscalls", "metadata"} <= {*names}
    # Its files are of another size; what has none is measured with it.
    assert "iomap-dirty" not in names
    both = from_series(["a.mbox"], workloads=["memory", "iomap-dirty"], catalogue=CATALOGUE)
    shipped = load_experiment(Path("iomap-dirty"), catalogue=CATALOGUE)
    assert both.dataset == shipped.dataset
    assert [case.workload for case in both.cases] == ["memory", "iomap-dirty"]


def test_rules_can_be_replaced() -> None:
    auto = Auto.model_validate(
        {
            "experiment": {},
            "usual": ("w",),
            "case": ({"workload": "w"},),
            "touches": ({"patterns": ("net/*",), "workloads": ("w",)},),
        }
    )
    assert choose(["net/ipv4/tcp.c"], auto) == ("w",)


@pytest.mark.parametrize(("series", "name"), data(__file__, "names"))
def test_names(series: str, name: str) -> None:
    assert name_of(series) == name


def test_relative_paths_start_where_the_user_is(tmp_path: Path) -> None:
    (tmp_path / "x.mbox").touch()
    (tmp_path / "linux").mkdir()

    def absolute(name: str, here: Path = tmp_path) -> str:
        return from_here(name, here=here, checkout=CHECKOUT)

    assert absolute("x.mbox") == str(tmp_path / "x.mbox")
    assert absolute("git:linux@a..b") == f"git:{tmp_path}/linux@a..b"
    assert absolute("dir:linux") == f"dir:{tmp_path}/linux"
    assert absolute("deb:linux-source-6.12") == "deb:linux-source-6.12"
    assert absolute("configs/series/noop") == "configs/series/noop"
    assert absolute("configs/series/noop", CHECKOUT) == "configs/series/noop"
    for name in ("a..b", "mid:a@b", "<a@b>", "https://lore.kernel.org/all/a@b/"):
        assert absolute(name) == name


CLOUD = "deb:linux-image-6.12.{}+deb12-cloud-amd64"


def test_kernels_are_arms_named_by_version() -> None:
    sources = [CLOUD.format(115), CLOUD.format(117), "git:/src/linux@v6.13-rc2"]
    made = from_kernels(sources, workloads=["filemap-4k"], catalogue=CATALOGUE)
    assert [arm.name for arm in made.all_arms] == ["6-12-115", "6-12-117", "6-13-rc2"]
    assert made.all_arms[1].label == "6.12.117+deb12-cloud-amd64"
    assert [arm.kernel.source for arm in made.all_arms if arm.kernel] == sources
    assert made.series is None
    assert made.compared == (("6-12-115", "6-12-117"), ("6-12-115", "6-13-rc2"))
    assert [case.name for case in made.cases] == ["filemap-4k"]
    assert made.name == "6-12-115-to-6-13-rc2"
    assert len(make_plan(made).runs) == 3 * made.blocks + 1


def test_what_is_set_of_the_kernel_is_set_of_all_kernels_that_are_compared() -> None:
    sources = ["deb:linux-source-6.12", "deb:linux-source-7.3"]
    overrides = (
        "arms.1.kernel.flavour=kasan",
        'kernel.additions=["lru-gen"]',
        "kernel.flavour=lockdep",
        "kernel.config.CONFIG_X=y",
    )
    made = from_kernels(sources, overrides=overrides, catalogue=CATALOGUE)
    first, second = (arm.kernel for arm in made.all_arms)
    assert first
    assert second
    assert [first.source, second.source] == sources
    assert first.additions == second.additions == ("lru-gen",)
    assert first.config == second.config == {"CONFIG_X": "y"}
    # What an arm has of its own stays.
    assert (first.flavour, second.flavour) == ("lockdep", "kasan")


def test_phases_of_prebuilt_kernels_that_end_by_time_are_longer() -> None:
    built, image = "deb:linux-source-6.12", "deb:linux-image-7.3-cloud-amd64"
    plain, longer = (
        from_kernels([built, other], workloads=["filemap-thp"], catalogue=CATALOGUE).cases[0].times
        for other in (built, image)
    )
    assert (plain["laptop"]["switch"].runtime_s, longer["laptop"]["switch"].runtime_s) == (0.3, 0.6)
    assert plain["laptop"]["thp"] == longer["laptop"]["thp"]


@pytest.mark.parametrize(("sources", "names"), data(__file__, "names_tell_kernels_apart"))
def test_names_tell_kernels_apart(sources: tuple[str, ...], names: tuple[str, ...]) -> None:
    assert arm_names(sources) == names
    assert from_kernels(sources, catalogue=CATALOGUE)


@pytest.mark.parametrize(
    ("arguments", "message"), data(__file__, "kernels_that_cannot_be_compared_so")
)
def test_kernels_that_cannot_be_compared_so(arguments: dict[str, list[str]], message: str) -> None:
    defaults = {"sources": [CLOUD.format(115), CLOUD.format(117)], "catalogue": CATALOGUE}
    with pytest.raises(SpecError, match=message):
        from_kernels(**{**defaults, **arguments})  # type: ignore[arg-type]


def test_paths_of_an_image_start_here(tmp_path: Path) -> None:
    (tmp_path / "bzImage").touch()
    (tmp_path / "modules").mkdir()
    source = from_here("image:bzImage@modules", here=tmp_path, checkout=CHECKOUT)
    assert source == f"image:{tmp_path}/bzImage@{tmp_path}/modules"


def test_workloads_bring_what_they_need_of_the_kernel_and_others_do_not() -> None:
    usual = from_series(["a.mbox"], workloads=["memory"], catalogue=CATALOGUE)
    assert usual.kernel.configuration == "perf"
    series = from_series(["a.mbox"], workloads=["memory", "vmalloc"], catalogue=CATALOGUE)
    assert series.kernel.configuration == "perf+workloads"
    kernels = from_kernels(["git:/a", "git:/b"], workloads=["vmalloc"], catalogue=CATALOGUE)
    assert [arm.kernel.configuration for arm in kernels.arms if arm.kernel] == [
        "perf+workloads",
        "perf+workloads",
    ]
