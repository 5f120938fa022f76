"""`lakefold catalog`: serves the Lance Namespace of a root over HTTP until it is stopped."""

from __future__ import annotations

from threading import Event, Thread
from typing import TYPE_CHECKING, Final

import click

from lakefold.console.address import address_options, unserved, url_of
from lakefold.console.interrupts import on_end
from lakefold.console.options import KAFKA, STORE, TOPICS, json_option, settings_options, verb
from lakefold.console.output import print_json, print_line

if TYPE_CHECKING:
    from lakefold.console.settings import Settings

PORT: Final = 2333
"""The port that the interface's specification names."""
THREADS: Final = 256
"""How many requests are answered at once; a commit waits for its outcome."""
MOST_BODY_BYTES: Final = 256 << 20
MOST_CONNECTIONS: Final = 2000
SILENT_S: Final = 60
DRAIN_S: Final = 5.0
"""How long requests may take to end once it is stopped."""


@verb(
    "lakefold catalog --root s3://lake --bootstrap-servers broker-1:9092",
    "lakefold catalog --port 0 --json",
)
@settings_options(*KAFKA, *TOPICS, "group", "roots", *STORE)
@address_options("the catalog", PORT)
@click.option(
    "--token",
    envvar="LAKEFOLD_CATALOG_TOKEN",
    help="A text that a client has to send as a bearer token, or as its API key. Set it by the environment, "
    "because every user of the machine can see flags.  [env: LAKEFOLD_CATALOG_TOKEN]",
)
@click.option(
    "--suffix", default=".lance", show_default=True, help="What a table's folder has behind its name."
)
@json_option
def command(
    settings: Settings, host: str, port: int, token: str | None, suffix: str, *, as_json: bool
) -> None:
    """Serve the Lance Namespace of a folder or bucket, so that Lance clients commit through the log.

    pylance, LanceDB and others that speak the interface need no other change than its address. Each of their
    commits is a proposal that becomes exactly the version that they have built, or a conflict, after which
    they build it again. Several catalogs may serve one root side by side. The root is the first of --root.

    It is served to this machine only, unless --host says otherwise; then set a token, and have a proxy in
    front of it speak TLS. It runs until SIGTERM or Ctrl-C.
    """
    stopped = Event()
    on_end(stopped.set)
    from lakefold_table.packages import explained_imports

    with explained_imports():
        from waitress.server import create_server

        from lakefold.namespace.names import Names
        from lakefold.namespace.namespace import LakefoldNamespace
        from lakefold.namespace.rest import CatalogSite

    namespace = LakefoldNamespace(settings, Names(settings.roots[0], suffix))
    site = CatalogSite(namespace, token or "")
    try:
        server = create_server(
            site,
            host=host,
            port=port,
            threads=THREADS,
            max_request_body_size=MOST_BODY_BYTES,
            connection_limit=MOST_CONNECTIONS,
            channel_timeout=SILENT_S,
            ident=None,
        )
    except OSError as error:
        raise unserved(host, port, error) from error
    thread = Thread(target=server.run, name="catalog", daemon=True)
    thread.start()
    url = url_of(host, int(server.effective_port))
    if as_json:
        print_json({"url": url, "host": host, "port": int(server.effective_port)})
    else:
        print_line(f"the catalog of {settings.roots[0]} is at {url}")
    stopped.wait()
    server.close()
    thread.join(DRAIN_S)
    namespace.close()
