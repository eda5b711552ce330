"""Damaged checkpoints and refits, and hostile requests to the explorer; with the files of fuzz_cases.py, all kinds."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import fuzz_cases
from fuzz_cases import NUMBERS, ODD, Kind, Read, damage, damaged, odd_values, rpim

DISCOVER = ("--n-classes", 4, "--no-report", "-q", "-o", "out")
FITS = {"committee": ("--n-members", 2), "single": ("--n-members", 1, "--trade-off", 0.1)}
TOKEN, OURS = "the-key", "http://127.0.0.1:8000"


# Checkpoints ----------------------------------------------------------------------------------------------------------


def _checkpoint(random: Random, originals: Path, folder: Path) -> Read:
    """A fit or an embedding that is resumed from a folder in which one file is damaged."""
    name = random.choice([*FITS, "texts.npz"])
    work = folder / ("out.npz.checkpoint" if name == "texts.npz" else "out.checkpoint")
    shutil.copytree(originals / f"{name}.checkpoint", work)
    file = random.choice(sorted(work.iterdir()))
    if file.suffix == ".safetensors" and random.random() < 0.5:
        _change_state(random, file)
    elif random.random() < 0.1:
        file.rename(file.with_name(random.choice(["member-x.safetensors", "member-99.safetensors", "part-abcdef.npz"])))
    else:
        damage(random, file)

    def read() -> None:
        if name == "texts.npz":
            _embed_texts(originals, folder / "out.npz")
        else:
            rpim("discover", originals / "f.npz", *FITS[name], *DISCOVER)()
        assert not work.exists()

    return read


def _change_state(random: Random, file: Path) -> None:
    """Valid tensors and facts, one of which is odd."""
    import torch

    from rpim.core.checkpoint import pack, unpack

    tensors, facts = unpack(file.read_bytes())
    if random.random() < 0.5:
        facts = odd_values(random, facts)
    else:
        name = random.choice(sorted(tensors))
        value = tensors.pop(name)
        changes = [lambda: value[:0], lambda: value.bool(), lambda: torch.zeros(()), lambda: value[None].double()]
        changes += [lambda: value.repeat(2), lambda: value * 0 - 1]
        if random.random() < 0.8:
            with contextlib.suppress(RuntimeError):  # a change that this tensor does not allow
                tensors[name] = random.choice(changes)()
    file.write_bytes(pack(tensors, facts))


def _embed_texts(originals: Path, output: Path) -> None:
    from rpim.embedding.embed import embed
    from rpim.embedding.encoders import Encoder
    from rpim.embedding.sources import read_source

    class Letters(Encoder):
        kind, name, weights, weights_hash, batch_size = "texts", "letters", None, "0" * 64, 16
        prepare = str

        def encode(self, prepared: list[object]) -> object:
            return np.array([[str(text).count(c) + 1 for c in "abtd"] for text in prepared], dtype=np.float32)

        def describe(self) -> dict[str, object]:
            return {}

    embed(read_source(originals / "t.csv"), Letters(), output, workers=0)
    fuzz_cases.read_features(output)()


# Versions -------------------------------------------------------------------------------------------------------------


def _refit(random: Random, originals: Path, folder: Path) -> Read:
    """A run with two refits, of which a file is damaged; or the job of a refit."""
    run, job = folder / "run", folder / "job.npz"
    shutil.copytree(originals / "refitted", run)
    shutil.copy(originals / "job.npz", job)
    refit = run / "refits" / random.choice(["0001", "0002"])
    what = random.randrange(5)
    if what == 0:
        damage(random, job)
        return lambda: _refit_run(run, job, run / "refits" / "0003")
    if what == 1:
        facts = odd_values(random, json.loads((refit / "run.json").read_text()))
        (refit / "run.json").write_text(json.dumps(facts))
    elif what == 2:
        odd = ["0003", "9" * 30, "٣", "0", "-1", "0001x", ".running"]
        refit.rename(refit.with_name(random.choice(odd)))
    else:
        damage(random, random.choice(sorted(file for file in refit.iterdir() if file.is_file())))
    version = ("--version", random.choice([0, 1, 2, 3, 99]))
    return random.choice(
        [
            lambda: _states(run),
            rpim("classes", run),
            rpim("classes", run, *version),
            rpim("predict", run, originals / "f.npz", "-o", "out.csv", *version),
            rpim("export", run, "-o", "out.csv"),
            rpim("export", run, "-o", "out.parquet", "--decisions", *version),
            rpim("classes", run, "--label-issues", *version),
        ]
    )


def _refit_run(run: Path, job: Path, target: Path) -> None:
    from rpim.explorer.background import refit_run

    refit_run(run, job, target)


def _states(run: Path) -> None:
    from rpim.runs.versions import Versions

    opened = Versions(run)
    with contextlib.closing(opened.store):
        for number in opened.numbers():
            assert len(opened.state(number).class_of) == len(opened)
            opened.label_issues(number)


# Requests -------------------------------------------------------------------------------------------------------------

VALID: list[dict[str, Any]] = [
    {"kind": "rename", "number": 2, "name": "wren"},
    {"kind": "accept", "number": 3, "accepted": True},
    {"kind": "merge", "numbers": [3, 0]},
    {"kind": "split", "number": 1, "parts": 2},
    {"kind": "move", "rows": [1, 2, 3], "to": 1},
    {"kind": "move", "rows": [4, 5], "name": "owl"},
    {"kind": "junk", "rows": [7, 8], "junk": True},
]
POSTS = ["decisions"] * 6 + ["undo", "undo", "redo", "version", "refit", "refit/cancel", "export/images"]
GETS = [
    "/", "/api/run", "/api/state", "/api/map", "/api/codes", "/api/history", "/api/columns/{}",
    "/api/columns/{}/legend",
    "/api/classes/{}/items?order={}&start={}&count={}", "/api/label-issues?start={}&count={}", "/api/rows/{}",
    "/api/rows/{}/similar", "/api/items?rows={}", "/api/search?words={}", "/api/pictures/{}?size={}",
    "/api/export/{}", "/static/{}", "/{}",
]  # fmt: skip
WORDS = [
    "0", "1", "3", "47", "48", "-1", "1e3", "9" * 20, "9" * 5000, "%00", "..%2f..%2fsecret.txt", "%ff%fe", "٣",
    "nearby", "typical", "own-0", "own-9", "own-x", "given", "csv", "json", "parquet", "images", "1,2,3", "1,,2", "",
    "x" * 3000, "%1b[2J", "%22%3E%3Cscript%3E", "main.js", "%2e%2e", "confidence", "true", "NaN", "\u00ff",
]  # fmt: skip


def _requests(random: Random, originals: Path, folder: Path) -> Read:
    """Twenty requests to the explorer, of which most are odd; then the run is refitted, or opened once more."""
    run = folder / "run"
    shutil.copytree(originals / random.choice(["run", "refitted"]), run)

    def read() -> None:
        from rpim import InputError

        with _explorer(run) as (client, background):
            for number in range(20):
                _request(random, client, number)
            with contextlib.suppress(InputError):
                background.refit(background._bench.versions.active)
                _refit_run(run, run / "job.npz", run / "refits" / "0009")
        _states(run)

    return read


@contextlib.contextmanager
def _explorer(run: Path) -> Iterator[tuple[Any, Any]]:
    from starlette.testclient import TestClient

    from rpim.explorer.background import Background
    from rpim.explorer.server import make_app
    from rpim.explorer.workbench import Workbench

    with contextlib.closing(Workbench(run)) as bench:
        background = Background(bench)
        # A refit would start a process: only what it is given is written.
        background.refitting.start = lambda module, prepare, finished: prepare(run)  # type: ignore[method-assign]
        app = make_app(bench, background, TOKEN, 8000)
        with TestClient(app, base_url=OURS, headers={"origin": OURS}, follow_redirects=False) as client:
            assert client.get("/", params={"token": TOKEN}).status_code == 303
            yield client, background


def _request(random: Random, client: Any, number: int) -> None:
    if random.random() < 0.4:
        place = random.choice(GETS)
        for _ in range(place.count("{}")):
            place = place.replace("{}", random.choice(WORDS), 1)
        method = random.choice(["GET"] * 8 + ["HEAD", "OPTIONS", "POST", "PUT", "DELETE"])
        odd = {"cookie": random.choice(['a="\\', "=;=;", "rpim-8000=x", "\x7f"])} if random.random() < 0.1 else {}
        answer = client.request(method, place, headers=odd)
    else:
        asked: Any = {"key": f"request-{number:04}", "version": random.choice([0, 0, 0, 2])}
        path = random.choice(POSTS)
        if path == "decisions":
            asked |= json.loads(json.dumps(random.choice(VALID)))
        if random.random() < 0.6:
            asked = odd_values(random, asked)
        elif random.random() < 0.2:
            asked[random.choice(["rows", "numbers", "number", "to", "parts"])] = random.choice([*ODD, [0], [47, 47]])
        body = json.dumps(asked).encode()
        if random.random() < 0.2:
            body = random.choice([damaged(random, body), random.choice(NUMBERS), b"\xff", b"[" * 50_000])
        kind = random.choice(["application/json"] * 9 + ["text/plain", "multipart/form-data", "a/b; charset=x"])
        answer = client.post(f"/api/{path}", content=body, headers={"content-type": kind})
    assert answer.status_code < 500, (answer.status_code, answer.text)
    if answer.status_code in (401, 403, 409, 413, 421, 422) and answer.request.method != "HEAD":
        said = answer.text if answer.headers["content-type"].startswith("text/html") else answer.json()["problem"]
        assert said.strip()


KINDS: dict[str, Kind] = {**fuzz_cases.KINDS, "checkpoint": _checkpoint, "refit": _refit, "requests": _requests}
SLOW = (*fuzz_cases.SLOW, "requests", "checkpoint")
ROUND = [kind for kind in KINDS for _ in range(1 if kind in SLOW else 4)]
"""The order of the cases: kinds that cost little come more often."""


# The originals --------------------------------------------------------------------------------------------------------


def write_originals(folder: Path) -> None:
    """Those of fuzz_cases.py, the checkpoints of two fits and of an embedding, and a run with two refits."""
    fuzz_cases.write_originals(folder)
    with _kept_checkpoints():
        for name, options in FITS.items():
            rpim("discover", folder / "f.npz", *options, *DISCOVER[:-1], folder / name)()
        _embed_texts(folder, folder / "texts.npz")
    shutil.copytree(folder / "run", folder / "refitted")
    with _explorer(folder / "refitted") as (_, background):
        for number in (1, 2):
            background.refit(number - 1)
            _refit_run(
                folder / "refitted", folder / "refitted" / "job.npz", folder / "refitted" / "refits" / f"{number:04}"
            )
    (folder / "refitted" / "job.npz").rename(folder / "job.npz")


@contextlib.contextmanager
def _kept_checkpoints() -> Iterator[None]:
    """Everything is saved at once, and stays."""
    from unittest import mock

    from rpim._common.work_folder import WorkFolder

    with (
        mock.patch("rpim.core.checkpoint.SAVE_EVERY", -1.0),
        mock.patch.object(WorkFolder, "remove", lambda work: work.close()),
    ):
        yield
