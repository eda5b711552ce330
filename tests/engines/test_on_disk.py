"""Rows on disk give what the same rows in memory give, to rounding."""

import itertools

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from rpim import PIM, RPIM, InfoMaxObjective
from rpim._common.errors import InputError
from rpim.core import checkpoint as checkpoint_module
from rpim.core import row_blocks as engine_memory
from rpim.core.checkpoint import Checkpoint
from rpim.core.gradient import gradient
from rpim.core.head import Head
from rpim.core.objective import Objective
from rpim.core.row_blocks import InMemoryBlocks
from rpim.core.transforms import TRANSFORMS
from rpim.data.row_files import RowFiles
from rpim.engines import base as engine_base
from rpim.engines.base import bytes_for_rows, sample_within, scan_rows
from rpim.engines.on_disk import OnDiskEngine, StreamedBlocks, labelled_first
from rpim.engines.ray_rows import bounds
from rpim.estimators import TIM, KMeans
from rpim.estimators import problem as fit_problem


@pytest.fixture
def problem(partly_labelled):
    x, y, folder = partly_labelled
    return x, y, RowFiles(folder)


@pytest.fixture
def small_blocks(monkeypatch):
    """So that there are several of every kind."""
    monkeypatch.setattr(engine_memory, "BLOCK_BYTES", 3000)
    monkeypatch.setattr(engine_memory, "LEAST_ROWS", 8)
    monkeypatch.setattr("rpim.engines.on_disk.READ_BYTES", 10_000)


@pytest.mark.parametrize("h", ["none", "semantic-bias", "linear", "mlp"])
@pytest.mark.parametrize("rows_of_marginal", ["all", "unlabelled"])
def test_one_gradient(problem, small_blocks, h, rows_of_marginal):
    x, y, files = problem
    order = np.concatenate([np.flatnonzero(y >= 0), np.flatnonzero(y < 0)])
    generator = torch.Generator().manual_seed(0)
    prototypes = torch.randn(12, 24, generator=generator) / 5
    head = Head(prototypes, TRANSFORMS[h].initial(prototypes), 10.0)
    for value in head.transform.parameters.values():
        value += 0.1 * torch.randn(value.shape, generator=generator)
    objective = Objective(marginal_rows=rows_of_marginal, threshold=0.1)
    codes = y.astype(np.int64)
    in_memory = InMemoryBlocks(torch.from_numpy(x[order]), torch.from_numpy(codes[order][y[order] >= 0]), 12)
    streamed = StreamedBlocks(files, codes, 12, 24, torch.from_numpy, torch.device("cpu"))
    blocks = list(streamed.blocks())
    assert len(blocks) > 5
    assert not blocks[0].x.equal(torch.from_numpy(x[blocks[0].rows]))  # labelled rows have been put first
    found, again = in_memory.new_labels(), streamed.new_labels()
    value, slopes = gradient(in_memory, head, objective, found)
    other, others = gradient(streamed, head, objective, again)
    assert value == pytest.approx(other, rel=1e-4)
    for name, slope in slopes.items():
        torch.testing.assert_close(slope, others[name], rtol=1e-3, atol=1e-6)
    in_given_order = torch.empty_like(found)
    in_given_order[torch.from_numpy(order)] = found
    for rows in (block.rows for block in blocks):
        first = labelled_first(codes[rows])
        position = torch.arange(len(codes[rows])) if first is None else torch.from_numpy(first)
        assert in_given_order[rows][position].equal(again[rows])


def test_blocks_that_fit_stay_in_memory(problem, small_blocks, monkeypatch):
    """All, some or none of them: with the same bits, and only the others are read again."""
    _, y, files = problem
    read = []
    real = RowFiles.blocks

    def blocks(self, start=0, stop=None, size=None):
        read.append(len(self) - start)
        return real(self, start, stop, size)

    monkeypatch.setattr(RowFiles, "blocks", blocks)

    def streamed(memory):
        rows = StreamedBlocks(files, y, 12, 24, torch.from_numpy, torch.device("cpu"), memory=memory)
        return [list(rows.blocks()) for _ in range(3)]

    expected = streamed(0)[0]
    assert read == [480, 480, 480]
    n, per_block = len(expected), 4 * 24 * len(expected[0].x)
    for memory, left in ((10 * per_block, 480 - expected[10].rows.start), (10**9, None), (per_block - 1, 480)):
        read.clear()
        passes = streamed(memory)
        assert read == ([480] if left is None else [480, left, left])
        for found in passes:
            assert [block.rows for block in found] == [block.rows for block in expected]
            assert all(one.x.equal(other.x) for one, other in zip(found, expected, strict=True))
            assert all(one.labels.equal(other.labels) for one, other in zip(found, expected, strict=True))
    assert n > 12


def test_what_is_left_of_the_memory_is_for_rows(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((1000, 8), dtype=np.float16))
    ample, tight = (RowFiles(tmp_path / "x.npy", memory=memory) for memory in ("4GB", "500MB"))
    assert 3_000_000_000 < bytes_for_rows(ample, 1000) < 3_600_000_000 - 1000 * engine_base.BYTES_PER_ROW
    assert bytes_for_rows(ample, 100_000) < bytes_for_rows(ample, 1000) - 99_000 * 8 * 10
    assert bytes_for_rows(tight, 1000) == 0


def test_a_sample_has_enough_rows_of_each_class_or_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(engine_base, "SAMPLE_ROWS", 1000)
    np.save(tmp_path / "x.npy", np.zeros((20_000, 4), dtype=np.float16))
    codes = np.full(20_000, -1)
    rows = RowFiles(tmp_path / "x.npy", memory="200MB")
    assert [len(sample_within(rows, codes, k, 0)) for k in (10, 40, 100, 500)] == [1000, 1000, 2500, 12_500]
    tight = RowFiles(tmp_path / "x.npy", memory="147MB")
    assert 200 < len(sample_within(tight, codes, 100, 0)) < 2500
    with pytest.raises(InputError, match=r"and 10,000 classes need \d+MB of memory at least, but 147MB were given"):
        sample_within(tight, codes, 10_000, 0)


@pytest.mark.slow
def test_a_committee_of_some_rows_then_a_training_on_all(problem, small_blocks, monkeypatch):
    """Where Sinkhorn's factors are carried from step to step, too, the engines agree."""
    x, y, files = problem
    some = torch.arange(0, len(x), 2)
    monkeypatch.setattr(RPIM, "_committee_rows", lambda *_: some)
    parameters = {"n_classes": 12, "n_members": 2, "random_state": 0, "max_iter": 25}
    one = RPIM(**parameters).fit(x, y)
    other = RPIM(**parameters).fit(files, y)
    assert one.n_iter_ == other.n_iter_ > 1
    difference = (one.head_.prototypes - other.head_.prototypes).norm() / one.head_.prototypes.norm()
    assert float(difference) < 1e-4
    assert (one.labels_ == other.labels_).mean() >= 0.995


@pytest.mark.parametrize(
    ("method", "n_members"), [(PIM, 1), (RPIM, 1), pytest.param(RPIM, 2, marks=pytest.mark.slow), (TIM, 1)]
)
def test_a_whole_fit(problem, small_blocks, method, n_members):
    """With its start, or its committee."""
    x, y, files = problem
    parameters = {"n_classes": 12, "n_members": n_members, "random_state": 0, "n_components": 16}
    one = method(**parameters).fit(x, y)
    other = method(**parameters).fit(files, y)
    assert (one.trade_off_, one.weight_decay_, one.n_iter_) == (other.trade_off_, other.weight_decay_, other.n_iter_)
    difference = (one.head_.prototypes - other.head_.prototypes).norm() / one.head_.prototypes.norm()
    assert float(difference) < 1e-4
    assert np.array_equal(one.components_, other.components_)
    assert (one.labels_ == other.labels_).mean() >= 0.999
    np.testing.assert_allclose(one.predict_proba(x), other.predict_proba(x), atol=1e-4)
    assert other.sample_rows_ == len(x)
    np.testing.assert_allclose(one.label_quality_, other.label_quality_, atol=1e-4)
    assert [issue.row for issue in one.label_issues_] == [issue.row for issue in other.label_issues_]


@pytest.mark.slow
def test_several_embeddings(problem, small_blocks):
    x, y, files = problem
    parameters = {"n_classes": 12, "n_members": 2, "random_state": 0, "n_components": 8}
    one = RPIM(**parameters).fit([x[:, :10], x[:, 10:]], y)
    other = RPIM(**parameters).fit(files, y, widths=[10, 14])
    assert (one.widths_, one.components_.shape) == (other.widths_, other.components_.shape) == ((10, 14), (16, 24))
    np.testing.assert_allclose(one.predict_proba(x), other.predict_proba(x), atol=1e-4)


def test_more_rows_than_the_sample(problem, monkeypatch):
    x, y, files = problem
    monkeypatch.setattr(engine_base, "SAMPLE_ROWS", 240)
    on_sample = []
    real = fit_problem.train
    monkeypatch.setattr(fit_problem, "train", lambda rows, *a: on_sample.append(rows.n_rows) or real(rows, *a))
    model = RPIM(n_classes=12, n_members=4, random_state=0, abstain=0.05).fit(files, y)
    assert 240 <= model.sample_rows_ < len(x)
    assert model.n_iter_ == len(model.history_) > 1, "and all rows are trained on"
    assert on_sample == [model.sample_rows_], "after the sample"
    checked = np.flatnonzero(~np.isnan(model.label_quality_))
    assert 0 < len(checked) < (y >= 0).sum()
    assert (y[checked] >= 0).all(), "what is said of labels is said of the right rows"
    assert len(model.labels_) == len(x)
    assert (model.labels_[y >= 0] == y[y >= 0]).all()
    assert (model.labels_ == -1).sum() == round(0.05 * (y < 0).sum())


class _Stopped(Exception):
    pass


@pytest.mark.parametrize("stopped_in", ["sample.safetensors", "training.safetensors"])
def test_a_training_on_a_sample_then_on_all_rows_resumes(problem, tmp_path, monkeypatch, stopped_in):
    _, y, files = problem
    monkeypatch.setattr(engine_base, "SAMPLE_ROWS", 240)
    monkeypatch.setattr(checkpoint_module, "SAVE_EVERY", 0.0)
    steps = []  # of which training, after which step
    real = Checkpoint.save

    def save(self, state, name="training.safetensors"):
        real(self, state, name)
        steps.append((name, len(state.history)))

    def save_and_stop(self, state, name="training.safetensors"):
        save(self, state, name)
        if (name, len(state.history)) == (stopped_in, 3):
            raise _Stopped

    def fit(checkpoint=None):
        return RPIM(12, n_members=2, random_state=0).fit(files, y, checkpoint=checkpoint)

    whole = fit()
    monkeypatch.setattr(Checkpoint, "save", save_and_stop)
    with pytest.raises(_Stopped):
        fit(Checkpoint(tmp_path / "run", {}))
    monkeypatch.setattr(Checkpoint, "save", save)
    last_on_sample = max(step for name, step in steps if name == "sample.safetensors")
    steps.clear()
    resumed = fit(Checkpoint(tmp_path / "run", {}))
    if stopped_in == "sample.safetensors":
        assert steps[0] == ("sample.safetensors", 4)
    else:
        assert last_on_sample > 4
        assert steps[0] == ("training.safetensors", 4), "the training on the sample is not repeated"
    assert resumed.history_ == whole.history_
    assert resumed.head_.prototypes.equal(whole.head_.prototypes)


class _InShards(OnDiskEngine):
    """Rows that are scanned in as many shards."""

    def __init__(self, rows, n_shards):
        super().__init__(rows)
        self.n_shards = n_shards

    def scan(self, sample, preprocess, *, directions):
        rows, found = self.rows, []
        for start, stop in itertools.pairwise(bounds(len(rows), self.n_shards)):
            inside = sample[(sample >= start) & (sample < stop)] - start
            found.append(scan_rows(rows.span(start, stop), inside, preprocess, directions=directions))
        return np.concatenate([values for values, _ in found]), sum(gram for _, gram in found)


def test_directions_do_not_turn_with_the_shards(tmp_path, monkeypatch):
    """A last bit of them would be a class here and there, some hundred steps later."""
    random = np.random.default_rng(0)
    y = random.integers(0, 4, 600)
    x = random.standard_normal((4, 200))[y] + random.standard_normal((600, 200))
    np.save(tmp_path / "rows.npy", x.astype(np.float32))
    labels = np.where((y < 2) & (random.random(600) < 0.5), y, -1)
    monkeypatch.setattr(engine_base, "SAMPLE_ROWS", 300)
    models = []
    for n_shards in (1, 2, 3, 7):
        objective = InfoMaxObjective(trade_off=0.1, weight_decay=0.01)
        model = PIM(4, objective=objective, n_members=1, n_init=1, max_iter=1, n_components=100)
        models.append(model.fit(_InShards(RowFiles(tmp_path / "rows.npy"), n_shards), labels))
    assert all(np.array_equal(model.components_, models[0].components_) for model in models)


def test_what_does_not_fit_says_so(problem, tmp_path):
    x, y, files = problem
    with pytest.raises(InputError, match="There are 479 labels but 480 rows"):
        RPIM(n_classes=12).fit(files, y[1:])
    with pytest.raises(InputError, match="KMeans needs its rows in memory"):
        KMeans(n_classes=12).fit(files, y)
    broken = x.copy()
    broken[77, 3] = np.nan
    np.save(tmp_path / "broken.npy", broken)
    with pytest.raises(InputError, match=r"NaN or infinity in 1 row \(77\)"):
        RPIM(n_classes=12).fit(RowFiles(tmp_path / "broken.npy"), y)


@pytest.mark.slow
def test_the_command_on_a_folder_of_files(command, problem, monkeypatch, small_blocks):
    """Labels beside the features; too little memory for all rows, and enough for what has to be there."""
    from pathlib import Path

    from rpim.data.feature_set import FeatureSet
    from rpim.runs.discovery import Discovery

    x, y, _ = problem
    monkeypatch.setattr("rpim.data.row_files.READ_BYTES", 1000)
    monkeypatch.setattr(engine_base, "READ_BYTES", 1000)
    monkeypatch.setattr(engine_base, "BLOCK_BYTES", 3000)
    Path("shards").mkdir()
    for number, rows in enumerate(np.split(np.arange(len(x)), [100, 101, 350])):
        part = FeatureSet.from_arrays(x[rows].astype(np.float16), labels=y[rows], ids=rows + 1000)
        part.write(f"shards/{number}.parquet")
    given = ("--n-classes", 12, "--n-members", 2, "--quiet")
    assert command("discover", "shards", "-o", "whole", *given)[0] == 0
    code, _, err = command("discover", "shards", "-o", "streamed", *given, "--memory", "700KB")
    assert (code, err) == (0, "")
    whole, streamed = Discovery.load("whole"), Discovery.load("streamed")
    assert streamed.model.sample_rows_ < len(x)
    assert streamed.ids.tolist() == whole.ids.tolist() == list(range(1000, 1480))
    assert adjusted_rand_score(streamed.labels, whole.labels) > 0.95  # new classes may have other numbers
    assert streamed.provenance["data"]["fingerprint"] == whole.provenance["data"]["fingerprint"]
    code, out, err = command("discover", "shards", "-o", "less", *given, "--memory", "100KB")
    assert (code, out) == (2, "")
    assert "480 rows of 24 features and 12 classes need" in err
    assert "but 100KB were given" in err
    assert command("discover", "shards", "-o", "less", *given, "--memory", "lots")[0] == 2
    Path("shards/1.parquet").write_bytes(b"PAR1")
    code, _, err = command("discover", "shards", "-o", "less", *given)
    assert code == 2
    assert "shards/1.parquet cannot be read" in err
    assert not Path("less").exists()


def test_the_memory_is_heeded_however_small_the_file(command, problem):
    from pathlib import Path

    x, y, _ = problem
    np.save("rows.npy", x)
    np.save("labels.npy", y)
    np.savez("rows.npz", X=x, y=y)
    Path("texts.csv").write_text("text,label\nHi,a\nBye,\n")
    beside = ("-o", "run", "--n-classes", 12, "--memory")
    code, out, err = command("discover", "rows.npy", "--labels", "labels.npy", *beside, "10KB")
    assert (code, out) == (2, "")
    assert "480 rows of 24 features and 12 classes need" in err
    code, out, err = command("discover", "rows.npz", *beside, "50MB", "--n-members", 4)
    assert (code, out) == (2, "")
    assert "A committee of 12 classes needs 143MB of memory, and 50MB may be used: give --n-members 1" in err
    for data in (("rows.npy", "--labels", "labels.npy"), ("rows.npz",), ("texts.csv",)):
        code, out, err = command("discover", *data, *beside, "lots")
        assert (code, out) == (2, "")
        assert "The memory 'lots' is no size: give a number with a unit" in err
    assert not list(Path().glob("run*"))
