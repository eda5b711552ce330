"""rpim benchmark --paper: the paper's rows, cells that studies share, train and test rows, and the whole command."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rpim import RPIM, FeatureSet, InfoMaxObjective, InputError
from rpim.benchmark.cells import planned_cells
from rpim.benchmark.entries import Method, checked_methods
from rpim.benchmark.plan import make_plan
from rpim.benchmark.protocol import make_case, split_features
from rpim.benchmark.results import ACCURACY, PAPER_SYSTEMS, paper_results, paper_rows
from rpim.benchmark.studies import STUDIES, SYSTEMS, Study, studies_of
from rpim.estimators import KMeans
from rpim.runs.saved_model import METHODS
from six_classes import TRUTH, save

TRAIN = np.arange(120) % 4 > 0  # three quarters of each class


def by_name(name: str, which: int = 0):
    return {method.name: method for study in STUDIES[name]()[which : which + 1] for method in study.methods}


# The rows


def test_rows_bear_the_papers_names():
    fixed, tuned = STUDIES["ablation"]()
    (transforms,), (eta,), (main,) = map(studies_of, ("transforms", "eta", "main"))
    assert [method.name for method in fixed.methods] == list(paper_rows("ablation_fixed_wd_0.01"))
    assert {method.name for method in tuned.methods} == {*paper_rows("ablation_tuned_wd")}
    expected = {*paper_rows("transformations"), *paper_rows("transformations_mlp")}
    assert {method.name.removesuffix(", random start") for method in transforms.methods} == expected
    assert [method.name for method in eta.methods] == list(paper_rows("eta_sensitivity"))
    # The first ORCA row, on another encoder, is shown without a row of ours.
    ours = {PAPER_SYSTEMS.get(method.name, method.name) for method in main.methods}
    assert {*paper_rows("main")} - ours == {"ORCA (ICLR-22)"}


def test_every_row_of_the_paper_finds_its_figures():
    for name in ("main", "ablation", "transforms", "eta"):
        for study in studies_of(name):
            for method in study.methods:
                if (method.name in SYSTEMS.values() or name != "main") and "random start" not in method.name:
                    assert paper_results(study.paper, method.name, "cub") is not None, method.name


def test_what_the_rows_are():
    fixed, tuned = by_name("ablation", 0), by_name("ablation", 1)
    one = {"n_members": 1}  # a single fit, as the baseline is
    assert fixed["L_R"].parameters == {**one, "h": "none", "mixed_labels": False, "weight_decay": 0.01}
    assert fixed["h+L_S"].parameters == {**one, "pseudo_labels": False, "weight_decay": 0.01}
    assert fixed["Baseline (PIM)"] == tuned["Baseline (PIM)"]
    assert (fixed["Baseline (PIM)"].method, fixed["Baseline (PIM)"].parameters) == ("pim", {"weight_decay": 0.01})
    without = {"h": "none", "pseudo_labels": False, "mixed_labels": False}
    assert (tuned["Baseline tuned (PIM)"].method, tuned["Baseline tuned (PIM)"].parameters) == (
        "rpim",
        {**one, **without},
    )
    assert tuned["h"].parameters == {**one, "pseudo_labels": False, "mixed_labels": False}
    assert by_name("eta")["eta=0.05"].parameters == {**one, "eta": 0.05}
    assert by_name("transforms")["Two linear layers with bias"].parameters == {**one, "h": "mlp"}
    random = by_name("transforms")["Two linear layers with bias, random start"]
    assert random.parameters == {**one, "h": "mlp", "h_init": "random"}
    assert [method.parameters for method in by_name("readings").values()] == [
        {**one, "beta": 0.05},
        {**one, "beta": 0.2},
        {**one, "supervision": "added", "beta": 0.05},
        {**one, "supervision": "added", "beta": 0.2},
    ]
    whole = [
        tuned["h+L_R+L_S (RPIM)"],
        by_name("transforms")["Semantic bias (RPIM)"],
        by_name("eta")["eta=0.03"],
        by_name("seeds")["RPIM"],
    ]
    assert [(method.method, method.parameters) for method in whole] == [("rpim", one)] * 4
    committee = by_name("main")["RPIM"]
    assert (committee.method, committee.parameters) == ("rpim", {})


def test_equal_rows_of_two_studies_as_published_are_one_cell():
    def published(name, row):
        (study, *_) = studies_of(name, "paper")
        return next(m for m in study.methods if m.name == f"{row}, as published").parameters

    assert published("main", "RPIM") == published("transforms", "Semantic bias (RPIM)") == {"preset": "paper"}


def test_every_parameter_is_one_that_the_method_has():
    for preset in ("default", "paper"):
        for study in studies_of("all", preset):
            for method in study.methods:
                method.estimator()._validate_params()


def test_parameters_of_the_objective_have_two_names():
    flat, nested = checked_methods(
        {"a": {"method": "rpim", "eta": 0.1}, "b": {"method": "rpim", "objective__eta": 0.1}}
    )
    assert flat.parameters == nested.parameters == {"eta": 0.1}, "so both are the same cell"
    assert flat.estimator().objective == nested.estimator().objective == InfoMaxObjective(eta=0.1)


def test_main_has_every_method_and_says_which_cannot_be_run(monkeypatch):
    (main,) = studies_of("main")
    at_hand = {name for name, method in METHODS.items() if method.missing_extra() is None}
    assert {method.method for method in main.methods} == at_hand
    assert main.methods[0].method == "kmeans"
    assert main.methods[-1].method == "rpim"

    class Exotic(KMeans):
        """A method that the paper does not have."""

    monkeypatch.setitem(METHODS, "exotic", Exotic)
    (main,) = studies_of("main")
    names = [method.name for method in main.methods]
    assert names.index("K-means") < names.index("Self-training") < names.index("Exotic") < names.index("RankStats+")
    monkeypatch.setattr(Exotic, "missing_extra", classmethod(lambda cls: "install rpim[exotic]."))
    (main,) = studies_of("main")
    assert "Exotic" not in [method.name for method in main.methods]
    assert main.note.endswith("Exotic is left out: install rpim[exotic].")


def test_a_method_without_extras_lacks_none():
    assert RPIM.missing_extra() is None


# What studies share


def test_what_several_studies_ask_for_is_run_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = planned_cells(make_plan([save()], paper="all"))
    keys = [json.dumps(cell.key, sort_keys=True) for cell in cells]
    assert len(set(keys)) == len(keys)
    single = {"n_members": 1}
    of_whole_rpim = [cell.seed for cell in cells if (cell.method.method, cell.method.parameters) == ("rpim", single)]
    assert of_whole_rpim == [0, 1, 2, 3, 4, 5]
    alone = [planned_cells(make_plan(["birds.npz"], paper=name)) for name in STUDIES]
    assert {*keys} == {json.dumps(cell.key, sort_keys=True) for cells in alone for cell in cells}
    assert len(keys) < sum(map(len, alone))


def test_seeds_that_are_given_go_before_those_of_a_study():
    plans = [make_plan(["b=."], paper="seeds", seeds=seeds) for seeds in (None, "7")]
    assert [plan.seeds for plan in plans] == [(0, 1, 2, 3, 4, 5), (7,)]
    assert make_plan(["b=."], paper="eta").seeds == (0, 1, 2)


# Train and test rows


def test_only_training_rows_are_in_the_problem():
    split = np.where(TRAIN, "train", np.where(np.arange(120) % 8 == 0, "test", "dev"))
    features = FeatureSet.from_arrays(np.arange(240.0).reshape(120, 2), labels=TRUTH, split=split)
    case = make_case(split_features(features), 0)
    alone = make_case(split_features(FeatureSet.from_arrays(features.X[TRAIN], labels=TRUTH[TRAIN])), 0)
    np.testing.assert_array_equal(case.features.X, features.X[TRAIN])
    np.testing.assert_array_equal(case.y, alone.y)
    np.testing.assert_array_equal(case.truth, TRUTH[TRAIN])
    np.testing.assert_array_equal(case.test.features.X, features.X[split == "test"])
    np.testing.assert_array_equal(case.test.truth, TRUTH[split == "test"])
    assert (case.unused, case.n_classes) == (15, 6)


def test_a_class_of_the_test_rows_alone_is_not_there_to_be_discovered():
    """Class 0 is in no training row: the others keep their numbers, and none but them can be known."""
    features = FeatureSet.from_arrays(np.eye(120), labels=TRUTH, split=np.where(TRUTH > 0, "train", "test"))
    case = make_case(split_features(features), 0, known_share=0.8)
    assert case.n_classes == 5
    assert len(case.known) == 4
    assert {*case.known} < {1, 2, 3, 4, 5}
    assert {*case.test.truth} == {0}


def test_the_fingerprint_knows_the_test_rows():
    def fingerprint(truth, split, shift=0.0):
        X = np.eye(8) + 0.0
        X[7] += shift
        parts = split_features(FeatureSet.from_arrays(X, truth=truth, split=split, ids=range(8)))
        return make_case(parts, 0).fingerprint(parts.fingerprint())

    truth, parts = list("abcdabcd"), ["train"] * 6 + ["test"] * 2
    assert fingerprint(truth, parts) == fingerprint(truth, parts)
    others = [
        fingerprint(list("abcdabca"), parts),
        fingerprint(truth, parts, 1.0),
        fingerprint(truth, ["train"] * 6 + ["test", "dev"]),
    ]
    assert len({fingerprint(truth, parts), *others}) == 4
    # A set that is all training rows is the same problem as one that does not speak of parts.
    assert fingerprint(truth, ["train"] * 8) == fingerprint(truth, None)


def test_parts_without_one_called_train():
    features = FeatureSet.from_arrays(np.eye(4), labels=[0, 0, 1, 1], split=["training", "training", "test", "test"])
    with pytest.raises(InputError, match=r"no row is of the part called train \(there are: test, training\)"):
        split_features(features)


# Whole commands


def read_csv(folder: str) -> list[dict[str, str]]:
    with open(Path(folder) / "results.csv", newline="") as file:
        return list(csv.DictReader(file))


FAST = {"max_iter": 10, "n_members": 1, "n_init": 1, "trade_off": 0.1, "weight_decay": 0.01}


def make_fast(monkeypatch, name: str) -> None:
    """The study with at most the first three of its rows, each trained for ten steps without a search."""

    def fast(method):
        return replace(
            method, parameters={**FAST, **({"beta": 0.2} if method.method == "rpim" else {}), **method.parameters}
        )

    quick = tuple(replace(study, methods=tuple(map(fast, study.methods[:3]))) for study in studies_of(name))
    monkeypatch.setitem(STUDIES, name, lambda: quick)


@pytest.mark.slow
def test_a_table_of_the_paper_and_another_that_shares_its_cells(benchmark, monkeypatch):
    make_fast(monkeypatch, "eta")
    make_fast(monkeypatch, "seeds")
    arguments = (f"cub={save(split=np.where(TRAIN, 'train', 'test'))}", "--seeds", "0", "-o", "out")
    code, out, err = benchmark(*arguments, "--paper", "eta")
    assert (code, err) == (0, "")
    (sensitivity,) = re.findall(r"## Sensitivity to eta\n\n(.*)\n\n((?:\|.*\n)*)", out)
    header, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in sensitivity[1].splitlines()]
    assert header == ["method", "cub", "cub, paper", "average of the paper's six sets", "confusion"]
    assert [row[0] for row in rows] == ["eta=0.01", "eta=0.02", "eta=0.03"]
    assert [row[2] for row in rows] == ["64.8/75.2/59.6", "66.7/77.2/61.4", "66.8/77.3/61.5"]
    assert "Other parameters have their defaults." in sensitivity[0]
    assert "## Sensitivity to eta, rows never seen" in out
    assert "* cub: methods saw its 90 rows called train alone; 30 called test were predicted afterwards" in out
    for row in read_csv("out"):
        assert (row["rows"], row["test_rows"]) == ("90", "30")
        assert float(row["test_all"]) > 0.8  # blobs apart, of which chance would find a sixth
    before = Path("out/cells.jsonl").read_text()
    code, out, err = benchmark(*arguments, "--paper", "seeds")
    assert (code, err) == (0, "")
    assert "| seed | cub, RPIM" in out
    after = Path("out/cells.jsonl").read_text()
    assert after.startswith(before)
    (new,) = map(json.loads, after.removeprefix(before).splitlines())
    assert new["estimator"] == "pim"  # RPIM was there, under the name eta=0.03
    assert [row["method"] for row in read_csv("out")] == ["RPIM", "PIM"]


def config(**said) -> tuple[str, str]:
    Path("c.json").write_text(json.dumps(said))
    return "--config", "c.json"


BAD_INPUT = {
    "study": (
        lambda: ("birds.npz", "--paper", "ablations"),
        "The study 'ablations' is unknown: did you mean ablation?",
    ),
    "methods": (lambda: ("birds.npz", "--paper", "main", "--methods", "pim"), "paper and methods are given"),
    "methods of a config": (
        lambda: ("birds.npz", "--paper", "main", *config(methods=["pim"])),
        "paper and methods are given",
    ),
    "protocol and study": (
        lambda: ("birds.npz", "--paper", "main", "--protocol", "nid"),
        "paper and protocol are given",
    ),
    "preset": (lambda: ("birds.npz", "--preset", "papers"), "The preset 'papers' is unknown: did you mean paper?"),
    "preset and protocol": (
        lambda: ("birds.npz", "--preset", "paper", "--protocol", "nid"),
        "The preset is 'paper', but the protocol nid is not the paper's",
    ),
    "half": (lambda: ("birds.npz", "--labelled-half", "gdc"), "labelled_half 'gdc' is unknown: did you mean gcd?"),
    "half and protocol": (
        lambda: ("birds.npz", "--labelled-half", "gcd", "--protocol", "batches"),
        "labelled_half is given, but the protocol batches draws rows its own way",
    ),
    "protocol": (lambda: ("birds.npz", "--protocol", "nit"), "The protocol 'nit' is unknown: did you mean nid?"),
    "split column": (lambda: config(sets={"b": {"path": "birds.npz", "split_column": "fold"}}), "no column 'fold'"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_sentence_and_leaves_nothing(case, benchmark_refused):
    make, message = BAD_INPUT[case]
    save()
    benchmark_refused(message, *make())


# -- as published ---------------------------------------------------------------------------------------------------


def test_every_published_procedure_is_run_beside_the_method_as_shipped():
    (main,) = studies_of("main", "paper")
    rows = {method.name: (method.method, method.parameters) for method in main.methods}
    for name in ("K-means", "GCD", "RIM", "TIM", "PIM", "RPIM"):
        assert rows[f"{name}, as published"] == (rows[f"{name}, as shipped"][0], {"preset": "paper"})
        assert rows[f"{name}, as shipped"][1] == {}
    assert rows["UNO+"] == ("uno", {})
    assert [study.name for study in studies_of("ablation")] == ["ablation-fixed"]
    readings = [method.name for method in studies_of("readings", "paper")[0].methods]
    assert "L_S added to CE, beta 0.05, as published" in readings
    assert "L_S added to CE, beta 0.2, as published" not in readings, "the paper's beta is 0.05"
    tuned = studies_of("ablation", "paper")[1]
    assert {method.parameters["preset"] for method in tuned.methods} == {"paper"}, "no other preset searches it"


@pytest.mark.slow
def test_the_table_has_both_presets_the_papers_figures_and_its_data(benchmark, monkeypatch):
    methods = (Method("K-means", "kmeans", {"n_init": 1}), Method("GCD", "gcd", {"n_init": 1}))
    monkeypatch.setitem(STUDIES, "main", lambda: (Study("main", "Methods compared", methods, paper=("main",)),))
    data = f"vit_dino_cub_best={save()}"
    code, out, err = benchmark(data, "--seeds", "0", "-o", "out", "--paper", "main", "--preset", "paper")
    assert (code, err) == (0, "")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.splitlines() if line.startswith("| ")]
    by_method: dict[str, list[str]] = {}
    for row in rows:
        by_method.setdefault(row[0], row)
    for preset in ("as published", "as shipped"):
        assert by_method[f"GCD, {preset}"][2:4] == ["51.3/56.6/48.7", "60.3/71.8/52.9"]
    assert by_method["ORCA, its own encoder (the paper alone)"][1:3] == ["—", "27.5/20.1/31.1"]
    assert next(row for row in rows if row[0] == "vit_dino_cub_best")[1:] == [
        "100 of 200",
        "1,500/4,500",
        "30/90",
        "0.01",
    ]
    assert "those of RIM and TIM from PIM's" in out


@pytest.mark.slow
def test_lambda_is_searched_once_for_the_methods_of_a_set_and_seed(benchmark, monkeypatch):
    cheap = {"max_iter": 3, "n_init": 1}
    methods = (Method("PIM", "pim", cheap), Method("RPIM", "rpim", {**cheap, "weight_decay": 0.01}))
    monkeypatch.setitem(STUDIES, "main", lambda: (Study("main", "Main", methods, only_published=True),))
    data = save()
    arguments = ("--seeds", "0", "--paper", "main", "--preset", "paper", "--jobs", "1")
    assert benchmark(data, "-o", "out", *arguments)[0] == 0
    pim, rpim = map(json.loads, Path("out/cells.jsonl").read_text().splitlines())
    assert pim["trade_off"] == rpim["trade_off"]
    assert not any("another cell" in warning for warning in pim["warnings"])
    assert any("searched by another cell" in warning for warning in rpim["warnings"])
    # Searched on its own, RPIM gives the same.
    monkeypatch.setitem(STUDIES, "main", lambda: (Study("main", "Main", methods[1:], only_published=True),))
    assert benchmark(data, "-o", "alone", *arguments)[0] == 0
    (alone,) = map(json.loads, Path("alone/cells.jsonl").read_text().splitlines())
    assert not any("another cell" in warning for warning in alone["warnings"])
    assert [alone[name] for name in ("trade_off", *ACCURACY)] == [rpim[name] for name in ("trade_off", *ACCURACY)]
