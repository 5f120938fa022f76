"""`lakefold.catalog`: the Lance Namespace of a root as a Python object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from lakefold.console.settings import BrokerOptions
from lakefold.writing.options import function_settings
from lakefold_table.packages import explained_imports
from lakefold_table.uri import canonical

if TYPE_CHECKING:
    import os

    from lakefold.namespace.namespace import LakefoldNamespace


@explained_imports()
def catalog(
    root: str | os.PathLike[str],
    *,
    suffix: str = ".lance",
    group: str | None = None,
    **options: Unpack[BrokerOptions],
) -> LakefoldNamespace:
    """Returns the Lance Namespace of a folder or bucket, whose commits go through the log.

        namespace = lakefold.catalog("s3://lake", bootstrap_servers="broker-1:9092")
        lance.write_dataset(rows, namespace_client=namespace, table_id=["sales", "orders"])

    pylance takes it as `namespace_client=`, so clients need no other change: each of their commits is a
    proposal that becomes exactly the version that they have built, or is refused as a conflict, after which
    they build it again. A table `["sales", "orders"]` is the folder `sales/orders.lance` below `root`;
    `suffix` is what its name has behind it. `group`: the committers' consumer group, by which a drop
    sees whether entries wait. Other options are those of `lakefold.tag`.

    Raises `InvalidError` for a wrong option. Its methods raise the errors of `lance_namespace`; its `close`
    waits for rows that were sent.
    """
    from lakefold.namespace.names import Names
    from lakefold.namespace.namespace import LakefoldNamespace

    settings = function_settings(options, BrokerOptions.__annotations__)
    if group is not None:
        settings = settings.model_copy(update={"group": group})
    return LakefoldNamespace(settings, Names(canonical(root), suffix))
