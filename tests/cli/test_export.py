"""``rpim export``: a folder of images is not replaced."""

import os
from pathlib import Path


def test_a_folder_of_exported_images_is_not_replaced(animals, refused):
    Path("images").mkdir()
    Path("images/mine.txt").touch()
    message = "images exists already, and --overwrite replaces only files: choose another name."
    refused(message, "export", animals, "-o", "images", "--decisions", "--overwrite")
    assert os.listdir("images") == ["mine.txt"]
