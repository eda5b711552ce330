"""The paper's data sets from raw images: embedded once into the benchmark folder, then ordinary feature sets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rpim._common.errors import InputError, choose
from rpim._common.files import must_exist, reading, replacing, writing
from rpim.benchmark.cells import CellFile
from rpim.benchmark.entries import Split, known_classes
from rpim.benchmark.protocol import HALVES, Case, SplitFeatures, make_case, split_features
from rpim.benchmark.results import PAPER_SETS, STATISTICS
from rpim.data.feature_set import FeatureSet
from rpim.data.labels import UNLABELLED
from rpim.embedding.image_sets import READERS, read_image_set
from rpim.embedding.items import Items
from rpim.embedding.weights import file_hash

ROUNDING = 50
"""A figure in hundreds of rows is off by no more than that."""


def check_statistics(name: str, case: Case) -> bool:
    """Whether a problem is the paper's, by the number of its training rows; raises where it is, but divided otherwise.

    Parameters
    ----------
    name : str
        As in `PAPER_SETS`; no other set is the paper's.
    case : Case
        Of any seed: the sizes are the same for all.
    """
    paper = STATISTICS.get(PAPER_SETS.get(name, ""))
    if paper is None or abs(len(case.y) - paper.labelled - paper.unlabelled) > 2 * ROUNDING:
        return False
    unlabelled = int(case.hidden.sum())
    labelled = len(case.y) - unlabelled
    # The paper halves the rows of all known classes together, the protocol class by class: half a row each.
    slack = ROUNDING + len(case.known) / 2
    as_published = (len(case.known), case.n_classes) == (paper.known, paper.classes)
    if not as_published or max(abs(labelled - paper.labelled), abs(unlabelled - paper.unlabelled)) > slack:
        raise InputError(
            f"with {len(case.known)} of {case.n_classes} classes known, {labelled:,} rows would be labelled and "
            f"{unlabelled:,} not, where the paper has {paper.known} of {paper.classes} classes, about "
            f"{paper.labelled:,} rows and {paper.unlabelled:,}: give the list of known classes of this data set."
        )
    return True


FOLDER = "features"
PAPERS_ENCODER = "dino-vitb16"


@dataclass(frozen=True)
class RawImages:
    """A data set that is to be embedded: where its images are, by what, and where the features go."""

    name: str
    folder: Path
    encoder: str
    weights: Path | None
    features: Path


def checked_images(
    data: Sequence[str], encoder: str | None, weights: Path | None, output: Path
) -> tuple[RawImages, ...]:
    """The data sets of ``--data NAME=FOLDER``, with the features in the benchmark's folder `output`."""
    if not data:
        for option, given in (("--encoder", encoder), ("--weights", weights)):
            if given is not None:
                raise InputError(f"{option} is given without --data NAME=FOLDER, and features need none: leave it out.")
        return ()
    if encoder is None:
        raise InputError(f"--data is given without --encoder: name one; the paper's is {PAPERS_ENCODER}.")
    if weights is not None:
        must_exist(weights)
    found: dict[str, RawImages] = {}
    for given in data:
        name, folder = _name_and_folder(given)
        if name in found:
            raise InputError(f"--data gives {name} twice: give each data set once.")
        found[name] = RawImages(name, folder, encoder, weights, output / FOLDER / f"{name}.parquet")
    return tuple(found.values())


def _name_and_folder(given: str) -> tuple[str, Path]:
    name, _, folder = given.partition("=")
    if not folder:
        raise InputError(f"--data is {given!r}: give NAME=FOLDER, with a name among {', '.join(READERS)}.")
    return choose("--data: the data set", name, READERS), Path(folder)


def protocol_items(given: str, splits: Path | None, seed: int, labelled_half: str) -> Items:
    """The images of ``--data NAME=FOLDER`` with those labels alone that the protocol gives to a method.

    Parameters
    ----------
    given : str
    splits : path, optional
        The known classes, for `known_classes`.
    seed, labelled_half
        They draw the labelled rows, as in `make_case`.
    """
    name, folder = _name_and_folder(given)
    split = known_classes(name, splits)
    items = read_image_set(name, folder, split.imagenet_classes)
    parts, case = _problem(name, items, split, seed, labelled_half)
    labels = np.full(len(items), "" if parts.classes.dtype.kind == "U" else UNLABELLED, dtype=parts.classes.dtype)
    labelled = case.y >= 0
    labels[parts.rows[labelled]] = parts.classes[case.y[labelled]]
    return replace(items, labels=labels)


def embed_images(images: Sequence[RawImages], splits: Mapping[str, Split | None], output: Path) -> None:
    """Embed what is not there yet. All are read and checked before the first is begun, and before anything is written.

    Parameters
    ----------
    images : sequence of RawImages
    splits : mapping of names to Split
        Their known classes.
    output : Path
        The folder of the benchmark.
    """
    todo: list[tuple[RawImages, dict[str, Any], Items]] = []
    for one in images:
        split = splits[one.name]
        inputs = _inputs_of(one, split)
        if not _is_embedded(one, inputs):
            items = read_image_set(one.name, one.folder, None if split is None else split.imagenet_classes)
            _problem(one.name, items, split)  # better known before hours of work
            todo.append((one, inputs, items))
    if not todo:
        return
    from rpim.embedding.embed import embed
    from rpim.embedding.open_encoder import open_encoder

    encoder = open_encoder("images", todo[0][0].encoder, todo[0][0].weights)  # one for all
    CellFile(output)  # a folder in which it is begun is known as ours
    with writing(output / FOLDER):
        (output / FOLDER).mkdir(exist_ok=True)
    for one, inputs, items in todo:
        with replacing(_note(one)) as file:
            file.write(json.dumps(inputs, indent=1).encode())
        embed(items, encoder, one.features, verbose=True)


def _problem(
    name: str, items: Items, split: Split | None, seed: int = 0, labelled_half: str = HALVES[0]
) -> tuple[SplitFeatures, Case]:
    """The problem that the images will be; raises where the list of known classes does not fit them."""
    stand_in = np.ones((len(items), 1), dtype=np.float32)
    parts = split_features(FeatureSet.from_arrays(stand_in, labels=items.labels, split=items.split))
    try:
        case = make_case(parts, seed, split, labelled_half=labelled_half)
        check_statistics(name, case)
    except InputError as error:
        raise InputError(f"The set {name!r}: {error}") from error
    return parts, case


def _inputs_of(one: RawImages, split: Split | None) -> dict[str, Any]:
    """All that decides the features."""
    return {
        "folder": str(one.folder.resolve()),
        "encoder": one.encoder,
        "weights": None if one.weights is None else file_hash(one.weights),
        "imagenet_classes": None if split is None or split.imagenet_classes is None else [*split.imagenet_classes],
    }


def _is_embedded(one: RawImages, inputs: dict[str, Any]) -> bool:
    """Whether the features are there already; raises where they were made of something else."""
    if not one.features.exists():
        return False
    note = _note(one)
    if not note.exists():
        raise InputError(
            f"{one.features} is there, but not {note.name}, which says of what it was made: remove it, or give another "
            "folder for the results."
        )
    with reading(note):
        before = dict(json.loads(note.read_text(encoding="utf-8")))
    changed = [fact for fact, value in inputs.items() if before.get(fact) != value]
    if changed:
        raise InputError(
            f"{one.features} was made with other {' and '.join(changed)} ({note.name} says of what): give the same "
            "again, or another folder for the results."
        )
    return True


def _note(one: RawImages) -> Path:
    return one.features.with_suffix(".json")
