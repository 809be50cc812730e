"""Folders that one process at a time writes to."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wakupush.pipeline.errors import PipelineError


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Make a folder, and keep other writers on this machine out until the end of the block.

    Raises:
        PipelineError: another run is writing, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise PipelineError(f"{folder} cannot be written: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineError(f"another run is writing to {folder}") from None
        yield
