"""The files of reports, in a folder or in the store of the lake."""

import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from py4j.protocol import Py4JError

from wakupush.pipeline.errors import PipelineError
from wakupush.pipeline.lake.lake import Lake, items
from wakupush.runtime.settings import PipelineSettings, is_remote

#: What browsers have to be told, by the ending of a name: a store knows no types.
_TYPES: Final = {"html": "text/html; charset=utf-8", "csv": "text/csv; charset=utf-8"}
#: Pattern of the names of reports' folders, FIRST_LAST.
_FOLDERS: Final = "????-??-??_????-??-??"


def place_of(settings: PipelineSettings, first: date, last: date) -> str:
    """Return where the report of some days is, without a slash at the end.

    Raises:
        PipelineError: it is in a store, and the lake is not: nothing says how to reach the store.
    """
    if is_remote(settings.reports) and not is_remote(settings.warehouse):
        raise PipelineError("WAKUPUSH_PIPELINE__REPORTS: reports can be in a store only if the lake is")
    return f"{_root(settings)}/{first}_{last}"


def _root(settings: PipelineSettings) -> str:
    return settings.reports.rstrip("/") if is_remote(settings.reports) else str(Path(settings.reports).resolve())


def write(lake: Lake, place: str, texts: Mapping[str, str]) -> None:
    """Write files in place of earlier ones, each as a whole.

    Args:
        texts: by their names below the place.

    Raises:
        PipelineError: one cannot be written.
    """
    for name, text in texts.items():
        with _as_pipeline_error(f"{place}/{name} cannot be written"):
            (_put if is_remote(place) else _replace)(lake, f"{place}/{name}", text)


@contextmanager
def _as_pipeline_error(failure: str) -> Iterator[None]:
    """Raise failures of the disk or the store as PipelineError."""
    try:
        yield
    except OSError as error:
        raise PipelineError(f"{failure}: {error.strerror}") from None
    except Py4JError as error:
        raise PipelineError(f"{failure}: the store refuses it") from error


def _replace(_: Lake, name: str, text: str) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}-{uuid.uuid4().hex[:8]}")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)  # a full disk


def _put(lake: Lake, name: str, text: str) -> None:
    """Write an object by Amazon's SDK for Java: Iceberg's own way sets no type."""
    sdk = lake.java.software.amazon.awssdk
    where = urlsplit(name)
    request = sdk.services.s3.model.PutObjectRequest.builder().bucket(where.netloc).key(where.path.lstrip("/"))
    request = request.contentType(_TYPES[name.rpartition(".")[2]]).build()
    lake.table().io().client().putObject(request, sdk.core.sync.RequestBody.fromString(text))


def forget(lake: Lake, settings: PipelineSettings, before: date) -> None:
    """Delete the reports whose last day is before a day.

    Raises:
        PipelineError: one cannot be deleted.
    """
    root = _root(settings)
    with _as_pipeline_error(f"reports before {before} in {root} cannot be deleted"):
        if not is_remote(root):
            for path in Path(root).glob(_FOLDERS):
                if _is_before(path.name, before):
                    shutil.rmtree(path)
            return
        store = lake.table().io()
        for location in [info.location() for info in items(store.listPrefix(f"{root}/"))]:
            folder = location.removeprefix(f"{root}/").partition("/")[0]
            if Path(folder).match(_FOLDERS) and _is_before(folder, before):
                store.deleteFile(location)


def _is_before(folder: str, before: date) -> bool:
    return folder.partition("_")[2] < before.isoformat()
