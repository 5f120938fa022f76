"""The verbs `up` and `down`: a real Kafka broker for this folder, to try Lakefold without a cluster."""

from __future__ import annotations

from pathlib import Path

import click

from lakefold.console.options import json_option, verb
from lakefold.console.output import print_json, print_line
from lakefold.errors import SetupError
from lakefold.local.broker import Broker
from lakefold.local.home import default_folder, forget, known_broker, remember


@verb(
    "lakefold up",
    "lakefold up --port 9092 --dir /var/lib/lakefold",
    'export LAKEFOLD_BOOTSTRAP_SERVERS="$(lakefold up --json | jq -r .bootstrap_servers)"',
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    help="The port on 127.0.0.1; 0 is the port it had before, or a free one.",
)
@click.option(
    "--dir",
    "chosen",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder for the broker's files.  [default: .lakefold/broker]",
)
@json_option
def up(port: int, chosen: Path | None, *, as_json: bool) -> None:
    """Start a local Kafka broker for this folder and print its address.

    The broker runs until `lakefold down`. If it runs already, only its address is printed. The committer
    creates the topics. Java 17 or newer is needed; the first start downloads Kafka's jars.
    """
    broker = _broker_to_start(port, chosen)
    ran = broker.running
    if not ran and not as_json:
        print_line(f"Starting the broker in {broker.directory}, which takes some seconds …", err=True)
    address = broker.start()
    if ran and port and address.rpartition(":")[2] != str(port):
        message = f"the broker of this folder runs already, at {address}"
        raise SetupError(message, where="--port", hint="stop it first with `lakefold down`")
    remember(broker)
    if as_json:
        print_json({"bootstrap_servers": address})
        return
    click.echo(f"{'The broker runs already' if ran else 'The broker runs'}: {address}")
    click.echo(f"Its files are in {broker.directory}; `lakefold down` stops it.")


def _broker_to_start(port: int, chosen: Path | None) -> Broker:
    """Returns the broker to start.

    Raises `SetupError` if the folder's broker runs with its files elsewhere.
    """
    known = known_broker()
    if known is None or not known.running:
        return Broker(chosen or default_folder(), port)
    if chosen is not None and chosen.absolute() != known.directory:
        message = f"another broker of this folder runs, in {known.directory}"
        raise SetupError(message, where="--dir", hint="stop it first with `lakefold down`")
    return known


@verb("lakefold down", "lakefold down --dir /var/lib/lakefold")
@click.option(
    "--dir",
    "chosen",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder with the broker's files.  [default: that of the broker `up` started]",
)
@json_option
def down(chosen: Path | None, *, as_json: bool) -> None:
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
