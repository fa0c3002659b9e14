"""--executor and the files of clusters."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from errors import InfraError, SpecError, UsageError
from runs.fleet.configured import (
    FOLDER,
    cluster_arguments,
    executor_of,
    read_cluster,
)
from runs.fleet.executor import DaskExecutor
from runs.local import LocalExecutor

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).resolve().parents[3]
SMALL = 'cluster = "slurm"\ncores = 4\nmemory = "16 GiB"\njobs = 2\nstore = "/shared/store"\n'


def written(tmp_path: Path, text: str) -> Path:
    (tmp_path / FOLDER).mkdir(parents=True, exist_ok=True)
    (tmp_path / FOLDER / "mine.toml").write_bytes(text.encode(errors="surrogateescape"))
    return tmp_path


def chosen(text: str, tmp_path: Path, store: str = "", *, insecure: bool = False) -> object:
    with executor_of(
        text, store, checkout=tmp_path, cache=tmp_path / "cache", log=print, insecure=insecure
    ) as made:
        return made


def test_this_host_is_the_default(tmp_path: Path) -> None:
    assert chosen("local", tmp_path) == LocalExecutor()


def test_a_scheduler_by_address_and_a_store_for_it(tmp_path: Path) -> None:
    made = chosen("tls://host:8786", tmp_path)
    assert isinstance(made, DaskExecutor)
    assert made.store.url == str(tmp_path / "cache" / "store")
    other = chosen("dask://localhost:8786", tmp_path, "s3://bucket/kernels")
    assert isinstance(other, DaskExecutor)
    assert other.store.url == "s3://bucket/kernels"


@pytest.mark.parametrize("text", ["dask://host", "dask://:8786", "ray://x", "", "dask://h:port"])
def test_another_form_is_refused_with_those_known(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown executor") as error:
        chosen(text, tmp_path)
    assert "dask-jobqueue:NAME" in error.value.next_step


@pytest.mark.parametrize("host", ["build-7", "10.0.0.1", "0.0.0.0", "[fe80::1]", "127.0.0.1.org"])
def test_a_scheduler_that_others_reach_needs_tls_or_a_word(host: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a shell") as error:
        chosen(f"dask://{host}:8786", tmp_path)
    assert "tls://HOST:PORT" in error.value.next_step
    assert "--insecure" in error.value.next_step
    assert isinstance(chosen(f"dask://{host}:8786", tmp_path, insecure=True), DaskExecutor)
    assert isinstance(chosen(f"tls://{host}:8786", tmp_path), DaskExecutor)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "[::1]"])
def test_a_scheduler_on_loopback_needs_none(host: str, tmp_path: Path) -> None:
    assert isinstance(chosen(f"dask://{host}:8786", tmp_path), DaskExecutor)


def test_a_scheduler_that_listens_everywhere_is_refused_by_its_own_address(tmp_path: Path) -> None:
    script = (
        "import asyncio\nfrom distributed import Scheduler\n"
        "async def main():\n"
        "    async with Scheduler(host='0.0.0.0', port=0, dashboard=False,\n"
        "                         contact_address='tcp://192.0.2.7:1') as made:\n"
        "        print(made.listeners[0].listen_address, flush=True)\n"
        "        await made.finished()\n"
        "asyncio.run(main())\n"
    )
    argv = [sys.executable, "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip().rpartition(":")[2]
            made = chosen(f"dask://127.0.0.1:{port}", tmp_path)
            assert isinstance(made, DaskExecutor)
            with pytest.raises(UsageError, match="listens on 192"):
                _ = made.members
            trusted = chosen(f"dask://127.0.0.1:{port}", tmp_path, insecure=True)
            assert isinstance(trusted, DaskExecutor)
            assert trusted.members
        finally:
            process.kill()


def test_nobody_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runs.fleet.configured.CONNECT_S", 1.0)
    made = chosen("dask://127.0.0.1:1", tmp_path)
    assert isinstance(made, DaskExecutor)
    with pytest.raises(InfraError, match="no scheduler answers") as error:
        _ = made.members
    assert error.value.exit_code == 3


def test_every_shipped_file_is_valid() -> None:
    names = sorted(path.stem for path in (CHECKOUT / FOLDER).glob("*.toml"))
    assert "slurm" in names
    for name in names:
        assert read_cluster(name, CHECKOUT).store


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("jobs = 2", "jobs: missing"),
        ('cluster = "slurm"', "cluster: missing"),
    ],
)
def test_what_is_missing_is_named(change: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=f"{FOLDER}/mine.toml: {message}"):
        read_cluster("mine", written(tmp_path, SMALL.replace(change, "")))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('wall = "1h"', "wall: unknown key .*did you mean 'walltime'"),
        ("processes = 0", "processes: found 0"),
        ("settings.losses = 0", "settings.losses: found 0"),
        ("cores = ", "mine.toml:6:9: Invalid value"),
        ('account = "\udce9"', "mine.toml:6: is not UTF-8"),
    ],
)
def test_what_is_wrong_is_named_with_its_value(more: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=message):
        read_cluster("mine", written(tmp_path, f"{SMALL}{more}\n"))


def test_an_unknown_cluster_and_an_unknown_file(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r'cluster: found "cray".*allowed: .*pbs'):
        read_cluster("mine", written(tmp_path, SMALL.replace("slurm", "cray")))
    with pytest.raises(UsageError, match="no such file") as error:
        read_cluster("yours", written(tmp_path, SMALL))
    assert "mine" in error.value.next_step


def test_the_job_script_of_a_slurm_cluster(tmp_path: Path) -> None:
    import dask_jobqueue

    text = (
        f'{SMALL}queue = "batch"\nwalltime = "02:00:00"\nresources = {{ wall = 1 }}\n'
        f'checkout = "/opt/lab"\nlogs = "{tmp_path}/logs"\ndirectives = ["--exclusive"]\n'
    )
    settings = read_cluster("mine", written(tmp_path, text))
    with dask_jobqueue.SLURMCluster(**cluster_arguments(settings, tmp_path)) as cluster:
        script = cluster.job_script()
    for line in (
        "#SBATCH -p batch",
        "#SBATCH -t 02:00:00",
        "#SBATCH --cpus-per-task=4",
        "#SBATCH --exclusive",
        "export PYTHONPATH=/opt/lab",
        "cd /opt/lab",
        f"#SBATCH -o {tmp_path}/logs/",
    ):
        assert line in script
    assert "/opt/lab/.venv/bin/python -m distributed.cli.dask_worker" in script
    assert "--resources 'wall=1'" in script


SERVED = """
import logging
import sys
from pathlib import Path
from runs.fleet.configured import executor_of
logging.basicConfig(level=logging.INFO)
where = Path(sys.argv[1])
with executor_of("dask-jobqueue:mine", "", checkout=where, cache=where, log=print) as made:
    print("slots", made.slots(64, None))
    print("at", made.members.client.scheduler.address)
    try:
        from distributed import Client
        Client(made.members.client.scheduler.address.replace("tls", "tcp"), timeout=3)
    except OSError:
        print("nobody else")
    print(sorted(oct(path.stat().st_mode) for path in where.glob(".twinboot-tls-*")))
"""
# Slurm's own commands, as far as they are used: a job is a process, its number the process's.
SBATCH = """#!/bin/sh
script=$(cat "$1")
setsid sh -c "$script" >"$0.out" 2>&1 &
echo "Submitted batch job $!"
"""
SCANCEL = """#!/bin/sh
kill -TERM -- "-$1"
"""


def test_a_cluster_serves_and_dask_says_nothing_of_its_own(tmp_path: Path) -> None:
    written(
        tmp_path,
        'cluster = "slurm"\ncores = 1\nmemory = "1 GiB"\njobs = 1\n'
        f'store = "{tmp_path}/store"\ncheckout = "{CHECKOUT}"\npython = "{sys.executable}"\n',
    )
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    argv = [sys.executable, "-c", SERVED, str(tmp_path)]
    done = subprocess.run(
        argv,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(CHECKOUT)},
    )
    assert done.returncode == 0, done.stderr
    assert "slots 1" in done.stdout
    # With certificates of this session, at one address, for who has them.
    assert re.search(r"^at tls://(?!0\.0\.0\.0)[0-9.]+:[0-9]+$", done.stdout, re.M)
    assert "nobody else" in done.stdout
    assert "['0o40700']" in done.stdout
    assert not list(tmp_path.glob(".twinboot-tls-*"))
    assert done.stderr == ""
    assert "Start worker" in (tmp_path / "sbatch.out").read_text()
