"""The wheel that `make dist` builds holds the whole package, and works where it is installed."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import rpim

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """A folder with the source distribution and the wheel."""
    pytest.importorskip("build", reason="build is not installed")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_an_installed_wheel_runs(dist, tmp_path):
    (wheel,) = dist.glob("*.whl")
    target = tmp_path / "installed"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)]
    subprocess.run([*install, str(wheel)], check=True)
    environment = {**os.environ, "PYTHONPATH": str(target)}

    def run(*command):
        return subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout.strip()

    place = run(sys.executable, "-c", "import rpim; rpim.RPIM; print(rpim.__file__)")
    assert Path(place).is_relative_to(target)
    assert "discover" in run(sys.executable, str(target / "bin" / "rpim"), "--help")


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(dist):
    (wheel,) = dist.glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("rpim/")}
    files = [path for path in (ROOT / "src" / "rpim").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert held == {path.relative_to(ROOT / "src").as_posix() for path in files}


@pytest.mark.slow
def test_the_source_distribution_builds_the_site_and_the_tests(dist):
    (source,) = dist.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"docs/conf.py", "docs/index.md", "examples/tutorials/questions.csv", "tests/conftest.py", "CITATION.cff"}
    assert wanted <= held
    assert not any(name.startswith(("docs/generated/", "build/")) for name in held)


def test_the_citation_names_this_version():
    lines = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert f"version: {rpim.__version__}" in lines
