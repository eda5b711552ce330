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

from rpim._common.files import load_npy
from rpim.explorer.jobs import Job, emit
from rpim.explorer.refit import number_of_job, plan, write_job
from rpim.explorer.workbench import Workbench
from rpim.runs.maps import N_DIRECTIONS, PRINCIPAL_MAP, UMAP_MAP, kind_of_map, leading, two_dimensional
from rpim.runs.run_folder import REFITS_FOLDER

JOB = "job.npz"
RUNNING = ".running"
"""The folder of a fit under way, among those of the fits that are done."""


class Background:
    """Jobs of one run that is opened.

    Parameters
    ----------
    bench : Workbench
    """

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._refits = bench.versions.run / REFITS_FOLDER
        self.mapping, self.refitting = Job("map"), Job("new fit", self._refits / RUNNING)
        self.refitting.resume(self._take)

    def map(self) -> None:
        """Make a map by UMAP, unless there is one already or it cannot be made."""
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
        """Find names for new classes."""
        threading.Thread(target=self._bench.suggest_names, daemon=True).start()

    def refit(self, version: int) -> None:
        """Fit again with the decisions about a version; once done, that fit is the one that is looked at.

        It goes on if the server ends, or is killed: the next one takes it over.
        """
        bench, versions = self._bench, self._bench.versions
        number = max(versions.numbers()) + 1

        def prepare(folder: Path) -> list[str]:
            for left in self._refits.glob(".*.partial-*"):  # by a fit that was cancelled while it was written
                shutil.rmtree(left, ignore_errors=True)
            made = plan(versions.state(version), bench.labelled, versions[version].confidence)
            write_job(folder / JOB, made, version, number)
            features = [] if bench.features_path is None else [bench.features_path.resolve()]
            return [str(path) for path in (versions.run, folder / JOB, versions.folder(number), *features)]

        self.refitting.start("rpim.explorer.refit", prepare, self._take)

    def _take(self, folder: Path) -> None:
        """Look at the version that a fit has made."""
        self._bench.versions.store.activate(number_of_job(folder / JOB))
        self.suggest_names()

    def end(self) -> None:
        """The server ends: nobody waits for the map any more. A new fit goes on, and is there the next time."""
        if self.mapping.status == "running":
            self.mapping.cancel()


def main() -> None:
    """Read rows, write their places."""
    rows, target = sys.argv[1:]
    np.save(Path(target), two_dimensional(load_npy(Path(rows))), allow_pickle=False)
    emit(done=True)


if __name__ == "__main__":
    main()
