"""The gate before measuring: what is asked of every arm's correctness."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from experiment.frozen import Frozen, Name

# Self-tests of the kernel's own that run as it boots (workloads/selftests.toml).
Selftest = Literal["xarray", "ida"]


class CheckSpec(Frozen):
    """Correctness checks, made on every arm."""

    flavour: Name = "lockdep"
    """The kernel that watches itself while it does a short form of the cases and reads everything
    back.
    """
    vcpus: Annotated[tuple[Annotated[int, Field(ge=1, le=64)], ...], Field(max_length=64)] = (1, 4)
    """One guest of that kernel for each number of vCPUs; empty: no such kernel is built."""
    selftest_flavour: Name = "selftest"
    """The kernel that runs self-tests as it boots."""
    selftests: tuple[Selftest, ...] = ("xarray",)
    """The kernel's own self-tests; empty: no such kernel is built."""
    cases: tuple[str, ...] = ()
    """Cases whose short form is run; empty: all."""

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
