"""The sizes of the paper's data sets under its protocol, by which a wrong list or a wrong numbering shows."""

from __future__ import annotations

from dataclasses import dataclass

from rpim._common.errors import InputError
from rpim.benchmark.protocol import Case


@dataclass(frozen=True)
class Sizes:
    """A column of the paper's table of statistics, which gives rows in hundreds."""

    known: int  # |Y^L|
    classes: int  # |Y^U|: the unlabelled rows are of all classes
    labelled: int  # |D^L|
    unlabelled: int  # |D^U|


STATISTICS = {
    "cub": Sizes(100, 200, 1_500, 4_500),
    "cars": Sizes(98, 196, 2_000, 6_100),
    "herbarium19": Sizes(341, 683, 8_900, 25_400),
    "cifar10": Sizes(5, 10, 12_500, 37_500),
    "cifar100": Sizes(80, 100, 20_000, 30_000),
    "imagenet100": Sizes(50, 100, 31_900, 95_300),
}
"""FGVC-Aircraft is not in the table."""

ROUNDING = 50
"""A figure in hundreds of rows is off by no more than that."""


def check_statistics(name: str, case: Case) -> bool:
    """Whether a problem is the paper's, by the number of its training rows; raises where it is, but divided otherwise.

    Parameters
    ----------
    name : str
        One of `STATISTICS`; no other set is the paper's.
    case : Case
        Of any seed: the sizes are the same for all.
    """
    paper = STATISTICS.get(name)
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
