"""The command that `suggest` ends with."""

import shlex

import pytest

from errors import UsageError
from results.coverage import Coverage, Suggestion
from runs.coverage import Advice
from verbs.coverage import _command, suggest_verb

ANSWER = Advice(
    Coverage("deb:linux", "6.12", (), {}),
    Suggestion((), (), (), ()),
    (),
    by_kernels=False,
    chosen=("filemap-4k", "memory"),
)


@pytest.mark.parametrize(
    ("series", "source"),
    [
        (["configs/series/noop"], ""),
        (["/home/me/my patches/v2.mbox", "a;b"], "git:/home/me/linux tree"),
        (["$(reboot)", "HEAD~3..it's"], "dir:&"),
    ],
)
def test_the_command_is_what_was_given(series: list[str], source: str) -> None:
    words = shlex.split(_command(ANSWER, series, source))
    names = [word for name in series for word in ("--series", name)]
    more = ["--source", source] if source else []
    assert words == ["./lab.py", "run", *names, *more, "--workloads", "filemap-4k,memory"]


@pytest.mark.parametrize("source", ["deb:nope", "git:/nowhere", "tarball:/nowhere", "dir:/nowhere"])
def test_a_source_that_is_not_there_is_no_advice(source: str) -> None:
    with pytest.raises(UsageError):
        suggest_verb(["configs/series/noop"], source)
