"""Where the package's native objects are."""

from __future__ import annotations

import os
import pathlib


def find(name: str, how: str) -> pathlib.Path:
    """The shared object `name`: in the folder that CPSHARD_NATIVE_DIR names, else in the package's
    `_native`. ImportError: in neither, with `how`, how to build it."""
    # Not resolved: in a build's tree this file is a link, and the objects lie beside the link.
    folders = [pathlib.Path(__file__).absolute().parent / "_native"]
    if os.environ.get("CPSHARD_NATIVE_DIR"):
        folders.insert(0, pathlib.Path(os.environ["CPSHARD_NATIVE_DIR"]))
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    places = " or ".join(str(folder) for folder in folders)
    raise ImportError(f"{name} is not in {places}. {how}, or set CPSHARD_NATIVE_DIR to the folder "
                      "that holds it.")
