"""What is done while a person goes on working: a better map, names to suggest, and a new fit."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np

from rpim.explorer.jobs import Job
from rpim.explorer.refit import plan, write_job
from rpim.explorer.workbench import Workbench
from rpim.files import load_npy
from rpim.maps import N_DIRECTIONS, PRINCIPAL_MAP, UMAP_MAP, kind_of_map, leading


class Background:
    """Jobs of one run that is opened.

    Parameters
    ----------
    bench : Workbench
    """

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self.mapping, self.refitting = Job("map"), Job("new fit")

    def map(self) -> None:
        """Make a map by UMAP, unless there is one already or it cannot be made."""
        bench = self._bench
        if bench.map_kind != PRINCIPAL_MAP or kind_of_map() != UMAP_MAP or len(bench) < N_DIRECTIONS:
            return

        def prepare(folder: Path) -> list[str]:
            np.save(folder / "rows.npy", leading(bench.refined, N_DIRECTIONS), allow_pickle=False)
            return [str(folder / "rows.npy"), str(folder / "map.npy")]

        self.mapping.start(
            "rpim.explorer.mapping", prepare, lambda folder: bench.keep_map(load_npy(folder / "map.npy"))
        )

    def suggest_names(self) -> None:
        """Find names for new classes."""
        threading.Thread(target=self._bench.suggest_names, daemon=True).start()

    def refit(self, version: int) -> None:
        """Fit again with the decisions about a version; once done, that fit is the one that is looked at."""
        bench, versions = self._bench, self._bench.versions
        number = max(versions.numbers()) + 1

        def prepare(folder: Path) -> list[str]:
            made = plan(versions.state(version), bench.labelled, versions[version].sureness)
            write_job(folder / "job.npz", made, version)
            features = [] if bench.features_path is None else [bench.features_path.resolve()]
            return [str(path) for path in (versions.run, folder / "job.npz", versions.folder(number), *features)]

        def finish(folder: Path) -> None:
            versions.store.activate(number)
            self.suggest_names()

        self.refitting.start("rpim.explorer.refit", prepare, finish)

    def end(self) -> None:
        """The server ends: nobody waits for the map any more. A new fit goes on, and is there the next time."""
        if self.mapping.status == "running":
            self.mapping.cancel()
