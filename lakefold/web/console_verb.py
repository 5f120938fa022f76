"""`lakefold console`: serves the web page until it is stopped."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

from lakefold.console.address import address_options, unserved, url_of
from lakefold.console.interrupts import on_end
from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb
from lakefold.console.output import print_json, print_line

if TYPE_CHECKING:
    from lakefold.console.settings import Settings

PORT: Final = 8081


@verb(
    "lakefold console",
    "lakefold console --bootstrap-servers broker-1:9092 --root s3://lake",
    "lakefold console --port 0 --json",
)
@settings_options(*KAFKA, *TOPICS, "group", "roots", "http_host", "http_port", *STORE)
@address_options("the page", PORT)
@click.option(
    "--token",
    envvar="LAKEFOLD_CONSOLE_TOKEN",
    help="A text that a client has to know: in a browser as ?token=…, for programs as a bearer token. "
    "Set it by the environment, because every user of the machine can see flags. Then it is not printed.  "
    "[env: LAKEFOLD_CONSOLE_TOKEN]",
)
@click.option("--rows", "shows_rows", is_flag=True, help="Let the page show rows of tables, 20 of a version.")
@json_option
def command(
    settings: Settings, host: str, port: int, token: str | None, *, shows_rows: bool, as_json: bool
) -> None:
    """Serve a web page that shows the tables, the log and the committers. It changes nothing.

    The page has the tables below the roots with their health, rate, size and consumers, the history of each,
    what a version changed, the outcome of a proposal and its reason, the dead letters, the partitions of the
    log and their lag, and plots of the last hours. Where something is wrong it names the command that helps.
    It is updated as outcomes are reported. The state of a committer, and which tables are
    parked, is requested at --http-host and --http-port.

    It is served to this machine only, unless --host says otherwise; then set a token. It runs until SIGTERM
    or Ctrl-C.
    """
    stopped = Event()
    on_end(stopped.set)
    from lakefold.web.site import ConsoleSite
    from lakefold_committer.observability.web_server import WebServer

    token = token or settings.console_token
    # A wrong setting of the brokers or topics is an error before the page is served.
    settings.kafka_config()
    settings.topics()
    with ConsoleSite(settings, host, token, shows_rows=shows_rows) as site:
        try:
            server = WebServer(host, port, site.respond, "console")
        except OSError as error:
            raise unserved(host, port, error) from error
        with server:
            source = click.get_current_context().get_parameter_source("token")
            is_typed = source is ParameterSource.COMMANDLINE
            _print_address(host, server.port, token, as_json=as_json, shows_token=is_typed)
            stopped.wait()


def _print_address(host: str, port: int, token: str, *, as_json: bool, shows_token: bool) -> None:
    """Prints the address; with the token only if it was typed, since output may be kept in logs."""
    from urllib.parse import quote

    url = f"{url_of(host, port)}/" + (f"?token={quote(token, safe='')}" if token and shows_token else "")
    if as_json:
        print_json({"url": url, "host": host, "port": port})
    else:
        print_line(f"the console is at {url}")
        if token and not shows_token:
            print_line("add ?token= and the token, which is not shown because it is a setting")
