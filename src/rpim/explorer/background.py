"""Background jobs of the explorer: a UMAP map, suggested names, and refits.

``python -m rpim.explorer.background ROWS.npy MAP.npy`` computes the map in its own process: UMAP compiles for seconds
and then holds the GIL for minutes, during which the server could not answer.
"""

from __future__ import annotations

import shutil
import sys
import threading
from pathlib import Path

import numpy as np

from rpim._common.npy import load_npy
from rpim.explorer.jobs import Job, emit
from rpim.explorer.refit import number_of_job, plan, write_job
from rpim.explorer.workbench import Workbench
from rpim.runs.maps import N_DIRECTIONS, PRINCIPAL_MAP, UMAP_MAP, kind_of_map, leading, two_dimensional
from rpim.runs.run_folder import REFITS_FOLDER
from rpim.runs.versions import version_numbers

JOB = "job.npz"
RUNNING = ".running"
"""The folder of a refit in progress, beside those of finished refits."""


class Background:
    """The background jobs of an open run.

    Parameters
    ----------
    bench : Workbench
    """

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._refits = bench.versions.run / REFITS_FOLDER
        self.mapping, self.refitting = Job("map"), Job("refit", self._refits / RUNNING)
        self.refitting.resume(self._take)

    def map(self) -> None:
        """Compute a UMAP map, unless there is one or umap-learn is missing."""
        bench = self._bench
        if bench.map_kind != PRINCIPAL_MAP or kind_of_map() != UMAP_MAP or len(bench) < N_DIRECTIONS:
            return

        def prepare(folder: Path) -> list[str]:
            np.save(folder / "rows.npy", leading(bench.refined, N_DIRECTIONS), allow_pickle=False)
            return [str(folder / "rows.npy"), str(folder / "map.npy")]

        self.mapping.start(
            "rpim.explorer.background", prepare, lambda folder: bench.keep_map(load_npy(folder / "map.npy"))
        )

    def suggest_names(self) -> None:
        """Suggest names for new classes."""
        threading.Thread(target=self._bench.suggest_names, daemon=True).start()

    def refit(self, version: int) -> None:
        """Refit with the decisions about a version; the result becomes the active version.

        The refit continues if the server stops or is killed; the next server takes it over.
        """
        bench, versions = self._bench, self._bench.versions

        def prepare(folder: Path) -> list[str]:
            for left in self._refits.glob(".*.partial"):  # left by a refit that was cancelled while writing
                shutil.rmtree(left, ignore_errors=True)
            number = max(version_numbers(versions.run)) + 1  # after another server's refit, and after damaged ones
            made = plan(versions.state(version), versions[version].labelled, versions[version].confidence)
            write_job(folder / JOB, made, version, number)
            features = [] if bench.features_path is None else [bench.features_path.resolve()]
            return [str(path) for path in (versions.run, folder / JOB, versions.folder(number), *features)]

        self.refitting.start("rpim.explorer.refit", prepare, self._take)

    def _take(self, folder: Path) -> None:
        """Activate the version of a finished refit."""
        self._bench.versions.activate(number_of_job(folder / JOB))
        self.suggest_names()

    def end(self) -> None:
        """The server stops: cancel the map. A refit continues."""
        if self.mapping.status == "running":
            self.mapping.cancel()


def main() -> None:
    """Read rows, write their 2-D positions."""
    rows, target = sys.argv[1:]
    np.save(Path(target), two_dimensional(load_npy(Path(rows))), allow_pickle=False)
    emit(done=True)


if __name__ == "__main__":
    main()
