"""Where a series, a source or a kernel that was named on a command line lies."""

from __future__ import annotations

from pathlib import Path

from experiment.series_name import kind_of, split_mail


def from_here(name: str, *, here: Path, checkout: Path) -> str:
    """A series or source named on the command line, whose relative paths start ``here``.

    Those of experiment files start at the checkout, which is where what is not found
    here is left to be looked for.
    """
    kind, colon, rest = name.partition(":")
    if colon and kind in ("git", "dir", "tarball", "image"):
        place, at, more = rest.partition("@") if kind in ("git", "image") else (rest, "", "")
        if kind == "image" and at:
            more = _absolute(more, here, checkout)
        return f"{kind}:{_absolute(place, here, checkout)}{at}{more}"
    if kind_of(name) in ("thread", "range") or colon:
        return name
    file, mail = split_mail(name)
    return _absolute(file, here, checkout) + (f"#{mail}" if mail else "")


def _absolute(place: str, here: Path, checkout: Path) -> str:
    path = here / Path(place).expanduser()
    if not path.exists() or (here == checkout and not place.startswith("~")):
        return place
    return str(path)
