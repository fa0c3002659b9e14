"""Names that the lab leans on, looked up in kernels that have them and that have not."""

from pathlib import Path

import pytest

from analysis.explain.functions import BY_BOOT
from analysis.explain.functions import catalogue as subsystems
from analysis.explain.locks import catalogue
from host import facts
from kernels import addresses
from kernels.cache import Kernel, cached_kernels
from runs import manifest
from runs.coverage import _place, shipped
from runs.manifest import NameUse
from tests.values import but, identity
from verbs.host import every_name


def kernel(tmp_path: Path, *functions: str, release: str = "7.3.4") -> Kernel:
    lines = [f"{0xFFFFFFFF81000000 + n:x} t {name}\n" for n, name in enumerate(functions)]
    (tmp_path / "System.map").write_text("".join(lines))
    return Kernel(tmp_path, identity(release=release))


def test_a_function_that_is_not_there_is_named_with_all_that_leans_on_it(tmp_path: Path) -> None:
    uses = (
        NameUse("xas_load", "function", "workload a: walks"),
        NameUse("xas_load", "function", "workload b: walks"),
        NameUse("split", "function", "workload a: splits"),
    )
    there = kernel(tmp_path, "xas_store", "split.isra.0")
    assert manifest.sentences(manifest.missing(uses, there), there) == (
        "the function xas_load is not in 7.3.4: workload a: walks; workload b: walks",
    )


def test_another_name_of_the_same_place_does(tmp_path: Path) -> None:
    uses = [NameUse(name, "function", "spinning", instead=True) for name in ("native", "plain")]
    assert manifest.missing(uses, kernel(tmp_path, "plain")) == ()
    assert manifest.missing(uses, kernel(tmp_path, "other")) == tuple(uses)


def test_counters_are_looked_up_in_a_guests_account_and_files_where_they_are_known(
    tmp_path: Path,
) -> None:
    uses = [NameUse(name, "counter", "any") for name in ("pgfault", "pgscan")]
    uses += [NameUse(f"mm/{name}.c", "file", name) for name in ("slub", "swap")]
    uses.append(NameUse("mm/folio.c", "file", "swap", instead=True))
    uses.append(NameUse("arch/x86/lib/", "file", "copying"))
    there = kernel(tmp_path)
    assert manifest.missing(uses, there) == ()
    addresses.save({1: addresses.Origin("mm/folio.c", 7)}, there.origins)
    account = "pgscan_kswapd 3\npgfault 0\n"
    absent = manifest.missing(uses, there, account)
    assert [use.name for use in absent] == ["pgscan", "mm/slub.c", "arch/x86/lib/"]
    arm = Kernel(tmp_path, but(there.identity, arch="arm64"))
    assert [use.name for use in manifest.missing(uses, arm, account)] == ["pgscan", "mm/slub.c"]


def test_every_kind_of_name_is_looked_up() -> None:
    places = {use.place.partition(":")[0].split()[0] for use in every_name()}
    assert places == {"workload", "probe", "types", "lock", "functions"}
    locks = {name for lock in catalogue() for name in lock.taken_in}
    files = {file for part in subsystems() for file in part.files}
    assert locks | files | BY_BOOT <= {use.name for use in every_name()}


def kernels_here() -> list[Kernel]:
    """The measured kernels in this host's cache, each release once."""
    by_release = {
        each.identity.release: each
        for each in cached_kernels(facts.cache_folder())
        if each.identity.flavour == "perf"
        and not each.identity.patches
        and each.identity.arch == "x86_64"
    }
    return [by_release[release] for release in sorted(by_release)]


@pytest.mark.parametrize("there", kernels_here(), ids=lambda each: each.identity.release)
def test_names_that_a_kernel_of_this_host_has_not(there: Kernel) -> None:
    """One line a release of what is known to be missing; anything else is new, and is named."""
    # brd has one function for reads and writes since it counts pages by folio; 6.1 has no lock
    # of an area, no files of their own for areas and shrinkers, and that allocator's path inlined.
    known = {
        "7.3": {"brd_insert_page"},
        "6.1": {"__rmqueue_pcplist", "lock_vma_under_rcu", "mm/shrinker.c", "mm/vma.c"},
    }
    release = ".".join(there.identity.release.split(".")[:2])
    absent = manifest.missing(every_name(), there)
    of_all = [use for use in absent if not use.place.startswith(NEED_MORE)]
    assert {use.name for use in of_all} <= known.get(release, set()), manifest.sentences(
        of_all, there
    )


# Workloads of modules, which the kernel named perf does not have.
NEED_MORE = ("workload trees", "workload vmalloc")


def test_the_coverage_of_the_nearest_release_is_taken() -> None:
    assert [_place(name) for name in ("linux-source-6.12", "6.19.3", "7.3.4", "")] == [
        132,
        139,
        143,
        0,
    ]
    assert shipped("6.1.3").release.startswith("6.12")
    assert shipped().release.startswith("6.12")
