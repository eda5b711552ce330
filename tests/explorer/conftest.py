"""A run on images, for the server and for exports."""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory):
    """An image a row, two of which have one name."""
    folder = tmp_path_factory.mktemp("images")
    for row in range(120):
        path = folder / str(row % 2) / f"image {row // 2}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (400, 200), (row, 0, 0)).save(path)
    return folder


@pytest.fixture
def pictured(animals, image_folder):
    """The run with an image a row, two of which have one name, and one of which is gone."""
    table = pq.read_table(animals / "assignments.parquet")
    old = Path(shutil.copytree(image_folder, animals.parent / "old"))
    paths = [str(old / str(row % 2) / f"image {row // 2}.png") for row in range(120)]
    (old / "1" / "image 0.png").unlink()
    pq.write_table(table.append_column("path", [paths]), animals / "assignments.parquet")
    facts = json.loads((animals / "run.json").read_text())
    facts["provenance"]["data"]["metadata"]["source"] = str(old)
    (animals / "run.json").write_text(json.dumps(facts))
    return animals
