"""From a feature set to a discovery: check the problem, build the model, fit.

Errors in the data are reported before torch is imported, which takes seconds.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rpim._common.errors import InputError, choose, first_line
from rpim._version import __version__
from rpim.cli.terminal import as_options, echo, one_line_warnings
from rpim.data.columns import missing_labels
from rpim.data.feature_set import FeatureSet
from rpim.data.labels import encode_labels
from rpim.data.row_files import RowFiles
from rpim.embedding.items import Items

if TYPE_CHECKING:
    from rpim.core.checkpoint import Checkpoint
    from rpim.engines.ray import RayEngine
    from rpim.estimators.base import DiscoveryEstimator
    from rpim.runs.discovery import Discovery
    from rpim.runs.keywords import Namer


def check_problem(
    features: FeatureSet | Items,
    data: Path,
    n_classes: int | None = None,
    n_members: int | None = None,
    *,
    no_labels: bool = False,
) -> int:
    """Check the problem before any work, with errors that name the options; return the number of known classes."""
    if features.labels is None and features.columns and not no_labels:
        raise missing_labels(data, features.columns)
    known = np.empty(0) if features.labels is None else encode_labels(features.labels)[1]
    if len(known) == 1:
        raise InputError(
            f"The labelled rows of {data} have only one class, {known[0].item()!r}: label rows of at least two classes."
        )
    if features.n_labelled == len(features):
        raise InputError(
            f"Every row of {data} is labelled, so there is nothing to discover: leave some rows unlabelled."
        )
    if n_classes is not None and n_classes < len(known):
        raise InputError(
            f"--n-classes {n_classes} is smaller than the number of known classes, {len(known)}: "
            f"give at least {len(known)}, or leave it out to have it estimated."
        )
    if n_classes is not None and n_classes > len(features):
        raise InputError(
            f"--n-classes {n_classes} is larger than the number of rows of {data} ({len(features)}): give fewer, or "
            "leave it out to have it estimated."
        )
    if n_members is not None and n_members < 1:
        raise InputError(f"--n-members {n_members} is too few: give 1 for a single fit, or 16 for a committee.")
    if n_members is not None and n_members > len(features):
        raise InputError(
            f"--n-members {n_members} is larger than the number of rows ({len(features)}): give fewer, such as 16."
        )
    return len(known)


def make_model(method: str, preset: str, device: str | None, given: dict[str, float]) -> DiscoveryEstimator:
    """The estimator by name, with its parameters and a device that exists."""
    from rpim._common.hardware import checked_device
    from rpim.estimators.objective import nested_names
    from rpim.runs.saved_model import METHODS

    name = choose("--method", method, METHODS)
    model = METHODS[name]()
    if "preset" in model.get_params():
        model.set_params(preset=preset)
    elif preset != "default":
        raise InputError(f"--preset is not for --method {name}: leave it out.")
    parameters = nested_names(type(model), given)
    there = {name.removeprefix("objective__") for name in model.get_params()} - set(model.absent_terms)
    unknown = sorted(set(given) - there)
    if unknown:
        raise InputError(f"--{unknown[0].replace('_', '-')} is not for --method {name}: leave it out.")
    if device is not None:
        checked_device(device)
    estimator: DiscoveryEstimator = model.set_params(device=device, **parameters)
    return estimator


def check_clusters(model: DiscoveryEstimator, data: Path, method: str, preset: str) -> None:
    """Raise an error where the method cannot do without labels."""
    if model.needs_labels or preset == "paper":
        which = f"--method {method}" if model.needs_labels else f"--preset {preset}"
        raise InputError(
            f"{data} has no labelled row, and {which} needs some: label rows of at least two classes, give --labels "
            "FILE, or leave it out to cluster the rows."
        )


def check_parameters(model: DiscoveryEstimator) -> None:
    """Raise an error that names the option if a parameter is out of its range, before any work.

    scikit-learn says: The 'abstain' parameter of RPIM must be a float in the range [0.0, 1.0). Got 5.0 instead.
    """
    from sklearn.utils._param_validation import InvalidParameterError

    try:
        model._validate_params()
    except InputError as error:
        raise InputError(as_options(str(error))) from error
    except InvalidParameterError as error:
        said = re.search(r"'(\w+)' parameter .* range ([\[(])(\S+), (\S+)([\])])\. Got (\S+) instead", str(error))
        if said is None:
            raise InputError(as_options(first_line(error))) from error
        name, left, low, high, right, given = said.groups()
        limits = [f"{'at least' if left == '[' else 'above'} {float(low):g}"]
        if high != "inf":
            limits.append(f"{'at most' if right == ']' else 'below'} {float(high):g}")
        option = f"--{name.replace('_', '-')} {float(given):g}"
        raise InputError(
            f"{option} is out of its range: give a number {' and '.join(limits)}, or leave it out."
        ) from error


def checkpoint_of(
    model: DiscoveryEstimator, features: FeatureSet, output: Path, *, overwrite: bool = False
) -> Checkpoint:
    """The checkpoint beside the run: a fit of the same rows and parameters resumes from it, another is refused."""
    from rpim.core.checkpoint import Checkpoint

    hidden = ("verbose", "objective")  # the objective's parameters are listed one by one
    parameters = {name: repr(value) for name, value in model.get_params().items() if name not in hidden}
    method = type(model).__name__
    plan = {"rpim": __version__, method: parameters, "rows": features.quick_fingerprint()}
    return Checkpoint(output, plan, overwrite=overwrite)


@contextlib.contextmanager
def spread_over(
    address: str | None, workers: int | None, model: DiscoveryEstimator
) -> Iterator[Callable[[Any], RayEngine] | None]:
    """The Ray workers of ``--ray`` and ``--workers``; None without ``--ray``."""
    if address is None:
        yield None
        return
    from rpim.engines.ray import on_ray
    from rpim.estimators.infomax import InfoMaxEstimator

    if not isinstance(model, InfoMaxEstimator):
        name = type(model).__name__.lower()
        raise InputError(f"--method {name} cannot be distributed, only rpim, pim, tim and rim can: leave out --ray.")
    with on_ray(address, workers) as spread:
        yield spread


def fit(
    model: DiscoveryEstimator,
    features: FeatureSet,
    source: Path | str,
    checkpoint: Checkpoint | None = None,
    spread: Callable[[Any], RayEngine] | None = None,
    *,
    quiet: bool = False,
) -> Discovery:
    """Fit the model.

    Errors and warnings of the fit name options instead of parameters; each warning is one line.
    """
    from rpim.runs.discovery import Discovery

    start = time.monotonic()
    try:
        views = features.rows_of_views(model.normalize) if model.uses_views else []
        rows = features.X if isinstance(features.X, RowFiles) else features.rows(normalize=model.normalize)
        where = rows if spread is None else spread(rows)
        with one_line_warnings(show=not quiet):
            labels = np.full(len(features), "") if features.n_labelled == 0 else np.asarray(features.labels)
            model.fit(where, labels, views, widths=features.widths, checkpoint=checkpoint)
    except InputError as error:
        raise InputError(as_options(str(error))) from error
    named = source.resolve() if isinstance(source, Path) else source
    return Discovery.from_fit(
        model,
        features,
        source=named,
        duration=time.monotonic() - start,
        command=["rpim", *sys.argv[1:]],
        verbose=model.verbose,
    )


def load_namer(said: str) -> Namer:
    """The function of ``--namer MODULE:FUNCTION``; the module may be a file in the current folder."""
    module, _, function = said.partition(":")
    if not module or not function:
        raise InputError(f"--namer is {said!r}: give MODULE:FUNCTION, such as mynames:name for def name in mynames.py.")
    sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), function, None)
    except Exception as error:  # whatever the module raises
        raise InputError(f"--namer: the module {module!r} cannot be imported ({first_line(error)}).") from error
    finally:
        sys.path.remove("")
    if not callable(found):
        raise InputError(f"--namer: the module {module!r} has no function {function!r}.")
    namer: Namer = found
    return namer


def named(discovery: Discovery, namer: Namer) -> Discovery:
    """Name the new classes; an error of the namer is printed, since it must not cost the fit."""
    try:
        return discovery.named_by(namer)
    except Exception as error:
        echo(f"rpim: warning: --namer failed ({first_line(error)}): names are from keywords.", err=True)
        return discovery
