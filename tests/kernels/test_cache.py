import os
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kernels import cache
from kernels.build import provide
from kernels.cache import cached_kernels, clean, folder_size, hold, load, locked, staged
from tests.kernels.fake import FASTER, GROWN, Lab
from tests.values import identity

REPOSITORY = Path(__file__).parents[2]
MIB = 1 << 20


def put(cache: Path, key: str, *, age_s: int = 0, size: int = MIB) -> Path:
    with staged(cache, key) as folder:
        (folder / "bzImage").write_bytes(b"x" * size)
        (folder / "identity.json").write_text(identity(key).model_dump_json())
    path = cache / "kernels" / key
    old = path.stat().st_mtime - age_s
    os.utime(path / "identity.json", (old, old))
    return path


def keys(cache: Path) -> list[str]:
    return [kernel.identity.key for kernel in cached_kernels(cache)]


def test_a_block_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "bzImage").write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError), staged(tmp_path, "k") as folder:
        fail(folder)
    assert list((tmp_path / "kernels").iterdir()) == []


def test_half_a_kernel_is_not_a_kernel(tmp_path: Path) -> None:
    path = put(tmp_path, "k")
    assert load(tmp_path, "k") is not None
    (path / "identity.json").write_text('{"key": ')
    assert load(tmp_path, "k") is None
    assert cached_kernels(tmp_path) == []
    put(tmp_path, "k")
    assert load(tmp_path, "k") is not None


def test_kernels_are_listed_by_last_use(tmp_path: Path) -> None:
    put(tmp_path, "old", age_s=300)
    put(tmp_path, "new", age_s=100)
    assert keys(tmp_path) == ["new", "old"]
    load(tmp_path, "old", used=True)
    assert keys(tmp_path) == ["old", "new"]


def test_clean_removes_the_least_recently_used_first(tmp_path: Path) -> None:
    for number in range(4):
        put(tmp_path, f"k{number}", age_s=100 * number)
    done = clean(tmp_path, 2.5 / 1024)
    assert done.removed == ("kernels/k3", "kernels/k2")
    assert keys(tmp_path) == ["k0", "k1"]
    assert done.left == folder_size(tmp_path / "kernels") <= 2.5 * MIB
    assert done.freed >= 2 * MIB


def test_what_others_build_meanwhile_is_not_taken_from_what_was_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        put(tmp_path, f"k{number}", age_s=100 * number)
    remove = cache._remove

    def and_meanwhile(*arguments: Any) -> bool:
        for number in range(4):
            put(tmp_path, f"new{number}")
        return remove(*arguments)

    monkeypatch.setattr(cache, "_remove", and_meanwhile)
    done = clean(tmp_path, 0.5 / 1024)
    assert MIB <= done.freed <= 2.5 * MIB
    assert done.left >= 4 * MIB


def test_clean_within_the_bound_removes_nothing(tmp_path: Path) -> None:
    put(tmp_path, "k")
    assert clean(tmp_path, 1).removed == ()
    assert clean(tmp_path / "nothing", 0).left == 0


def test_a_kernel_in_use_stays(tmp_path: Path) -> None:
    put(tmp_path, "busy", age_s=500)
    put(tmp_path, "idle")
    kernel = load(tmp_path, "busy")
    assert kernel is not None
    with hold(kernel), hold(kernel):
        assert clean(tmp_path, 0).removed == ("kernels/idle",)
        assert kernel.image.exists()
    assert clean(tmp_path, 0).removed == ("kernels/busy",)


def test_clean_sweeps_what_killed_processes_left(tmp_path: Path) -> None:
    put(tmp_path, "k")
    (tmp_path / "kernels/.new-half").mkdir()
    (tmp_path / ".doomed-1").mkdir()
    clean(tmp_path, 1)
    assert [path.name for path in (tmp_path / "kernels").iterdir()] == ["k"]
    assert not (tmp_path / ".doomed-1").exists()


def test_clean_goes_from_kernels_to_objects_to_trees(lab: Lab) -> None:
    for name, edit in (("faster", FASTER), ("grown", GROWN)):
        provide(lab.request(lab.series(name, edit)))
    tree = next((lab.cache / "trees").iterdir())
    objects = next(tree.glob("src/obj-*"))
    sizes = {path: folder_size(path) for path in (objects, tree)}
    bound = sizes[tree] + folder_size(lab.cache / "ccache") + 1
    done = clean(lab.cache, bound / 2**30)
    assert [name.split("/")[0] for name in done.removed] == ["kernels", "kernels", "trees"]
    assert not objects.exists()
    assert (tree / "src/Makefile").exists()
    provide(lab.request())
    assert clean(lab.cache, 0).left == 0
    assert list((lab.cache / "trees").iterdir()) == []
    assert provide(lab.request()).image.exists()


@pytest.mark.skipif(shutil.which("ccache") is None, reason="ccache is not installed")
def test_the_compiler_cache_is_trimmed_to_what_is_left(tmp_path: Path) -> None:
    put(tmp_path / "cache", "k")
    ccache = tmp_path / "cache/ccache"
    numbers = random.Random(1)
    for number in range(12):
        values = ",".join(str(numbers.randrange(2**31)) for _ in range(8000))
        (tmp_path / "x.c").write_text(f"const int x{number}[] = {{{values}}};\n")
        argv = ["ccache", "gcc", "-c", "x.c", "-o", "x.o"]
        env = {**os.environ, "CCACHE_DIR": str(ccache)}
        subprocess.run(argv, cwd=tmp_path, env=env, check=True)
    full = folder_size(ccache)
    # Of ccache 4.10 and newer, which bound the rest alone.
    (ccache / "tmp").mkdir(exist_ok=True)
    (ccache / "tmp/inode-cache-64.v2").write_bytes(bytes(full))
    done = clean(tmp_path / "cache", full * 0.6 / 2**30)
    assert done.removed == ("kernels/k", "ccache (trimmed)")
    assert 0 < done.left <= full * 0.6
    assert clean(tmp_path / "cache", 0).left == 0


def file(path: Path, *, age_s: float = 0.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * MIB)
    os.utime(path, (path.stat().st_mtime - age_s,) * 2)
    return path


def test_clean_goes_from_what_is_fetched_to_what_a_session_needs(tmp_path: Path) -> None:
    day = 24 * 3600 + 1
    for name in ("threads/a.mbox", "initramfs/a.cpio", "initramfs/a.sha256", "native/mark-1"):
        file(tmp_path / name, age_s=day)
    file(tmp_path / "series/k/0001.patch")
    os.utime(tmp_path / "series/k", (0, 0))
    put(tmp_path, "k")
    file(tmp_path / "packages/old.deb", age_s=9)
    file(tmp_path / "packages/new.deb")
    used = [file(tmp_path / "initramfs/b.cpio"), file(tmp_path / "native/mark-2")]
    used += [file(tmp_path / "threads/b.mbox"), file(tmp_path / "initramfs/lock", age_s=day)]
    done = clean(tmp_path, 7.5 / 1024)
    assert done.removed == ("packages/old.deb",)
    done = clean(tmp_path, 0)
    assert done.removed[0] == "packages/new.deb"
    assert {name.split("/")[0] for name in done.removed[1:4]} == {"initramfs", "native"}
    assert done.removed[4] == "kernels/k"
    assert set(done.removed[5:]) == {"threads/a.mbox", "series/k"}
    assert done.left == 0
    assert all(path.exists() for path in used)


def test_clean_leaves_a_package_that_is_unpacked(tmp_path: Path) -> None:
    package = file(tmp_path / "packages/a.deb")
    unpacked = file(tmp_path / "packages/.unpack-1/root/file")
    with locked(tmp_path, "packages"):
        assert clean(tmp_path, 0).removed == ()
        assert unpacked.exists()
    assert clean(tmp_path, 0).removed == ("packages/a.deb",)
    assert list(package.parent.iterdir()) == []


def test_two_threads_never_hold_one_lock(tmp_path: Path) -> None:
    inside: list[str] = []

    def enter(name: str) -> None:
        for _ in range(20):
            with locked(tmp_path, "x"):
                inside.append(name)
                assert len(inside) == 1
                inside.remove(name)

    threads = [threading.Thread(target=enter, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert inside == []


def test_a_killed_process_holds_no_lock(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from kernels.cache import locked\n"
        "with locked(Path(sys.argv[1]), 'x'):\n    print('in', flush=True); time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], cwd=REPOSITORY, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"in\n"
    process.kill()
    process.wait()
    with locked(tmp_path, "x"):
        assert (tmp_path / "locks/x.lock").exists()
