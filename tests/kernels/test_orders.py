"""Orders of objects: the same code linked at other places, by a real linker."""

from __future__ import annotations

import subprocess
from pathlib import Path

from kernels import orders

OBJECTS = ("main", "apple", "pear", "plum", "cherry", "fig")
LINK = (
    "gcc -no-pie -Wl,--script=./arch/um/kernel/vmlinux.lds -o vmlinux -Wl,--whole-archive "
    "vmlinux.a -Wl,--no-whole-archive -lm"
)


def built(folder: Path, objects: tuple[str, ...]) -> Path:
    """An object folder with a thin archive, and a make that says how it links."""
    place = folder / "obj"
    (place / "arch/um/kernel").mkdir(parents=True)
    script = subprocess.check_output(["ld", "--verbose"], text=True).split("=" * 50)[1]
    (place / "arch/um/kernel/vmlinux.lds").write_text(script)
    for name in objects:
        calls = "".join(f"void {each}(void); {each}();" for each in objects[1:])
        body = f"int main(void) {{ {calls} return 7; }}" if name == "main" else ""
        source = body or f"void {name}(void) {{}}"
        argv = ["gcc", "-c", "-x", "c", "-o", f"{name}.o", "-"]
        subprocess.run(argv, cwd=place, input=source, text=True, check=True)
    named = [f"{name}.o" for name in objects]
    subprocess.run(["ar", "rcsT", "vmlinux.a", *named], cwd=place, check=True)
    make = folder / "make"
    make.write_text(f'#!/bin/sh\necho "  LD vmlinux"; echo "+ {LINK}"\ncd obj && exec {LINK}\n')
    make.chmod(0o755)
    return place


def places(image: Path) -> list[str]:
    """The functions of the objects, in the order of their addresses."""
    lines = subprocess.check_output(["nm", "-n", str(image)], text=True).splitlines()
    return [name for line in lines if (name := line.split()[-1]) in OBJECTS]


def linked(folder: Path, objects: tuple[str, ...], count: int = 4) -> list[list[str]]:
    place = built(folder, objects)
    # Symbols are what the test looks at.
    commands = orders.script([str(folder / "make")], "obj", count).replace(",-s#", ",-z,relro#")
    subprocess.run(["sh", "-c", commands], cwd=folder, check=True)
    for name in orders.names(count):
        assert subprocess.run([place / name], check=False).returncode == 7
    return [places(place / name) for name in orders.names(count)]


def test_each_order_is_another_one_and_the_next_kernel_has_the_same(tmp_path: Path) -> None:
    linked_in = linked(tmp_path, OBJECTS)
    assert len({tuple(order) for order in linked_in}) == 4
    assert all(sorted(order) == sorted(OBJECTS) for order in linked_in)
    (tmp_path / "patched").mkdir()
    patched = linked(tmp_path / "patched", OBJECTS[:-1])
    assert patched == [[name for name in order if name != OBJECTS[-1]] for order in linked_in]


def test_a_script_that_has_no_place_for_them_leaves_no_image(tmp_path: Path) -> None:
    place = built(tmp_path, OBJECTS)
    script = place / "arch/um/kernel/vmlinux.lds"
    script.write_text(script.read_text().replace("*(.text.hot", "*(.text.warm"))
    commands = orders.script([str(tmp_path / "make")], "obj", 2)
    subprocess.run(["sh", "-c", commands], cwd=tmp_path, check=False)
    assert not [path for path in place.glob("order-*") if not path.suffix]
