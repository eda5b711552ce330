"""Work resumes from a checkpoint of the same plan; that of another plan is refused, and never removed silently."""

import json

import pytest

from rpim._common.errors import InputError
from rpim._common.files import check_plan, open_work_folder

PLAN = {"rows": "a", "sizes": (1, 2)}  # a tuple comes back from JSON as a list


def test_a_new_folder_says_what_it_is_of(tmp_path):
    folder = open_work_folder(tmp_path / "out", PLAN, "embedding")
    assert folder == tmp_path / "out.parts"
    assert json.loads((folder / "plan.json").read_text()) == {"rows": "a", "sizes": [1, 2]}


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_same_plan_resumes(tmp_path, overwrite):
    (open_work_folder(tmp_path / "out", PLAN, "embedding") / "part").write_text("1")
    assert (open_work_folder(tmp_path / "out", PLAN, "embedding", overwrite) / "part").read_text() == "1"


def test_another_plan_is_refused_unless_it_may_overwrite(tmp_path):
    folder = open_work_folder(tmp_path / "out", PLAN, "embedding")
    (folder / "part").write_text("1")
    message = (
        r"out\.parts holds the checkpoint of another embedding: say --overwrite, choose another output, or remove it\."
    )
    with pytest.raises(InputError, match=message):
        open_work_folder(tmp_path / "out", {"rows": "b"}, "embedding")
    assert (folder / "part").read_text() == "1"
    assert list(open_work_folder(tmp_path / "out", {"rows": "b"}, "embedding", True).iterdir()) == [
        folder / "plan.json"
    ]


def test_files_without_a_plan_are_of_another_work_and_an_empty_folder_of_any(tmp_path):
    check_plan(tmp_path / "missing", PLAN, "fit")
    check_plan(tmp_path, PLAN, "fit")
    (tmp_path / "part").write_text("1")
    with pytest.raises(InputError, match="holds the checkpoint of another fit"):
        check_plan(tmp_path, PLAN, "fit")
