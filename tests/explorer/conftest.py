"""A run on images, for the server and for exports."""

import json

import pyarrow.parquet as pq
import pytest
from PIL import Image


@pytest.fixture
def pictured(animals):
    """The run with an image a row, two of which have one name, and one of which is gone."""
    table = pq.read_table(animals / "assignments.parquet")
    paths = []
    for row in range(120):
        path = animals.parent / "old" / str(row % 2) / f"image {row // 2}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (400, 200), (row, 0, 0)).save(path)
        paths.append(str(path))
    (animals.parent / "old" / "1" / "image 0.png").unlink()
    pq.write_table(table.append_column("path", [paths]), animals / "assignments.parquet")
    facts = json.loads((animals / "run.json").read_text())
    facts["provenance"]["data"]["metadata"]["source"] = str(animals.parent / "old")
    (animals / "run.json").write_text(json.dumps(facts))
    return animals
