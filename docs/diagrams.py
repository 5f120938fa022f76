"""The diagrams of the pages as pictures, which the site shows instead of a script of another server.

`python -m docs.diagrams` draws those that are missing and removes those that no page has. A picture is named
by its diagram's text.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

FENCE: Final = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DOCS: Final = Path(__file__).parent
FOLDER: Final = DOCS / "diagrams"


def name_of(text: str) -> str:
    """Returns the name of the picture of a diagram."""
    return f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.svg"


def diagrams() -> dict[str, str]:
    """Returns the texts of all diagrams by the names of their pictures."""
    pages = [*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")]
    texts = [text for page in pages for text in FENCE.findall(page.read_text(encoding="utf-8"))]
    return {name_of(text): text for text in texts}


def draw() -> None:
    """Draws the missing pictures, and removes the others."""
    import mermaidx

    texts = diagrams()
    for path in FOLDER.glob("*.svg"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        if not (FOLDER / name).exists():
            picture = mermaidx.render(text).svg()
            (FOLDER / name).write_text(picture.rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    draw()
