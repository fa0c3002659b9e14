r"""How far each path scatters between seeds, and in pairs: tables of docs/notebook/workloads.md.

Of sessions whose series changes nothing that runs.  A line a case, of its base arm: the mean over
the seeds and their standard deviation, in % of it; then, for sessions of two arms, the standard
deviation of the paired differences of logarithms, in %.

    ./lab.py run --series configs/series/null-function-4096 --workloads all --set guest=smoke \
        --seeds 8 --session sessions/all
    .venv/bin/python benchmarks/scatter.py sessions/all
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from results.session import open_session
from results.table import tidy


def paths_of(folder: Path) -> pd.DataFrame:
    """Values of all paths of a session that are judged: by case and metric, arms as columns.

    Raises:
        RecordError: it is no session.
    """
    session = open_session(folder)
    frame = tidy(session.manifest, session.records)
    frame = frame[frame["primary"] & frame["metric"].str.endswith(".path")]
    wide = frame.pivot_table(
        index=["case", "metric", "block"], columns="arm", values="value"
    ).dropna()
    named = [(case.name, metric) for case in session.manifest.cases for metric in case.primary]
    rows = [row for name in named for row in wide.index if row[:2] == name]
    # The base arm first.
    return wide.loc[rows, [arm.name for arm in session.manifest.arms]]


def between_seeds(values: pd.DataFrame) -> str:
    """Mean of the base arm and the standard deviation over its seeds, in % of the mean."""
    base = values.iloc[:, 0]
    return f"{base.mean():,.0f} ± {100 * base.std() / base.mean():.2f}"


def in_pairs(values: pd.DataFrame) -> str:
    """Standard deviation of the differences of two arms' logarithms on the same seed, in %."""
    apart = np.log(values.iloc[:, 1]) - np.log(values.iloc[:, 0])
    return f"{100 * apart.std():.2f}"


def main() -> None:
    """Print the rows of both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("session", type=Path, nargs="+")
    frames = [paths_of(folder) for folder in parser.parse_args().session]
    for text_of in (between_seeds, in_pairs):
        for frame in frames:
            for case, of_case in frame.groupby(level="case", sort=False):
                words = ", ".join(
                    f"{str(metric).removesuffix('.path')} {text_of(values)}"
                    for metric, values in of_case.groupby(level="metric", sort=False)
                )
                print(f"| `{case}` | {words} |")
        print()


if __name__ == "__main__":
    main()
