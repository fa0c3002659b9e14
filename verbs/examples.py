"""Two examples for every ``--help``, as they can be typed in the checkout."""

from __future__ import annotations

from typing import NamedTuple


class Example(NamedTuple):
    """A command line, and what it is for."""

    line: str
    purpose: str


# By the words of the verb; the lab itself has none.
EXAMPLES: dict[str, tuple[Example, ...]] = {
    "": (
        Example("./lab.py doctor", "what is missing on this host"),
        Example("./lab.py run filemap-v4 --quick", "a first verdict"),
    ),
    "doctor": (
        Example("./lab.py doctor", "what is missing, and the command that installs it"),
        Example("./lab.py doctor --wall --strict", "whether this host is fit for wall mode"),
        Example("./lab.py doctor --wall --fix", "commands that make it fit, and undo that"),
        Example("./lab.py doctor --exact", "whether a new QEMU release is bit-exact"),
        Example("./lab.py doctor --kernel ../linux", "whether a kernel that nobody tried works"),
    ),
    "list": (
        Example("./lab.py list", "names that other commands accept"),
        Example("./lab.py list --json", "the same for a script"),
    ),
    "fetch": (
        Example("./lab.py fetch linux-source-7.3", "then: --source deb:linux-source-7.3"),
        Example("./lab.py fetch linux-source-7.3 --into ../linux-7.3", "lay it out as well"),
    ),
    "clean": (
        Example("./lab.py clean", "shrink the cache to 20 GiB"),
        Example("./lab.py clean --max-gib 5", "keep less"),
    ),
    "plan": (
        Example("./lab.py plan filemap-v4", "what a session would build and boot, and how long"),
        Example("./lab.py plan --series v3.mbox --no-check", "the same for a posting"),
    ),
    "build": (
        Example("./lab.py build filemap-v4 --quick", "only the kernels of a first verdict"),
        Example("./lab.py build --series v3.mbox --dry-run", "the shell commands instead"),
    ),
    "cache-key": (
        Example("./lab.py cache-key filemap-v4 --no-twins --no-check", "a key for a CI cache"),
        Example("./lab.py cache-key nightly --json", "the key of each kernel, too"),
    ),
    "measure": (
        Example("./lab.py measure noop --session /tmp/s", "records without a report"),
        Example("./lab.py measure --resume sessions/NAME", "finish an interrupted session"),
    ),
    "report": (
        Example("./lab.py report latest", "the newest session, as text"),
        Example("./lab.py report latest --form letter", "a mail for the list"),
    ),
    "run": (
        Example("./lab.py run filemap-v4 --set guest=smoke", "small guests, in minutes"),
        Example(
            "./lab.py run --series MESSAGE-ID@example.org",
            "a posted series, with the workloads that execute what it changes",
        ),
        Example(
            "./lab.py run --arm deb:linux-image-6.1.0-9-amd64 --arm deb:linux-image-6.1.0-10-amd64",
            "two kernels as distributed",
        ),
    ),
    "tree": (
        Example("./lab.py tree HEAD~3.. --quick", "your last three commits"),
        Example("./lab.py tree topic --base mainline --per-patch", "each patch of a branch"),
    ),
    "patch": (
        Example("./lab.py patch 0001-mm-faster.patch --always", "a patch in a file"),
        Example("./lab.py patch --sessions /srv/sessions -", "a mail, as b4 hands it over"),
    ),
    "sessions": (
        Example("./lab.py sessions", "the newest ten, with verdicts"),
        Example("./lab.py sessions --all --json", "all of them, for a script"),
    ),
    "compare": (
        Example("./lab.py compare filemap-v4-20260101-120000 latest", "two runs of one case"),
        Example("./lab.py compare A B --strict", "exit 5 if inconclusive"),
    ),
    "gate": (
        Example("./lab.py gate sessions/NAME", "an exit code for CI"),
        Example("./lab.py gate --history history-data --night 2026-01-02", "of the nightly job"),
    ),
    "bisect": (
        Example("./lab.py bisect filemap-v4 --metric 4k.bw", "which patch of a series"),
        Example(
            "./lab.py bisect --range v6.11..v6.12 --source git:/src/linux --metric 4k.bw "
            "--workloads filemap-4k --threshold 1%",
            "which commit",
        ),
    ),
    "repro": (
        Example("./lab.py repro sessions/NAME -o s.tar.gz", "pack a session"),
        Example("./lab.py repro --check s.tar.gz", "repeat it and compare every number"),
    ),
    "pages": (
        Example("./lab.py pages", "a site of the history in ./site"),
        Example("./lab.py pages history-data -o /srv/www/perf --sessions sessions", "with reports"),
    ),
    "watch": (
        Example("./lab.py watch ~/lore/linux-mm mm/ fs/*.c --once", "check a mailbox once"),
        Example("./lab.py watch ~/mail/linux-mm.mbox --every 300 --set guest=smoke", "for ever"),
    ),
    "completion": (
        Example("./lab.py completion bash", "what ~/.bashrc evaluates"),
        Example("./lab.py completion fish --program lab.py", "for another name of the program"),
    ),
    "queue": (
        Example("./lab.py queue add v3.mbox", "queue a posting"),
        Example("./lab.py queue run", "measure all waiting entries"),
    ),
    "queue add": (
        Example("./lab.py queue add v3.mbox --priority 2", "ahead of the others"),
        Example("./lab.py queue add --table series.csv --set guest=smoke", "a row each"),
    ),
    "queue list": (
        Example("./lab.py queue list", "waiting entries, then results"),
        Example("./lab.py queue list --all --json", "also what was removed"),
    ),
    "queue run": (
        Example("./lab.py queue run --limit 1", "the first that waits"),
        Example("./lab.py queue run --wait 60 --guests 2", "for ever, two guests at once"),
    ),
    "queue remove": (
        Example("./lab.py queue remove v3-1a2b3c4d", "by its id"),
        Example("./lab.py queue remove v3- v4-", "by the beginnings of ids"),
    ),
    "queue retry": (
        Example("./lab.py queue retry v3-1a2b3c4d", "resume its session"),
        Example("./lab.py queue retry v3-1a2b3c4d --new-session", "or start a new one"),
    ),
    "suggest": (
        Example("./lab.py suggest configs/series/filemap-walks", "what shows a series of the lab"),
        Example("./lab.py suggest v3.mbox --json", "of a posting, for a script"),
        Example("./lab.py suggest HEAD~3.. --source git:~/linux", "commits of a tree"),
    ),
    "coverage": (
        Example("./lab.py coverage show mm fs/iomap", "how much of two folders is executed"),
        Example("./lab.py coverage add sessions/NAME", "after a workload was changed"),
    ),
    "coverage show": (
        Example("./lab.py coverage show", "the folders of docs/coverage.md"),
        Example("./lab.py coverage show mm/vmscan.c --unreached", "what no workload executes"),
    ),
    "workload": (
        Example("./lab.py workload new sockets", "begin a workload"),
        Example("./lab.py list", "the workloads that are there"),
    ),
    "workload new": (
        Example("./lab.py workload new sockets", "workloads/catalogue/sockets.toml and more"),
        Example("./lab.py list", "the workloads that are there"),
    ),
    "coverage add": (
        Example("./lab.py coverage add latest", "the newest session"),
        Example("./lab.py coverage add sessions/a sessions/b", "of several experiments"),
    ),
    "history": (
        Example("./lab.py history add sessions/NAME", "keep a session as a night"),
        Example("./lab.py history show", "what changed"),
    ),
    "history add": (
        Example("./lab.py history add sessions/NAME", "with the session's date"),
        Example("./lab.py history add sessions/A sessions/B --night 2026-01-02", "as one night"),
    ),
    "history show": (
        Example("./lab.py history show", "every benchmark and every change"),
        Example(
            "./lab.py history show --experiment nightly --nights 30", "a month of one experiment"
        ),
    ),
    "history export": (
        Example("./lab.py history export all.jsonl", "for another lab, or pandas"),
        Example("./lab.py history export all.jsonl --history /srv/history", "of another folder"),
    ),
    "history import": (
        Example("./lab.py history import all.jsonl", "from another lab"),
        Example("./lab.py history import a.jsonl b.jsonl --history /srv/history", "elsewhere"),
    ),
}


def text_of(path: str) -> str:
    """The examples of a verb as the end of its help: a line each, for typer's markup.

    What it is for is a comment of the shell, so that a whole line can be pasted.
    """
    lines = [f"{example.line}  # {example.purpose}" for example in EXAMPLES[path]]
    return "\n\n".join(["Examples:", *lines])
