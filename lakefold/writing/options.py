"""The options that every function that writes through the log takes, and the settings made from them."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, cast

from lakefold.console.settings import Settings, read_settings
from lakefold_ingest.formats import read_properties
from lakefold_ingest.merge.clauses import names_of
from lakefold_ingest.options.write_options import USER_METADATA, WRITE_OPTIONS
from lakefold_ingest.proposals.key import APP_ID, Key, new_key
from lakefold_ingest.writing.settings import (
    OnOlderBatch,
    OnRefused,
    OnReusedKey,
    OnRolledBack,
    Wait,
    WriteSettings,
)
from lakefold_reader.spark.option_kinds import (
    COUNT,
    FLAG,
    NAMES,
    NUMBER,
    PAIRS,
    SECONDS,
    TEXT,
    WORD,
    OptionKind,
)
from lakefold_table.errors import InvalidError, OptionName
from lakefold_table.storage import open_storage
from lakefold_table.uri import canonical, is_under

if TYPE_CHECKING:
    import os
    from pathlib import Path


class SinkOptions(TypedDict, total=False):
    """Options of `lakefold.spark.sink` beside those that it names itself; see `WriteOptions`."""

    transactions_topic: str | None
    outcomes_topic: str | None
    kafka: Mapping[str, str] | None
    storage_options: Mapping[str, str] | None
    config: Path | None
    timeout: float
    stable_row_ids: bool
    data_storage_version: str
    max_rows_per_file: int
    max_bytes_per_file: int
    on_rolled_back: OnRolledBack
    on_older_batch: OnOlderBatch
    on_reused_key: OnReusedKey
    on_refused: OnRefused
    max_unanswered: int
    max_lag: float
    commit_properties: Mapping[str, str] | None
    commit_message: str
    merge_schema: bool
    bad_records: str | os.PathLike[str] | None
    bad_records_columns: str | Iterable[str] | None
    format: str | None
    partition_by: str | Iterable[str] | None
    table_properties: Mapping[str, str | bool | int] | None
    dry_run: bool


class WriteOptions(SinkOptions, total=False):
    """Options of `append` and the other functions that write; all may be left out.

    The brokers, topics, `kafka` (librdkafka's options) and `storage_options` (pylance's) come from
    `LAKEFOLD_…` variables if they aren't given, else from the TOML file `config`. If neither names brokers,
    those of `lakefold up` are used. `wait`: "commit" returns when the rows are in the table, "log"
    when the brokers have stored the proposal; then `on_refused`, `max_unanswered` and `max_lag` are as for
    `lakefold.spark.sink`. `timeout`: seconds for each. `stable_row_ids`,
    `data_storage_version`: used if the table is created. `max_rows_per_file`, `max_bytes_per_file` (in
    memory): another file begins after so much.
    `on_rolled_back`: "raise" fails a batch that was folded before and undone since, by a Restore or a revert,
    "skip" leaves its rows out, "again" adds it once more under its key, for a batch that was corrected.
    `on_reused_key`: "raise" fails a batch under the key of another one that was folded before, with other
    rows (in any order), other columns or another operation; "skip" leaves its rows out, for batches that have
    other values whenever they are run, e.g. the time.
    `commit_properties`: recorded by the version that contains the batch. `commit_message`: why it is sent,
    e.g. "rows that came late"; `lakefold.history` and `explain` show it with the author.
    `merge_schema`: columns that the table lacks are added to it, as nullable ones, before the rows, and
    columns whose type is too narrow, or that of nulls, get the type of the rows.
    `bad_records`: a table to which rows are appended that can't be written, each with the reason; without it
    they fail their batch. `bad_records_columns`: columns of the rows that go to that table alone, as Kafka's
    topic, partition and offset. `format`: "lance" or "delta", if the table is created (by default Lance); a
    table of another format is refused. `partition_by`: the partition columns of a Delta table that is
    created. `table_properties`: its properties, such as {"delta.enableDeletionVectors": True}. A Lance table
    has one, {"lakefold.isolation": "serializable"}.
    `sort_by`: the rows that are appended are in the order of these columns in each file; the rows of a file
    are held in memory for that.
    `dry_run`: nothing is sent, and the table stays as it is; the result says what the batch would do
    (its kind is "planned"). `Writer` and `sink` refuse it.
    """

    bootstrap_servers: str | None
    wait: Wait
    sort_by: str | Iterable[str] | None


_CONNECTION = ("bootstrap_servers", "transactions_topic", "outcomes_topic", "kafka", "storage_options")
_KINDS = {
    **{option.parameter: option.kind for option in WRITE_OPTIONS},
    **dict.fromkeys(("kafka", "storage_options", "policy"), PAIRS),
    **dict.fromkeys(("where", "metrics_host", "branch", "engine"), TEXT),
    **dict.fromkeys(("max_rows", "max_bytes", "max_queued_bytes"), COUNT),
    **dict.fromkeys(("target_rows_per_file", "metrics_port", "threads"), COUNT),
    "max_delay": SECONDS,
    "by_policy": FLAG,
    "dry_run": FLAG,
    **dict.fromkeys(("overwrite_schema", "if_not_exists"), FLAG),
    "roots": NAMES,
    "http_port": NUMBER,
    "clauses": OptionKind(types=Iterable, shown="a list of clauses, as [lakefold.MatchedUpdate()]"),
    "on_report": OptionKind(types=cast("type", Callable), shown="a function"),
}
"""The kinds of parameters: those of the table of options, and those that only functions have."""
_PYTHON_NAMES = (
    *((name, option.parameter) for option in WRITE_OPTIONS for name in (option.name, *option.others)),
    (USER_METADATA, "commit_properties"),
    ("targetFileSize", "max_bytes_per_file"),
    ("predicate", "where"),
    ("replaceWhere", "where"),
    ("batch_size", "max_rows"),
)
"""Options of `format("lakefold")` and of other products, each with its name in Python."""
_INSTEAD = {
    "mode": "append adds rows, upsert and delete change them, lakefold.overwrite replaces them",
}
"""What to do instead of a parameter of delta-rs, pylance and delta-spark that doesn't exist here."""
_REQUIRED = {"max_rows", "max_bytes", "max_delay", "max_queued_bytes", "driver_rows"}
"""Those of which None is not a value."""


def write_settings(
    table: str | os.PathLike[str], options: WriteOptions, function: Callable[..., object] | None = None
) -> WriteSettings:
    """Returns the settings of a writer of `table`, a URI or path.

    `function`: the one that a user called with these options and with parameters of its own. Its parameters
    are suggested as well if an option is misspelt. Raises `InvalidError` if an option is unknown or its value
    is wrong, `LocationError` if this release can't write tables at this location.
    """
    given = {name: value for name, value in options.items() if value is not None}
    _check_names(given, function)
    check_kinds(given)
    connection = {name: _plain(given.pop(name)) for name in _CONNECTION if name in given}
    config: Path | None = options.get("config")
    given.pop("config", None)
    renamed = {f"{name}_s" if _KINDS.get(name) is SECONDS else name: value for name, value in given.items()}
    return _settings(table, read_settings(connection, config), renamed)


def function_settings(options: Mapping[str, Any], known: Iterable[str]) -> Settings:
    """Returns the settings of a function with these options, of which it knows some by name.

    Raises `InvalidError` if an option is unknown or its value is wrong.
    """
    names = tuple(known)
    unknown = sorted(options.keys() - set(names))
    if unknown:
        hint = f"the options are: {', '.join(names)}"
        raise InvalidError(f"there is no option {unknown[0]!r}", where=unknown[0], hint=hint)
    check_kinds(dict(options))
    settings = (name for name in names if name in Settings.model_fields and options.get(name) is not None)
    return read_settings({name: options[name] for name in settings}, options.get("config"))


def settings_for(table: str, settings: Settings, *, wait_s: float, **given: object) -> WriteSettings:
    """Returns the settings of a verb that writes `table` and waits `wait_s` seconds for the outcome.

    With 0 the verb waits for the log only. `given`: more settings. Raises as `write_settings` does.
    """
    waiting = {"timeout_s": wait_s} if wait_s else {"wait": "log"}
    return _settings(table, settings, {**waiting, **given})


def _settings(
    table: str | os.PathLike[str], settings: Settings, given: Mapping[str, object]
) -> WriteSettings:
    uri = canonical(table)
    open_storage(uri, settings.storage_options)
    if "bad_records" in given:
        bad_records = canonical(cast("str", given["bad_records"]))
        _check_roots(bad_records, uri, settings)
        given = {**given, "bad_records": bad_records}
    for name, value in given.items():
        if _KINDS.get(name) is NAMES:
            given = {**given, name: names_of(cast("str | Iterable[str]", value), name)}
    if "table_properties" in given:
        properties = cast("Mapping[str, str | bool | int]", given["table_properties"])
        given = {**given, "table_properties": read_properties(properties)}
    return WriteSettings(
        table=uri,
        kafka=settings.kafka_config(),
        topics=settings.topics(),
        storage_options=settings.storage_options,
        **given,  # type: ignore[arg-type] # the names are checked here, the values by the settings
    )


def _check_roots(bad_records: str, table: str, settings: Settings) -> None:
    """Raises `InvalidError` if the roots that are set have the table, but not that of its bad rows.

    Without such a setting, only the committer knows its roots.
    """
    roots = settings.roots if "roots" in settings.model_fields_set else ()
    if is_under(table, roots) and not is_under(bad_records, roots):
        raise InvalidError(
            f"{bad_records} is not below the roots of the committer that folds {table}",
            where=OptionName("bad_records"),
            hint=f"name a table below {' or '.join(settings.printable_roots())}, or add a root",
        )


def batch_key(app_id: str | None, batch_id: int | None) -> Key:
    """Returns the key of a batch; a new one if neither is given. Raises `InvalidError` if one is missing."""
    if app_id is None and batch_id is None:
        return new_key()
    if app_id is None or batch_id is None:
        batch = OptionName("batch_id")
        lacking = APP_ID if app_id is None else batch
        message = APP_ID, " and ", batch, " are a key together"
        raise InvalidError(message, where=lacking, hint="give both, or none")
    return Key(app_id, batch_id)


def _check_names(given: Mapping[str, object], function: Callable[..., object] | None) -> None:
    options = WriteOptions.__annotations__
    for name in given:
        if name not in options:
            known = dict.fromkeys([*(_parameters(function) if function else ()), *options])
            same = (ours for theirs, ours in _PYTHON_NAMES if _squeezed(theirs) == _squeezed(name))
            near = [each for each in same if each in known] or difflib.get_close_matches(name, known, n=1)
            hint = _INSTEAD.get(name) or (
                f"did you mean {near[0]}?" if near else "help(lakefold.WriteOptions) lists the options"
            )
            raise InvalidError(f"there is no option {name!r}", where=name, hint=hint)


def check_kinds(given: Mapping[str, object]) -> None:
    """Raises `InvalidError` for a value of another kind. As a flag, the text "false" would be true.

    `given` may have the functions' own parameters as well. None counts as not given, except for `_REQUIRED`.
    """
    for name, value in given.items():
        kind = _KINDS.get(name, WORD)
        if not kind.admits(value) and (value is not None or name in _REQUIRED):
            raise InvalidError(f"{value!r} can't be its value", where=name, hint=f"give {kind.shown}")
    properties = given.get("commit_properties")
    if isinstance(properties, Mapping):
        others = [name for name, value in properties.items() if not isinstance(value, str)]
        if others:
            message = f"the value of {others[0]!r} is not a text"
            raise InvalidError(message, where=OptionName("commit_properties"), hint="give texts")


def _squeezed(name: str) -> str:
    return re.sub("[-_]", "", name).lower()


def _parameters(function: Callable[..., object]) -> list[str]:
    """Returns the names of a function's own parameters."""
    each = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in each if parameter.kind is not parameter.VAR_KEYWORD]


def _plain(value: object) -> object:
    return value if isinstance(value, str) else dict(value)  # type: ignore[call-overload] # a mapping of options
