"""From ``--executor`` to an executor: this host, a scheduler, or a cluster by a file."""

from __future__ import annotations

import ipaddress
import logging
import queue
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from errors import InfraError, SpecError, UsageError
from experiment.frozen import Frozen
from experiment.load import read_toml, validated
from runs.boots import Executor
from runs.fleet.artefacts import ArtefactStore
from runs.fleet.executor import CONNECT_S, DaskExecutor
from runs.fleet.members import Settings
from runs.local import LocalExecutor

FOLDER = "configs/executors"
DASK, TLS, JOBQUEUE = "dask://", "tls://", "dask-jobqueue:"
FORMS = "local, dask://HOST:PORT, tls://HOST:PORT or dask-jobqueue:NAME"
CLUSTERS = {
    "slurm": "SLURMCluster",
    "pbs": "PBSCluster",
    "sge": "SGECluster",
    "lsf": "LSFCluster",
    "oar": "OARCluster",
    "moab": "MoabCluster",
    "htcondor": "HTCondorCluster",
}


class ClusterFile(Frozen):
    """A cluster's file: what one job asks for, and how many jobs.

    ``memory`` is as dask reads it ("32 GiB"), ``walltime`` as the cluster does.  ``store``
    is a folder that every node sees, or an fsspec URL.  ``logs`` is where the jobs' own output
    goes, where the cluster puts it if it is not said.  ``python`` is the nodes' own, with
    the lab's packages; ``checkout`` where the lab is on them; both default to those here.
    """

    cluster: Literal["slurm", "pbs", "sge", "lsf", "oar", "moab", "htcondor"]
    cores: int = Field(ge=1)
    memory: str
    jobs: int = Field(ge=1)
    store: str = Field(min_length=1)
    processes: int = Field(default=1, ge=1)
    walltime: str = ""
    queue: str = ""
    account: str = ""
    interface: str = ""
    python: str = ""
    checkout: str = ""
    logs: str = ""
    directives: tuple[str, ...] = ()
    prologue: tuple[str, ...] = ()
    resources: dict[str, float] = Field(default_factory=dict)
    settings: Settings = Settings()


def executor_of(
    text: str,
    store: str,
    *,
    checkout: Path,
    cache: Path,
    log: Callable[[str], None],
    insecure: bool = False,
) -> AbstractContextManager[Executor]:
    """The executor that the command line names; nothing is connected before it is needed.

    Raises:
        UsageError: no such form, no such file of a cluster, or (unless ``insecure``) a scheduler
            that whoever reaches it can have run anything.
        SpecError: the file does not hold what it must.
    """
    if text == "local":
        return nullcontext(LocalExecutor())
    if text.startswith((DASK, TLS)):
        address = text.removeprefix(DASK).removeprefix(TLS)
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise _unknown(text)
        open_to_all = text.startswith(DASK) and not insecure
        if open_to_all and not is_loopback(host):
            raise _open_to_all(text, host)
        kept = ArtefactStore(store or str(cache / "store"))
        scheme = TLS if text.startswith(TLS) else "tcp://"
        return DaskExecutor(
            text,
            lambda stack: _client(stack, f"{scheme}{address}", loopback_only=open_to_all),
            kept,
            Settings(),
            log,
        )
    if text.startswith(JOBQUEUE):
        cluster = read_cluster(text.removeprefix(JOBQUEUE), checkout)
        kept = ArtefactStore(store or cluster.store)
        return DaskExecutor(
            text, lambda stack: _cluster(stack, cluster, checkout), kept, cluster.settings, log
        )
    raise _unknown(text)


def is_loopback(host: str) -> bool:
    """Whether only this host reaches an address."""
    bare = host.strip("[]").partition("%")[0]
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return bare == "localhost"


def _open_to_all(text: str, host: str) -> UsageError:
    return UsageError(
        f"a scheduler without TLS that listens on {host} is a shell on every worker, and in this "
        "process, for whoever reaches it",
        where=text,
        next_step="give it certificates and write tls://HOST:PORT (docs/fleet.md); or have it "
        "listen on 127.0.0.1 alone, reached by ssh -L; or add --insecure in a network of your own",
    )


def read_cluster(name: str, checkout: Path) -> ClusterFile:
    """A file under ``configs/executors/``, by its name.

    Raises:
        UsageError: there is no such file.
        SpecError: a line for each key that is wrong, with what was found and what is allowed.
    """
    file = f"{FOLDER}/{name}.toml"
    known = sorted(path.stem for path in (checkout / FOLDER).glob("*.toml"))
    if name not in known:
        raise UsageError(
            f"no such file: {file}",
            where="--executor",
            next_step=f"one of: {', '.join(known) or 'none is there'}",
        )
    cluster, problems = validated(read_toml(checkout / file), ClusterFile)
    if cluster is None:
        raise SpecError([problem.line(file) for problem in problems])
    return cluster


def cluster_arguments(cluster: ClusterFile, checkout: Path) -> dict[str, Any]:
    """What dask-jobqueue is told, but for its certificates.

    Without an ``interface`` the scheduler listens where this host's own route to others begins.
    """
    from distributed.utils import get_ip

    folder = cluster.checkout or str(checkout)
    options = {
        "queue": cluster.queue,
        "account": cluster.account,
        "walltime": cluster.walltime,
        "interface": cluster.interface,
        "log_directory": cluster.logs,
    }
    resources = " ".join(f"{name}={value:g}" for name, value in cluster.resources.items())
    return {
        "cores": cluster.cores,
        "memory": cluster.memory,
        "processes": cluster.processes,
        "python": cluster.python or f"{folder}/.venv/bin/python",
        # Found by worker processes that the nanny starts, too.
        "job_script_prologue": [f"cd {folder}", f"export PYTHONPATH={folder}", *cluster.prologue],
        "job_extra_directives": list(cluster.directives),
        "worker_extra_args": ["--resources", f"'{resources}'"] if resources else [],
        # Several sessions may be under way on one host.  Nobody is asked who he is there.
        "scheduler_options": {"dashboard_address": "localhost:0"}
        | ({} if cluster.interface else {"host": get_ip()}),
        **{key: value for key, value in options.items() if value},
    }


def _client(stack: ExitStack, address: str, *, loopback_only: bool = False) -> Any:
    """A client of a scheduler that answers; with ``loopback_only`` of one that nobody else reaches.

    Something that listens there and is no scheduler of ours may say nothing for ever: dask's
    own time-out covers the connection only.
    """
    from distributed import Client

    _quiet()
    made: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def connect() -> None:
        try:
            # Of tls:// with the certificates of dask's own configuration.
            made.put(Client(address, timeout=CONNECT_S, set_as_default=False))
        except Exception as error:
            made.put(error)

    threading.Thread(target=connect, daemon=True).start()
    try:
        answer = made.get(timeout=2 * CONNECT_S)
    except queue.Empty:
        answer = TimeoutError(f"no answer within {2 * CONNECT_S:.0f} s")
    if isinstance(answer, Exception):
        raise InfraError(
            f"no scheduler answers: {answer}",
            where=address,
            next_step="set distributed.comm.tls in dask's configuration; see docs/fleet.md"
            if address.startswith(TLS)
            else "dask scheduler; see docs/fleet.md",
        )
    client = stack.enter_context(answer)
    if loopback_only:
        # One that listens everywhere answers here, too; it says where others find it.
        contact = urlsplit(str(client.scheduler_info(n_workers=0)["address"])).hostname or ""
        if not is_loopback(contact):
            raise _open_to_all(address, contact)
    return client


def _cluster(stack: ExitStack, settings: ClusterFile, checkout: Path) -> Any:
    import dask_jobqueue
    from distributed import Client

    _quiet()
    made = getattr(dask_jobqueue, CLUSTERS[settings.cluster])
    try:
        arguments = cluster_arguments(settings, checkout)
        security = stack.enter_context(_security(settings))
        cluster = stack.enter_context(made(**arguments, security=security, protocol=TLS))
        cluster.scale(jobs=settings.jobs)
        return stack.enter_context(
            Client(cluster, security=security, timeout=CONNECT_S, set_as_default=False)
        )
    except (OSError, TimeoutError, RuntimeError, ValueError) as error:
        raise InfraError(
            f"{type(error).__name__}: {error}",
            where=f"cluster {settings.cluster}",
            next_step="see docs/fleet.md",
        ) from None


@contextmanager
def _security(settings: ClusterFile) -> Iterator[Any]:
    """The certificates of dask's configuration, or some for this session where it has none.

    These lie in a folder that the nodes see and only this user reads, as long as the session lasts.
    """
    from distributed.security import Security

    configured = Security()
    roles = [configured.get_tls_config_for_role(role) for role in ("scheduler", "worker", "client")]
    if all(all(role.values()) for role in roles):
        yield configured
        return
    made = Security.temporary().get_tls_config_for_role("worker")
    top = Path(settings.logs or ".").absolute()
    top.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".twinboot-tls-", dir=top) as name:
        places = {}
        for part in ("ca_file", "cert", "key"):
            place = Path(name) / f"{part}.pem"
            place.write_text(made[part])
            places[part] = str(place)
        ca, cert, key = places.values()
        yield Security(
            require_encryption=True,
            tls_ca_file=ca,
            tls_scheduler_cert=cert,
            tls_scheduler_key=key,
            tls_worker_cert=cert,
            tls_worker_key=key,
            tls_client_cert=cert,
            tls_client_key=key,
        )


def _quiet() -> None:
    """What breaks is said once, by who notices; not as a trace by each of dask's threads.

    Importing dask sets its loggers up, so this comes after it.
    """
    logging.getLogger("distributed").setLevel(logging.CRITICAL)


def _unknown(text: str) -> UsageError:
    return UsageError(f"unknown executor {text!r}", where="--executor", next_step=FORMS)
