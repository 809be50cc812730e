"""The diagrams of the site, and links that GitHub follows and a site cannot: to folders, and out of docs/."""

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

_ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"\[([^\]\[]+)\]\((\.{1,2}/[^)\s#]*|[^):\s#]+/)(#[^)\s]*)?\)")
_MERMAID = Path(__file__).parent / "node_modules" / "mermaid" / "dist" / "mermaid.min.js"
_REF = os.environ.get("REPOSITORY_REF", "main")


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add the program that draws diagrams, so that no page loads it from elsewhere."""
    if not _MERMAID.exists():
        raise PluginError(f"{_MERMAID.parents[3]}: run `npm ci` there, or `make docs`")
    files.append(File.generated(config, _MERMAID.name, abs_src_path=str(_MERMAID)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Return a page whose links lead to pages of the site, or into the repository."""
    folder = PurePosixPath("docs", page.file.src_uri).parent

    def link(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        path = os.path.normpath(folder / target)
        if not (_ROOT / path).exists():
            return match[0]
        if path.startswith("docs/"):
            # A folder of documents has no page of its own: the list of all documents does.
            return text if (_ROOT / path).is_dir() and not (_ROOT / path / "README.md").exists() else match[0]
        if not config.repo_url:
            return f"{text} (`{path}`)"
        kind = "tree" if (_ROOT / path).is_dir() else "blob"
        return f"[{text}]({config.repo_url}/{kind}/{_REF}/{path}{anchor})"

    return _LINK.sub(link, markdown)
