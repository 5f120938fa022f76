"""What Debezium sends in place of a large value that an update did not change."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from lakefold_ingest.cdc.events import mask

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

UNCHANGED: Final = b"__debezium_unavailable_value"
"""In place of a text or bytes."""
UNCHANGED_JSON: Final = b'"%b"' % UNCHANGED
"""The same as JSON."""
_FORMS: Final = pa.array([UNCHANGED, base64.b64encode(UNCHANGED), UNCHANGED.hex().encode(), UNCHANGED_JSON])
"""The same as texts of bytes have it, and as JSON."""


def left_out(column: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_]:
    """Returns which values of a column of texts or bytes an event leaves out."""
    return mask(pc.is_in(column, value_set=_FORMS.cast(column.type)))
