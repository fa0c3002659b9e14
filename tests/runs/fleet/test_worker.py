"""Who a worker is, and what of it must be equal."""

from pathlib import Path

from guests.kept import digest_of
from runs.fleet.worker import differences, identity, lab_code


def test_everything_a_guests_bits_depend_on_is_named() -> None:
    parts = identity()
    assert set(parts) == {
        "lab code",
        "QEMU version",
        "QEMU binary",
        "QEMU libraries",
        "QEMU firmware",
        "Python",
        "machine",
    }
    assert all(parts.values())
    assert digest_of([]) not in (parts["QEMU firmware"], parts["QEMU libraries"])
    assert parts["QEMU version"][0].isdigit()


def checkout(tmp_path: Path, text: str = "A = 1\n") -> Path:
    for name in ("runs/a.py", "workloads/agent.sh", "docs/a.md", "runs/__pycache__/a.pyc"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if name == "runs/a.py" else "same\n")
    return tmp_path


def test_code_counts_and_what_is_only_read_by_people_does_not(tmp_path: Path) -> None:
    first = lab_code(checkout(tmp_path))
    (tmp_path / "docs/a.md").write_text("other\n")
    (tmp_path / "runs/__pycache__/a.pyc").write_text("other\n")
    assert lab_code(tmp_path) == first
    assert lab_code(checkout(tmp_path, "A = 2\n")) != first
    checkout(tmp_path)
    (tmp_path / "runs/a.py").rename(tmp_path / "runs/b.py")
    assert lab_code(tmp_path) != first


def test_both_values_are_shown_of_what_differs() -> None:
    here = {"QEMU version": "7.2.19", "Python": "3.11", "machine": "x86_64"}
    there = {"QEMU version": "8.2.0", "Python": "3.11"}
    assert differences(here, there) == (
        "QEMU version: 8.2.0 there, 7.2.19 here",
        "machine: unknown there, x86_64 here",
    )
    assert differences(here, dict(here)) == ()
