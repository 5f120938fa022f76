"""What the site needs beside the pages in this folder: pages of other folders, links, drawn diagrams.

The pages are written for readers of the repository, in which links lead to files. A link to a file that is no
page of the site becomes plain text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File

from docs.diagrams import FENCE, name_of

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[1]
OTHER_PAGES: Final = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "tests/README.md": "tests.md",
}
"""Files outside of docs/, and the pages of the site for them. `index.md` is written for the site."""
FOLDERS: Final = {
    "docs/decisions": "decisions/README.md",
    "docs/reference": "reference/python.md",
}
"""Where a link to a folder leads."""
_LINK: Final = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_CODE: Final = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds the decisions to the navigation."""
    pages = sorted(path.name for path in (ROOT / "docs/decisions").glob("[0-9]*.md"))
    entry = next(each for each in config.nav or [] if isinstance(each, dict) and "Decisions" in each)
    entry["Decisions"] = [
        "decisions/README.md",
        *(f"decisions/{name}" for name in pages if not name.startswith("0000")),
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that show files outside of docs/."""
    for source, page in OTHER_PAGES.items():
        if source != "README.md":
            files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    template = files.get_file_from_path("decisions/0000-template.md")
    if template is not None:
        files.remove(template)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Returns the page with links of the site, and with its diagrams as pictures."""
    del config
    source = page.file.src_uri
    origin = next(
        (file for file, shown in OTHER_PAGES.items() if shown == source and shown != "index.md"),
        f"docs/{source}",
    )

    def linked(match: re.Match[str]) -> str:
        return _link(match[1], match[2], origin, source, files)

    def drawn(match: re.Match[str]) -> str:
        up = "../" * source.count("/")
        return f"![diagram]({up}diagrams/{name_of(match[1])}){{ .diagram }}"

    markdown = FENCE.sub(drawn, markdown)
    parts, end = [], 0
    for code in _CODE.finditer(markdown):
        parts += [_LINK.sub(linked, markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, _LINK.sub(linked, markdown[end:])])


def _link(text: str, target: str, origin: str, source: str, files: Files) -> str:
    path, hash_, anchor = target.partition("#")
    if "://" in target or not path:
        return f"[{text}]({target})"
    actual = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))
    shown = OTHER_PAGES.get(actual) or FOLDERS.get(actual) or actual.removeprefix("docs/")
    if files.get_file_from_path(shown) is None and (ROOT / actual).exists():
        return text
    relative = posixpath.relpath(shown, posixpath.dirname(source) or ".")
    return f"[{text}]({relative}{hash_}{anchor})"
