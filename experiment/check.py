"""The gate before measuring: what is asked of every arm's correctness."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

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
    vcpus: tuple[Annotated[int, Field(ge=1, le=64)], ...] = (1, 4)
    selftest_flavour: Name = "selftest"
    selftests: tuple[Selftest, ...] = ("xarray",)
    cases: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _checks_something(self) -> CheckSpec:
        if not self.vcpus and not self.selftests:
            raise ValueError("vcpus and selftests are both empty: nothing would be checked")
        return self

    @property
    def flavours(self) -> tuple[str, ...]:
        """The kernel flavours it needs."""
        watching = (self.flavour,) if self.vcpus else ()
        own = (self.selftest_flavour,) if self.selftests else ()
        return tuple(dict.fromkeys([*watching, *own]))
