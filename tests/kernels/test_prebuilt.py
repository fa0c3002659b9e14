"""Kernels that somebody else built, from an archive and from files."""

import gzip
from pathlib import Path

import pytest

from errors import InfraError, UsageError
from experiment.spec import Experiment, KernelSpec
from kernels import build, packages, prebuilt, symbols
from kernels.cache import Kernel
from kernels.compare import SIZES_ONLY, compare
from kernels.settle import settle
from tests.kernels import shipped
from tests.kernels.fake import Lab
from tests.kernels.shipped import Archive
from tests.values import data

NAME = "linux-image-6.1.2-test"
DEB = KernelSpec(source=f"deb:{NAME}")


@pytest.fixture
def archive(archive: Archive, tmp_path: Path) -> Archive:
    archive.add(NAME, "6.1.2-1", shipped.shipped(tmp_path / "first", "first"))
    return archive


@pytest.fixture
def image(tmp_path: Path) -> Path:
    root = shipped.shipped(tmp_path / "mine")
    return root / "boot/vmlinuz-6.1.2-test"


def with_modules(image: Path) -> KernelSpec:
    return KernelSpec(source=f"image:{image}@{image.parents[1]}/lib/modules/6.1.2-test")


def names(kernel: Kernel) -> list[str]:
    return [path.name for path in kernel.modules]


def test_package_becomes_a_kernel(lab: Lab, archive: Archive) -> None:
    kernel = build.provide(lab.request(spec=DEB))
    identity = kernel.identity
    assert (identity.release, identity.flavour, identity.patches) == ("6.1.2-test", "prebuilt", ())
    assert identity.source == f"deb:{NAME}=6.1.2-1"
    assert identity.compiler == "gcc-12 (Test) 12.2.0, GNU ld 2.40"
    assert len(identity.build_id) == 40
    assert build.key_of(lab.request(spec=DEB)) == identity.key
    assert kernel.config.read_text() == "CONFIG_SMP=y\n"
    assert names(kernel) == ["00-qemu_fw_cfg.ko", "01-brd.ko", "02-libcrc32c.ko", "03-xfs.ko"]
    assert kernel.modules[0].read_bytes().startswith(b"\x7fELF")
    assert " T vfs_read\n" in kernel.system_map.read_text()
    table = symbols.load(kernel.symbols)[0]
    assert table["schedule"].size == 0x80
    assert (table["helper_1234567890"].size, table["helper_1234567890#2"].size) == (0x80, 0x100)
    assert not (kernel.folder / "vmlinux").exists()
    assert [p.suffix for p in packages.folder(lab.cache).iterdir()] == [".deb"]


def test_a_kernel_in_several_packages_is_the_same_kernel(
    lab: Lab, archive: Archive, tmp_path: Path
) -> None:
    """As since 7.2: image, modules and configuration each in a package, all in one folder."""
    root, release = shipped.shipped(tmp_path / "apart", "first"), "6.1.2-test"
    (tmp_path / "apart/lib").rename(tmp_path / "apart/usr-lib")
    rest = {}
    for kind in ("binary", "base", "modules"):
        rest[kind] = tmp_path / kind
        (rest[kind] / "usr/lib/modules" / release).mkdir(parents=True)
    place = f"usr/lib/modules/{release}"
    (root / f"boot/vmlinuz-{release}").rename(rest["binary"] / place / "vmlinuz")
    (root / f"boot/config-{release}").rename(rest["base"] / place / "config")
    (rest["modules"] / place).rmdir()
    (root / "usr-lib/modules" / release).rename(rest["modules"] / place)
    for kind, content in rest.items():
        archive.add(f"linux-{kind}-6.1.2-apart", "6.1.2-1", content)
    parts = [f"linux-{kind}-6.1.2-apart (= 6.1.2-1)" for kind in rest]
    depends = ", ".join(["dracut | initramfs-tools", *parts])
    archive.add("linux-image-6.1.2-apart", "6.1.2-1", depends=depends)
    apart = build.provide(lab.request(spec=KernelSpec(source="deb:linux-image-6.1.2-apart")))
    whole = build.provide(lab.request(spec=DEB))
    assert apart.identity.code_key == whole.identity.code_key
    assert apart.config.read_text() == whole.config.read_text()
    assert names(apart) == names(whole)


def test_named_version_in_the_cache_needs_no_archive(lab: Lab, archive: Archive) -> None:
    pinned = prebuilt.settle(DEB, **lab.where)
    assert pinned.source == f"deb:{NAME}=6.1.2-1"
    kernel = build.provide(lab.request(spec=pinned))
    archive.drop_all()
    assert build.provide(lab.request(spec=pinned)) == kernel
    assert build.key_of(lab.request(spec=pinned)) == kernel.identity.key
    with pytest.raises(InfraError, match="apt knows no such package"):
        build.provide(lab.request(spec=DEB))


def test_package_without_a_kernel(lab: Lab, archive: Archive) -> None:
    archive.add("linux-image-nothing", "1")
    with pytest.raises(UsageError, match="holds 0 kernels, one is wanted"):
        build.provide(lab.request(spec=KernelSpec(source="deb:linux-image-nothing")))


def test_image_with_its_modules(lab: Lab, image: Path) -> None:
    kernel = build.provide(lab.request(spec=with_modules(image)))
    assert kernel.identity.source.startswith("image:")
    assert str(image) not in kernel.identity.model_dump_json()
    assert names(kernel)[-1] == "03-xfs.ko"
    assert kernel.config.read_text() == "CONFIG_SMP=y\n"
    assert build.provide(lab.request(spec=with_modules(image))) == kernel


def test_key_and_code_are_those_of_image_and_modules(lab: Lab, image: Path) -> None:
    first = build.provide(lab.request(spec=with_modules(image))).identity
    alone = build.provide(lab.request(spec=KernelSpec(source=f"image:{image}"))).identity
    shipped.module(image.parents[1] / "lib/modules/6.1.2-test/kernel/fs/xfs/xfs.ko.zst")
    other = build.provide(lab.request(spec=with_modules(image))).identity
    assert len({each.key for each in (first, alone, other)}) == 3
    assert len({each.code_key for each in (first, alone, other)}) == 3
    assert len({each.build_id for each in (first, alone, other)}) == 1


def test_kernel_without_tables_of_symbols_has_no_names(lab: Lab, tmp_path: Path) -> None:
    elf = shipped.elf(tmp_path).partition(shipped.BANNER)[0]
    path = tmp_path / "bzImage"
    path.write_bytes(shipped.boot_image(shipped.packed(elf, "gzip", tmp_path)))
    kernel = build.provide(lab.request(spec=KernelSpec(source=f"image:{path}")))
    assert not kernel.system_map.exists()
    assert kernel.modules == ()
    assert compare(kernel, kernel, ()) is None


@pytest.mark.parametrize(("source", "message"), data(__file__, "what_is_not_there_is_named"))
def test_what_is_not_there_is_named(lab: Lab, image: Path, source: str, message: str) -> None:
    (lab.checkout / "Makefile").write_text("all:\n")
    with pytest.raises(UsageError, match=message):
        build.key_of(lab.request(spec=KernelSpec(source=source.format(image=image))))


def test_two_prebuilt_kernels_are_compared_by_size(
    lab: Lab, archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build.provide(lab.request(spec=DEB))
    grown = tuple((k, n, at + 0x40 if n == "vfs_read" else at) for k, n, at in shipped.SYMBOLS)
    monkeypatch.setattr(shipped, "SYMBOLS", grown)
    archive.add(NAME, "6.1.2-2", shipped.shipped(tmp_path / "second", "second"))
    second = build.provide(lab.request(spec=DEB))
    assert second.identity.source.endswith("=6.1.2-2")
    record = compare(first, second, ())
    assert record is not None
    changed = {each.name: (each.before, each.after) for each in record.functions}
    assert changed["vfs_read"] == (0xD00, 0xCC0)
    assert "schedule" not in changed
    assert record.findings == (SIZES_ONLY,)
    same = compare(first, first, ())
    assert same is not None
    assert (same.verdict, same.findings) == ("same code", ())


def test_prebuilt_and_built_kernels_are_not_compared(lab: Lab, image: Path) -> None:
    built = build.provide(lab.request())
    other = build.provide(lab.request(spec=with_modules(image)))
    assert compare(built, other, ()) is None


def test_settled_experiment_names_versions_and_whole_paths(
    lab: Lab, archive: Archive, image: Path
) -> None:
    (lab.checkout / "mine").symlink_to(image)
    experiment = Experiment.model_validate_json(f"""{{
        "name": "a", "title": "", "kernel": {{"source": "deb:{NAME}"}},
        "dataset": {{"cgroup_limit_mib": 1, "brd_mib": 2, "file_mib": 1, "jobs": 1}},
        "arms": [{{"name": "one"}}, {{"name": "two", "kernel": {{"source": "image:mine"}}}}],
        "cases": [{{"workload": "any", "times": {{}}}}]
    }}""")
    made = settle(experiment, checkout=lab.checkout, cache=lab.cache).experiment
    assert made.kernel.source == f"deb:{NAME}=6.1.2-1"
    assert made.arms[0].kernel is None
    assert made.arms[1].kernel == KernelSpec(source=f"image:{image}")
    assert settle(made, checkout=lab.checkout, cache=lab.cache).experiment == made


LEFT_OFF = ("BLK_DEV_RAM", "XFS_FS", "FW_CFG_SYSFS")
WANTS = tuple(want for want in prebuilt.WANTS if want.of in ("", "brd", "mkfs.xfs"))


def configuration(*, off: tuple[str, ...] = (), modules: tuple[str, ...] = ()) -> str:
    """A configuration that has all that is wanted but ``off``; some of it as ``modules``."""
    values = {want.option: "m" if want.option in modules else "y" for want in WANTS}
    lines = [f"# CONFIG_{option} is not set" for option in off]
    return "\n".join(
        [*lines, *(f"CONFIG_{name}={value}" for name, value in values.items() if name not in off)]
    )


def built_image(folder: Path, text: str) -> Path:
    """An image where make leaves it, with its configuration at the top of the tree."""
    root = shipped.shipped(folder / "root")
    place = folder / "linux/arch/x86/boot"
    place.mkdir(parents=True)
    (folder / "linux/.config").write_text(text)
    return (root / "boot/vmlinuz-6.1.2-test").rename(place / "bzImage")


def test_options_that_an_own_kernel_lacks_are_named_before_a_boot(lab: Lab, tmp_path: Path) -> None:
    image = built_image(tmp_path, configuration(off=LEFT_OFF))
    spec = KernelSpec(source=f"image:{image}")
    with pytest.raises(UsageError) as caught:
        prebuilt.require(build.provide(lab.request(spec=spec)), WANTS, where="x")
    assert caught.value.where == "x"
    for option in LEFT_OFF:
        assert f"CONFIG_{option}: " in caught.value.what
    assert caught.value.what.count("CONFIG_") == len(LEFT_OFF)
    (tmp_path / "linux/.config").write_text(configuration())
    prebuilt.require(build.provide(lab.request(spec=spec)), WANTS)


def test_a_module_does_where_the_folder_of_modules_has_it(lab: Lab, tmp_path: Path) -> None:
    image = built_image(tmp_path, configuration(modules=("BLK_DEV_RAM", "XFS_FS", "FW_CFG_SYSFS")))
    folder = tmp_path / "root/lib/modules/6.1.2-test"
    spec = KernelSpec(source=f"image:{image}@{folder}")
    prebuilt.require(build.provide(lab.request(spec=spec)), WANTS)
    alone = build.provide(lab.request(spec=KernelSpec(source=f"image:{image}")))
    with pytest.raises(UsageError, match=r"CONFIG_XFS_FS \(a module, and no folder of modules"):
        prebuilt.require(alone, WANTS)
    # What has to be there before a module can be loaded is built in.
    (tmp_path / "linux/.config").write_text(configuration(modules=("TMPFS",)))
    with pytest.raises(UsageError, match="CONFIG_TMPFS"):
        prebuilt.require(build.provide(lab.request(spec=spec)), WANTS)


def test_the_configuration_in_an_image_is_its_own() -> None:
    text = configuration(off=("PSI",))
    data = b"\x7fELF" + b"IKCFG_ST" + gzip.compress(text.encode()) + b"IKCFG_ED" + b"rest"
    assert prebuilt.in_image(data) == text
    assert prebuilt.in_image(b"IKCFG_STnothingIKCFG_ED") == prebuilt.in_image(b"none") == ""
    with pytest.raises(UsageError, match="CONFIG_PSI: stalls are read from it"):
        prebuilt.require_options(text, (), WANTS, where="x")
    # Nothing is known of a kernel that does not say how it was configured.
    prebuilt.require_options("", (), WANTS, where="x")


def test_an_option_that_has_another_name_since_is_there() -> None:
    wants = [prebuilt.Want("PROC_SYSCTL", "caches are dropped there")]
    prebuilt.require_options("CONFIG_SYSCTL=y\n", (), wants, where="deb:linux-image-7.3.4")
    with pytest.raises(UsageError, match="CONFIG_PROC_SYSCTL: caches are dropped"):
        prebuilt.require_options("CONFIG_NET=y\n", (), wants, where="deb:linux-image-7.3.4")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shipped.modules_folder(tmp_path / "6.1.2-test")


def names_of(folder: Path) -> list[str]:
    return [prebuilt.plain(path.name) for path in prebuilt.chosen(folder)]


def test_only_what_is_needed_after_what_it_needs_and_each_once(folder: Path) -> None:
    order = ["qemu_fw_cfg", "brd", "libcrc32c", "xfs"]
    assert names_of(folder) == order
    shipped.module(next(folder.rglob("libcrc32c*")), depends="xfs,brd")
    assert names_of(folder) == order
    # The file system may be missing.
    next(folder.rglob("xfs.ko*")).unlink()
    assert names_of(folder) == order[:2]


def test_built_in_modules_are_not_loaded(folder: Path) -> None:
    for path in folder.rglob("*.ko*"):
        path.unlink()
    every = "".join(f"kernel/x/{name}.ko\n" for name in prebuilt.MODULES)
    (folder / "modules.builtin").write_text(every.replace("qemu_fw_cfg", "qemu-fw-cfg"))
    assert names_of(folder) == []


def test_dependency_that_is_built_in_is_not_looked_for(folder: Path) -> None:
    next(folder.rglob("libcrc32c*")).unlink()
    with pytest.raises(InfraError, match="depends on libcrc32c, which is not there"):
        prebuilt.chosen(folder)
    with (folder / "modules.builtin").open("a") as builtin:
        builtin.write("kernel/lib/libcrc32c.ko\n")
    assert names_of(folder) == ["qemu_fw_cfg", "brd", "xfs"]


def test_what_is_required_and_nowhere_or_is_no_module_is_named(folder: Path) -> None:
    brd = next(folder.rglob("brd*"))
    brd.write_bytes(gzip.compress(b"a text"))
    with pytest.raises(UsageError, match=r"brd\.ko\.gz: no module"):
        prebuilt.chosen(folder)
    brd.unlink()
    with pytest.raises(UsageError, match="no module brd: the workload's file system"):
        prebuilt.chosen(folder)
    (folder / "modules.builtin").unlink()
    with pytest.raises(UsageError, match=r"no folder of modules: it has no modules\.builtin"):
        prebuilt.chosen(folder)


@pytest.mark.parametrize("ending", ["", ".xz", ".gz", ".zst"])
def test_unpacked_as_it_is_loaded_and_a_damaged_one_is_named(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.ko{ending}"
    data = shipped.module(path)
    assert data.startswith(b"\x7fELF")
    assert prebuilt.unpacked_module(path) == data
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    if ending:
        path.write_bytes(b"nothing of the kind")
        with pytest.raises(UsageError, match=rf"a\.ko{ending}: the module is damaged"):
            prebuilt.unpacked_module(path)


def test_modules_of_a_build_are_those_that_kbuild_lists() -> None:
    order = "lib/test_vmalloc.o\ndrivers/a-b.o\n"
    assert prebuilt.built(order) == ("lib/test_vmalloc.ko", "drivers/a-b.ko")
