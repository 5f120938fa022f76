"""The names in a field's metadata that give it another type than its storage, which clients agree on.

The committer compares such names and never uses Arrow, so they are apart from `extension_types`.
"""

from __future__ import annotations

from typing import Final

EXTENSION_NAME: Final = "ARROW:extension:name"
"""The key with the name of the extension type."""
ARROW_JSON: Final = "arrow.json"
"""The extension type of texts of JSON."""
BLOB_MARKER: Final = "lance-encoding:blob"
"""The key that marks binary values as blobs: large ones, which a scan leaves where they are."""
BLOB_V2: Final = "lance.blob.v2"
"""The extension type of blobs with a place of their own, which only pylance writes."""
