"""Whether the lines on record are those of all judged runs."""

from dataclasses import replace
from pathlib import Path

from experiment.spec import Experiment
from kernels.build import Sources
from kernels.cache import Kernel
from kernels.compiled import Touched, save
from kernels.linetable import ObjectLines
from results.profile import Annotation, FileCounts
from results.store import SessionStore
from runs.annotate import is_stale, obstacle, reasons, runs_of
from runs.prepare import Prepared
from tests.analysis import counts_factory as counts
from tests.analysis.factory import ExactSession
from tests.runs import made_up
from tests.values import but, identity

PREBUILT = (
    {"name": "old", "kernel": {"source": "image:/x/old"}},
    {"name": "new", "kernel": {"source": "image:/x/new"}},
)


def test_lines_of_a_session_that_went_on_are_stale(tmp_path: Path) -> None:
    made, store = ExactSession(), SessionStore(tmp_path / "session")
    store.create(counts.counted(made.manifest()))
    profiles = {profile.run_id: profile for profile in counts.profiles(made)}
    for record in made.records():
        of_run = profiles.get(record.run_id)
        phases = tuple(but(each, blocks=((1, 2, 3),)) for each in (of_run.phases if of_run else ()))
        store.append(record, *([but(of_run, phases=phases)] if of_run else []))
    *before, last = (record.run_id for record, _ in runs_of(store))

    def of(runs: list[str]) -> Annotation:
        values = {"arm": "base", "case": "filemap-4k", "phase": "4k", "file": "mm/filemap.c"}
        lines = {1: (1, 1, True)}
        counted = FileCounts.model_validate({**values, "runs": runs, "lines": lines})
        return Annotation(diffs=(), counts=(counted,))

    assert before
    assert is_stale(of(before), store)
    assert not is_stale(of([*before, last]), store)


def of_compiler(session: Prepared, compiler: str) -> Prepared:
    kernels = {
        arm: replace(kernel, identity=but(kernel.identity, compiler=compiler))
        for arm, kernel in session.measured.items()
    }
    return replace(session, kernels={session.resolved.flavours[0]: kernels})


def without_patches(session: Prepared) -> Prepared:
    arms = tuple(replace(arm, patches=()) for arm in session.resolved.arms)
    return replace(session, resolved=replace(session.resolved, arms=arms))


def test_a_session_without_lines_is_refused_with_the_reason() -> None:
    session = made_up.prepared()
    assert obstacle(session, any_blocks=True) is None
    of_image = {**session.experiment.model_dump(), "arms": PREBUILT, "series": None, "check": None}
    prebuilt = Experiment.model_validate({**of_image, "twins": (), "compare": "base"})
    refused = {
        "wall mode counts no lines": replace(
            session, experiment=made_up.shipped("filemap-v4", "mode=wall")
        ),
        "the kernel of old was built elsewhere": replace(session, experiment=prebuilt),
        "the kernel of base is of clang": of_compiler(session, "Debian clang version 14.0.6; LLD"),
        "no arm has patches": without_patches(session),
        "its kernels have the same code": replace(session, same_code=True),
    }
    for what, each in refused.items():
        why, step = obstacle(each, any_blocks=True) or ("", "")
        assert why.startswith(what)
        assert step
    assert "no blocks" in (obstacle(session, any_blocks=False) or ("",))[0]


def test_files_without_counts_have_a_reason(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, identity())
    bounds = "0 T _text\nffffffffffffffff T _etext\n"
    kernel.system_map.write_text(f"{bounds}ffffffff81000000 T one\nffffffff81000020 T two\n")
    touched = [
        Touched(file="lib/test_vmalloc.c", built=True),
        Touched(file="mm/swap.c", built=False, options=("CONFIG_SWAP is n",)),
        Touched(file="mm/slab.h", built=True),
        Touched(file="mm/slub.c", built=True),
    ]
    save(touched, kernel.touched)

    def of_object(**functions: int) -> ObjectLines:
        return ObjectLines((), {}, {".text": functions, ".exit.text": {"thrown_away": 0}})

    objects = {"mm/slub.c": of_object(one=0, two=0x20), "mm/rmap.c": of_object(one=0, two=0x30)}
    sources = {"patched": Sources({}, objects, {"mm/gup.c": "its code is not the same"})}
    assert reasons([each.file for each in touched], sources, {"patched": kernel}) == {
        "lib/test_vmalloc.c": "it is part of a module",
        "mm/swap.c": "it is not compiled: CONFIG_SWAP is n",
        "mm/gup.c": "its code is not the same",
        "mm/rmap.c": "its functions do not lie as in its object",
    }
