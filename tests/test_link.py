"""The launcher: a link on the PATH that starts this checkout, from anywhere."""

import os
import subprocess
from pathlib import Path

from tests.waiting import completed

CHECKOUT = Path(__file__).resolve().parent.parent


def link(folder: Path, *, path: str = "/usr/bin:/bin") -> subprocess.CompletedProcess[str]:
    return completed(
        ["make", "-s", "-C", str(CHECKOUT), "link", f"BIN={folder}"],
        check=False,
        env={"PATH": path, "HOME": "/nowhere"},
    )


def test_the_launcher_is_the_lab_wherever_one_is(tmp_path: Path) -> None:
    bin_folder, here = tmp_path / "new" / "bin", tmp_path / "here"
    here.mkdir()
    done = link(bin_folder, path=f"/usr/bin:/bin:{bin_folder}")
    assert done.returncode == 0
    assert "not on your PATH" not in done.stderr
    # Once more, and from another checkout, is no mistake.
    assert link(bin_folder).returncode == 0
    (bin_folder / "twinboot").unlink()
    (bin_folder / "twinboot").symlink_to(tmp_path / "gone" / "lab.py")
    done = link(bin_folder)
    assert done.returncode == 0
    assert f'next: export PATH="{bin_folder}:$PATH"' in done.stderr
    env = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    assert "filemap-v4" in completed(["twinboot", "list"], cwd=here, env=env).stdout
    assert list(here.iterdir()) == []


def test_a_program_of_somebody_else_stays(tmp_path: Path) -> None:
    other = tmp_path / "twinboot"
    other.write_text("#!/bin/sh\n")
    done = link(tmp_path)
    assert done.returncode == 2
    assert "is no launcher of this lab's" in done.stderr
    assert other.read_text() == "#!/bin/sh\n"
