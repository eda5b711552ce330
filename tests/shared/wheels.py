"""Install the wheel into empty environments, once without an extra and once with each, and use it: ``make wheels``.

In each environment ``pip check`` has to agree, ``rpim demo`` has to run, and so has a small use of the extra.
``--shared`` installs torch and what else needs no extra once, runs the demo once, and lets the environments of the
extras see them: less work, but they are not empty. ``--uv`` installs with uv, which links the files of its cache into
every environment instead of unpacking them again. With ``--lowest`` every dependency has the lowest version that
pyproject.toml allows (torch: the one in constraints.txt), and the fast tests of the mathematics and of the estimators
run as well. Environments are removed when they are done.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from importlib.metadata import PathDistribution
from pathlib import Path

import numpy as np
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ROOT / "constraints.txt"
TESTS = ("pytest", "pytest-xdist", "hypothesis", "pandas", "matplotlib")

ROWS = """
import numpy as np
random = np.random.RandomState(0)
truth = np.arange(240) % 6
X = 4 * np.eye(16)[truth] + random.randn(240, 16)
y = np.where((truth < 4) & (random.rand(240) < 0.5), truth, -1)
"""
SERVE = """
import re, subprocess, sys, urllib.request
command = [sys.executable, "-m", "rpim.cli.main", "explore", "rpim-demo", "--no-browser", "--port", "0"]
server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
try:
    address = next(found[0] for line in server.stdout if (found := re.search(r"http://\\S+", line)))
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())  # the key becomes a cookie
    assert b"<html" in browser.open(address, timeout=60).read()
finally:
    server.terminate()
"""
USES = {
    "": "",
    "images": "rpim embed photos --encoder test_vit --weights vit.safetensors --workers 0 -o images.npz",
    "images-offline": "rpim embed photos --encoder efficientnet-lite2 --workers 0 -o images.npz",
    "onnx": "rpim embed photos --encoder means.onnx --workers 0 -o images.npz",
    "text": "from rpim.embedding.weights import library; library('sentence_transformers').SentenceTransformer",
    "text-offline": "rpim embed texts.csv --encoder all-MiniLM-L6-v2 -o texts.npz",
    "figures": "rpim estimate rows.npz --plot curve.png",
    "maps": ROWS + "import rpim; assert len(rpim.UMAPHDBSCAN(6, random_state=0).fit(X, y).labels_) == 240",
    "report": "rpim report rpim-demo -o report.html",
    "notebook": ROWS
    + "import rpim\nfeatures = rpim.FeatureSet.from_arrays(X, labels=y)\n"
    + "found = rpim.Discovery.from_fit(rpim.RPIM(6, n_members=2).fit(X, y), features)\n"
    + "assert rpim.map_figure(found, features).data",
    "explore": SERVE,
    "ray": ROWS
    + "import rpim\nwith rpim.on_ray(workers=1) as spread:\n    rpim.RPIM(6, n_members=2).fit(spread(X), y)",
    "docs": "import myst_parser, numpydoc, pydata_sphinx_theme, sphinx_copybutton, sphinx_design, sphinx_gallery",
}
"""A small use of each extra: a command, or Python. The extra `dev` is what ``make test`` has."""


def write_data(folder: Path) -> None:
    """Images, texts, rows, the weights of a small ViT, and an .onnx file that averages each channel."""
    import onnx
    import torch
    from PIL import Image
    from safetensors.torch import save_file

    from rpim.embedding.weights import library

    random = np.random.RandomState(0)
    for number in range(8):
        place = folder / "photos" / ("ant", "bee")[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.randint(0, 256, (32, 32, 3), dtype=np.uint8)).save(place / f"{number}.png")
    lines = [f"where is card {n},{('card', '')[n % 2]}" for n in range(8)]
    (folder / "texts.csv").write_text("\n".join(["text,label", *lines, "open an account,account"]), encoding="utf-8")
    truth = np.arange(240) % 6
    X = 4 * np.eye(16)[truth] + random.randn(240, 16)
    np.savez(folder / "rows.npz", X=X, labels=np.where((truth < 4) & (random.rand(240) < 0.5), truth, -1))
    torch.manual_seed(0)
    save_file(library("timm").create_model("test_vit").state_dict(), folder / "vit.safetensors")

    def tensor(name: str, shape: list[int | str]) -> onnx.ValueInfoProto:
        return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)

    pooled = onnx.helper.make_node("GlobalAveragePool", ["pixels"], ["pooled"])
    flat = onnx.helper.make_node("Flatten", ["pooled"], ["means"])
    graph = onnx.helper.make_graph(
        [pooled, flat], "means", [tensor("pixels", ["n", 3, 32, 32])], [tensor("means", ["n", 3])]
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, folder / "means.onnx")


def lowest_versions(wheel: Path, extra: str) -> str:
    """Constraints: the lower bound of every dependency of the wheel with this extra."""
    pins = {name: bound for name, bound in _lower_bounds(wheel, extra) if name != "torch"}
    return CONSTRAINTS.read_text(encoding="utf-8") + "".join(f"{name}=={bound}\n" for name, bound in pins.items())


def _lower_bounds(wheel: Path, extra: str) -> Iterator[tuple[str, str]]:
    name, version, *_ = wheel.name.split("-")
    for line in PathDistribution(zipfile.Path(wheel, f"{name}-{version}.dist-info/")).requires or []:
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        if requirement.name == name:  # an extra that includes others
            for other in requirement.extras:
                yield from _lower_bounds(wheel, other)
        else:
            (bound,) = requirement.specifier
            yield requirement.name, bound.version


def run(command: list[str], folder: Path) -> None:
    """Run a command in the folder; its output is shown if it fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": "", "PIP_NO_COMPILE": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)[:200]}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


class Environment:
    """An environment for one interpreter; ``over`` is another one whose packages it sees."""

    def __init__(self, python: str, folder: Path, over: Environment | None = None, uv: bool = False):
        run([python, "-m", "venv", str(folder)], folder.parent)
        self.folder = folder
        self._uv = uv
        self._programs = folder / ("Scripts" if os.name == "nt" else "bin")
        if over is not None:
            (self.packages / "shared.pth").write_text(str(over.packages), encoding="utf-8")

    @property
    def packages(self) -> Path:
        """The folder in which packages are installed."""
        return (
            self.folder / "Lib" / "site-packages" if os.name == "nt" else next(self.folder.glob("lib/*/site-packages"))
        )

    def python(self, *arguments: str) -> None:
        """Run its Python beside the environment, where the data are."""
        run([str(self._programs / "python"), *arguments], self.folder.parent)

    def rpim(self, *arguments: str) -> None:
        """Run its rpim there."""
        self.python("-m", "rpim.cli.main", *arguments)

    def install(self, constraints: Path, *what: str) -> None:
        """Install packages within the constraints."""
        self._pip("install", "--quiet", "--constraint", str(constraints), *what)

    def check(self) -> None:
        """Check that every package has the versions of others that it wants."""
        self._pip("check")

    def _pip(self, command: str, *arguments: str) -> None:
        if self._uv:
            run(["uv", "pip", command, "--python", str(self._programs / "python"), *arguments], self.folder.parent)
        else:
            self.python("-m", "pip", command, *arguments)


def try_extra(environment: Environment, extra: str, wheel: Path, constraints: Path, demo: bool) -> None:
    """Install the wheel with an extra, check the environment, run the demo and use the extra."""
    environment.install(constraints, f"rpim[{extra}] @ {wheel.as_uri()}" if extra else str(wheel))
    environment.check()
    if demo:
        environment.rpim("demo", "--overwrite")
    use = USES[extra]
    if use.startswith("rpim "):
        environment.rpim(*use.split()[1:])
    elif use:
        environment.python("-c", use)


def run_fast_tests(environment: Environment, constraints: Path) -> None:
    """Run the tests of the mathematics and of the estimators with the environment's versions."""
    environment.install(constraints, *TESTS)
    chosen = ["-m", "not slow and not ray and not browser", "-p", "no:cacheprovider", "-q"]
    folders = [str(ROOT / "tests" / name) for name in ("core", "estimators", "test_metrics.py")]
    environment.python("-m", "pytest", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), *chosen, *folders)


def main() -> int:
    """Try every Python and extra; the exit code is 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pythons", nargs="+", default=[sys.executable], metavar="PYTHON", help="interpreters to try")
    parser.add_argument("--extras", nargs="+", default=list(USES), choices=list(USES), metavar="EXTRA")
    parser.add_argument("--shared", action="store_true", help="install torch and what needs no extra once")
    parser.add_argument("--uv", action="store_true", help="install with uv instead of pip")
    parser.add_argument("--lowest", action="store_true", help="the lowest versions of all dependencies")
    arguments = parser.parse_args()
    if arguments.uv and shutil.which("uv") is None:
        parser.error("--uv needs uv, which is not on the PATH: pip install uv, or leave out --uv.")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="rpim-wheels-") as name:
        scratch = Path(name)
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(scratch), str(ROOT)]
        run(build, scratch)
        (wheel,) = scratch.glob("*.whl")
        constraints = scratch / "constraints.txt"
        write_data(scratch)
        for python in arguments.pythons:
            base: Environment | None = None
            for extra in arguments.extras:
                began, result, folder = time.perf_counter(), "ok", scratch / (extra or "none")
                pins = lowest_versions(wheel, extra) if arguments.lowest else CONSTRAINTS.read_text(encoding="utf-8")
                constraints.write_text(pins, encoding="utf-8")
                try:
                    if arguments.shared and base is None:
                        base = Environment(python, scratch / "base", uv=arguments.uv)
                        try_extra(base, "", wheel, constraints, demo=True)
                    environment = Environment(python, folder, base, uv=arguments.uv)
                    try_extra(environment, extra, wheel, constraints, demo=base is None)
                    if arguments.lowest and not extra:
                        run_fast_tests(environment, constraints)
                except RuntimeError as error:
                    failed, result = failed + 1, f"FAILED: {error}"
                print(f"{python} rpim[{extra}]: {result} ({time.perf_counter() - began:.0f} s)", flush=True)
                shutil.rmtree(folder, ignore_errors=True)
                for left in ("images.npz", "texts.npz", "curve.png", "report.html"):
                    (scratch / left).unlink(missing_ok=True)
            shutil.rmtree(scratch / "base", ignore_errors=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
