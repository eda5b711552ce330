"""Fixtures that several folders share, and the order in which the tests run."""

import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny matrices: a second thread costs more than it brings
os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's 15 lets workers wait for the tests beside them

import pytest
import torch

torch.set_num_threads(1)

MINUTES = 15
"""After which a test fails, so that one that hangs does not do so for ever: more than any takes on a busy machine."""
MARKER_OF_FIXTURE = {"ray_here": "ray", "browser": "browser"}


def pytest_itemcollected(item):
    """Mark the tests that need Ray or a browser."""
    for fixture, marker in MARKER_OF_FIXTURE.items():
        if fixture in getattr(item, "fixturenames", ()):
            item.add_marker(marker)
    if "epsilon 0.3" in item.nodeid:
        item.add_marker("slow")  # an objective of the tests of core: 500 rounds of Sinkhorn-Knopp a step


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their markers
def pytest_collection_modifyitems(items):
    """Groups that take long come first, so that the processes of pytest-xdist end at about the same time."""
    for item in items:
        if item.nodeid.startswith("docs/guide.md"):
            item.add_marker("slow")  # the examples of the whole guide are one test
    slow = {_group(item.nodeid) for item in items if item.get_closest_marker("slow")}
    ranks = {"ray": 0, "browser": 1, **dict.fromkeys(slow - {"ray", "browser"}, 2)}
    items.sort(key=lambda item: ranks.get(_group(item.nodeid), 3))


def pytest_xdist_make_scheduler(config, log):
    """A group runs in one process.

    All Ray tests, so that Ray is started once; all browser tests; all with UMAP in their name, so that it is compiled
    once; every other file.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return _group(nodeid)

    return Groups(config, log)


def _group(nodeid):
    file, _, test = nodeid.partition("::")
    if "umap" in test.lower() and "without_umap" not in test:
        return "umap"
    words = Path(file).stem.split("_")
    return next((name for name in ("ray", "browser") if name in words), file)


@pytest.fixture(autouse=True)
def _one_thread():
    """Whatever a test before it has set."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _limited_time():
    """Fail a test that hangs, where the system has alarms and nothing waits below Python."""
    if not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail(f"still running after {MINUTES} minutes"))
    signal.setitimer(signal.ITIMER_REAL, 60 * MINUTES)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _unit(rows):
    return rows / rows.norm(dim=1, keepdim=True)


@pytest.fixture
def blobs():
    """Make separated blobs: unit rows around orthogonal directions, class k being direction k."""

    def make(sizes, n_features, spread=0.05, seed=0, dtype=torch.float32):
        generator = torch.Generator().manual_seed(seed)
        truth = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
        noise = torch.randn(len(truth), n_features, generator=generator, dtype=torch.float64)
        rows = torch.eye(n_features, dtype=torch.float64)[truth] + spread * noise
        return _unit(rows).to(dtype), truth

    return make


@pytest.fixture
def partly_labelled(blobs, tmp_path):
    """Twelve blobs, two thirds of them known by half of their rows: rows, labels, and a folder of uneven files."""
    import numpy as np

    x, truth = blobs([40] * 12, 24, spread=0.25)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(3))
    x, truth = x[order].numpy(), truth[order].numpy()
    y = np.where((truth < 8) & (np.arange(len(x)) % 2 == 0), truth, -1)
    (tmp_path / "rows").mkdir()
    for number, part in enumerate(np.split(x, [7, 200, 201, 430])):
        np.save(tmp_path / "rows" / f"{number}.npy", part)
    return x, y, tmp_path / "rows"


@pytest.fixture
def plain_h():
    """x' = h(x) from the parameters p, for autograd: the table of docs/method.md, without a word of our code."""
    return {
        "none": lambda p, x: x,
        "semantic-bias": lambda p, x: _unit(x + x @ p["B"].T + p["b"]),
        "low-rank": lambda p, x: _unit(x + x @ (p["U"] @ p["V"]).T + p["b"]),
        "linear": lambda p, x: x @ p["W"].T,
        "linear-bias": lambda p, x: x @ p["W"].T + p["b"],
        "semantic-scale-bias": lambda p, x: _unit((x @ p["S"].T + p["s"]) * x + x @ p["B"].T + p["b"]),
        "mlp": lambda p, x: (x @ p["W1"].T + p["b1"]) @ p["W2"].T + p["b2"],
    }


@pytest.fixture
def make_transform():
    """Make float64 transformations off their start, by name; "low-rank" is the semantic bias of rank 2."""
    from rpim.core.transforms import TRANSFORMS

    def make(name, n_features, move=0.3, seed=1):
        generator = torch.Generator().manual_seed(seed)
        kind, rank = ("semantic-bias", 2) if name == "low-rank" else (name, None)
        transform = TRANSFORMS[kind].initial(torch.empty(n_features, dtype=torch.float64), rank, generator)
        for value in transform.parameters.values():
            value += move * torch.randn(value.shape, generator=generator, dtype=torch.float64)
        return transform

    return make


@pytest.fixture(scope="session")
def rpim_command():
    """``rpim``, built once: typer takes longer to build all commands than most of those here take to run."""
    from typer.main import get_command

    from rpim.cli.main import app

    return get_command(app)


# Ray prints it from a thread of its own, minutes later perhaps: another test may have killed a worker.
RAYLET_MESSAGE = re.compile(r"^\x1b\[33m\(raylet\)\x1b\[0m .*\n", flags=re.MULTILINE)


@pytest.fixture
def command(rpim_command, capsys, monkeypatch, tmp_path):
    """Run ``rpim`` with these arguments in an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            rpim_command([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return int(end.value.code or 0), RAYLET_MESSAGE.sub("", out), err

    return run


@pytest.fixture
def refused(command):
    """The command with these arguments is refused: exit code 2, and one line with the message in it, which is given."""

    def check(message, *arguments):
        code, out, err = command(*arguments)
        assert (code, out) == (2, "")
        assert message in err
        assert err.startswith("rpim: ")
        assert err.count("\n") == 1
        return err

    return check


@pytest.fixture
def benchmark_with_figures(command):
    """Run ``rpim benchmark`` with these arguments."""
    return partial(command, "benchmark")


@pytest.fixture
def benchmark(benchmark_with_figures, monkeypatch):
    """The same without maps and confusions on its page, which take most of the time of a small benchmark."""
    monkeypatch.setattr("rpim.benchmark.figures._of_problems", lambda folder, records: ())
    return benchmark_with_figures


@pytest.fixture
def benchmark_refused(refused):
    """``rpim benchmark`` with these arguments is refused, and leaves nothing."""

    def check(message, *arguments):
        refused(message, "benchmark", *arguments, "-o", "out")
        assert not Path("out").exists()

    return check


@pytest.fixture
def raises_input_error():
    """A call raises an InputError of one line that matches the message."""
    from rpim import InputError

    def check(function, message, *arguments, **options):
        with pytest.raises(InputError, match=message) as error:
            function(*arguments, **options)
        assert "\n" not in str(error.value)

    return check


@pytest.fixture(scope="session")
def environment():
    """The environment of a process that imports this rpim and computes with one thread."""
    import rpim

    return {**os.environ, "PYTHONPATH": str(Path(rpim.__file__).parents[1]), "OMP_NUM_THREADS": "1"}


@pytest.fixture
def interrupt(environment, tmp_path):
    """Run a script with these arguments, and once it has said a line, press Ctrl-C: exit code, standard error."""

    def run(script, *arguments, says, then=lambda: None):
        process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)],
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A shell without job control starts background work with SIGINT ignored, and children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"{says}\n"
            then()
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=120)
        finally:
            process.kill()
        return process.returncode, err

    return run


@pytest.fixture(scope="session")
def animals_features():
    """Texts about five animals, 120 rows: half of the ants, bees and cats have their label."""
    import numpy as np
    from sklearn.datasets import make_blobs

    from rpim import FeatureSet

    X, truth = make_blobs(120, n_features=6, centers=5, random_state=1)
    words = np.array(["ant", "bee", "cat", "dog", "elk"])[truth]
    return FeatureSet.from_arrays(
        X,
        labels=np.where((truth < 3) & (np.arange(120) % 2 == 0), words, ""),
        ids=[f"row-{i}" for i in range(120)],
        texts=[f"<b>{word}</b> number {i}" for i, word in enumerate(words)],
        split=np.where(truth > 1, "x", "y"),
        columns={"city <i>": np.where(np.arange(120) % 3 == 0, "<b>Bern</b>", "Ulm"), "price": [*range(119), np.inf]},
    )


@pytest.fixture(scope="session")
def animals_model(animals_features, tmp_path_factory):
    from rpim import RPIM, FeatureSet, InfoMaxObjective

    path = tmp_path_factory.mktemp("animals") / "animals.npz"
    animals_features.write(path)
    features = FeatureSet.read(path)
    objective = InfoMaxObjective(trade_off=0.1, weight_decay=0.01)
    model = RPIM(5, objective=objective, n_members=1, n_init=1, max_iter=15, random_state=0)
    return model.fit(features.rows(), features.labels)


@pytest.fixture
def animals(animals_features, animals_model, tmp_path):
    """A small run on texts with its features beside it: 120 rows, ant, bee and cat known, two classes new."""
    from rpim import Discovery, FeatureSet

    animals_features.write(tmp_path / "animals.npz")
    features = FeatureSet.read(tmp_path / "animals.npz")
    Discovery.from_fit(animals_model, features, source=tmp_path / "animals.npz").save(tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="session")
def ray_here():
    """A Ray on this machine, started once, since that takes seconds; gives the number of its workers."""
    pytest.importorskip("ray", reason="ray is not installed")
    from rpim._common.ray import connected

    with connected(workers=3) as workers:
        yield workers
