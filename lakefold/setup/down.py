"""`lakefold down`: stops the broker that `lakefold up` started. Its files stay for the next `lakefold up`."""

from __future__ import annotations

from pathlib import Path

import click

from lakefold.console.options import json_option, verb
from lakefold.console.output import print_json
from lakefold.local.broker import Broker
from lakefold.local.home import default_folder, forget, known_broker


@verb("lakefold down", "lakefold down --dir /var/lib/lakefold")
@click.option(
    "--dir",
    "chosen",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder with the broker's files.  [default: that of the broker `up` started]",
)
@json_option
def command(chosen: Path | None, *, as_json: bool) -> None:
    """Stop the local Kafka broker of this folder. Its topics stay on disk.

    Does nothing if no broker runs.
    """
    known = known_broker()
    broker = Broker(chosen) if chosen else known or Broker(default_folder())
    address = broker.bootstrap_servers
    stopped = broker.stop()
    if known is not None and known.directory == broker.directory:
        forget()
    if as_json:
        print_json({"stopped": stopped, "bootstrap_servers": address or None})
    else:
        click.echo(f"The broker at {address} was stopped." if stopped else "No broker runs in this folder.")
