"""The folder of a work under way: it says what it is of, so that it is gone on with by the same work alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from rpim._common.errors import InputError
from rpim._common.files import replacing, writing

PLAN_FILE = "plan.json"


def unfinished_folder(output: Path, plan: dict[str, Any], what: str, overwrite: bool = False) -> Path:
    """The folder beside `output` in which it is made, new or gone on with.

    Parameters
    ----------
    output : path of the file or folder to be
    plan : dict
        JSON-able: whatever has to be the same for parts to belong together.
    what : str
        What a person calls the work.
    overwrite : bool
        Throw away what was begun by another plan.

    Raises
    ------
    InputError
        If another plan has begun there.
    """
    folder = output.with_name(f"{output.name}.parts")
    plan = json.loads(json.dumps(plan))
    if folder.exists() and not is_of(folder, plan):
        if not overwrite:
            raise InputError(
                f"{folder} holds the beginning of another {what}: say --overwrite, choose another output, or remove it."
            )
        shutil.rmtree(folder, ignore_errors=True)
    with writing(folder):
        folder.mkdir(exist_ok=True)
    with replacing(folder / PLAN_FILE) as file:
        file.write(json.dumps(plan, indent=2).encode())
    return folder


def is_of(folder: Path, plan: dict[str, Any]) -> bool:
    try:
        said: Any = json.loads((folder / PLAN_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return not any(folder.iterdir())
    return bool(said == plan)
