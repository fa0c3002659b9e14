"""The gate before measuring: what is asked of every arm's correctness."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from experiment.frozen import Frozen, Name

# Self-tests of the kernel's own that run as it boots (workloads/selftests.toml).
Selftest = Literal["xarray", "ida"]


class CheckSpec(Frozen):
    """Checks that run on every arm before anything is measured.

    The kernel of ``flavour`` watches itself while it runs a short form of ``cases``
    (all where none is named) and reads everything back, once for each number of
    ``vcpus``.  The kernel of ``selftest_flavour`` runs ``selftests`` as it boots and
    then does the same on one vCPU; no such kernel is built where none is named.
    """

    flavour: Name = "lockdep"
    vcpus: Annotated[tuple[Annotated[int, Field(ge=1, le=64)], ...], Field(min_length=1)] = (1, 4)
    selftest_flavour: Name = "selftest"
    selftests: tuple[Selftest, ...] = ("xarray",)
    cases: tuple[str, ...] = ()

    @property
    def flavours(self) -> tuple[str, ...]:
        """The kernel flavours it needs."""
        own = (self.selftest_flavour,) if self.selftests else ()
        return tuple(dict.fromkeys([self.flavour, *own]))
