"""The folder of work in progress: its plan says what the work is, so that only the same work resumes from it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from rpim._common.errors import InputError
from rpim._common.files import replacing, writing

PLAN_FILE = "plan.json"


def open_work_folder(output: Path, plan: dict[str, Any], what: str, overwrite: bool = False) -> Path:
    """Create the work folder beside `output`, or reopen it to resume.

    Parameters
    ----------
    output : path of the file or folder to be
    plan : dict
        JSON-able: what has to be the same for the work to be resumed.
    what : str
        The user's word for the work.
    overwrite : bool
        Remove the checkpoint of another plan.

    Raises
    ------
    InputError
        If the folder holds the checkpoint of another plan.
    """
    folder = output.with_name(f"{output.name}.parts")
    check_plan(folder, plan, what, overwrite)
    write_plan(folder, plan)
    return folder


def check_plan(folder: Path, plan: dict[str, Any], what: str, overwrite: bool = False) -> None:
    """Check that a folder, where there is one, belongs to this plan; see `open_work_folder`."""
    if not folder.exists() or _belongs_to(folder, plan):
        return
    if not overwrite:
        raise InputError(
            f"{folder} holds the checkpoint of another {what}: say --overwrite, choose another output, or remove it."
        )
    shutil.rmtree(folder, ignore_errors=True)


def write_plan(folder: Path, plan: dict[str, Any]) -> None:
    """Create the folder, and say in it what the work is."""
    with writing(folder):
        folder.mkdir(exist_ok=True)
    with replacing(folder / PLAN_FILE) as file:
        file.write(json.dumps(plan, indent=2).encode())


def _belongs_to(folder: Path, plan: dict[str, Any]) -> bool:
    try:
        stored: Any = json.loads((folder / PLAN_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return not any(folder.iterdir())
    return bool(stored == json.loads(json.dumps(plan)))
