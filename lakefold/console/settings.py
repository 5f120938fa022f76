"""The settings: a typed model, filled from flags, the environment, a TOML file and defaults, in that order.

Every process of Lakefold uses the same names for the same settings. The error for a wrong value names the
setting and the flag, variable or file that it comes from.

In the environment a setting is `LAKEFOLD_` and its name in capitals. `kafka`, `storage_options` and
`maintenance` are tables of options: in the environment they are a JSON object, or one variable per option
with two underscores before its name, which suits a secret (`LAKEFOLD_KAFKA__SASL_PASSWORD` is
`sasl.password`). The options of a table are merged one by one over all sources.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypedDict

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator

from lakefold.console.masking import MASK
from lakefold.errors import SettingError
from lakefold_table.errors import InvalidError, OptionName
from lakefold_table.uri import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakefold_log.client.admin import KafkaConfig
    from lakefold_log.client.topic_names import Topics
    from lakefold_table.versions.table_address import TableAddress

PREFIX: Final = "LAKEFOLD_"
"""The prefix of the names of all environment variables."""

TABLES: Final = {"kafka": ".", "storage_options": "_", "maintenance": "_"}
"""The settings that are tables of options, and the separator between the words of their options' names."""

_SECRET = re.compile(
    r"pass|secret|token|key|credential|account|signature|sas|jaas|auth|connection", re.IGNORECASE
)
_LOGIN_IN_URI = re.compile(r"(?<=://)[^/@\s]*:[^/@\s]*(?=@)")

SHARED: Final = "shared"
"""The value of `partitions` if processes divide the partitions among themselves."""
ALL: Final = "all"
"""The value of `partitions` if one process folds all of them."""

MOST_PARTITIONS: Final = 100_000
"""A range has at most this many partitions. Each one is a thread, and a topic has far fewer."""

MOST_PORT: Final = 65_535

MOST_FILE_BYTES: Final = 1024 * 1024
"""A settings file has a few hundred bytes. A larger one is another file, or a device without an end."""

_BY_ORDINAL = re.compile(r"ordinal/[1-9]\d*")

Topic = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,249}$")]


class Settings(BaseModel):
    """The settings of a process. `read_settings` creates them; their printed form hides secrets.

    Sizes are in bytes, times in seconds. `partitions` is numbers, or one of the texts `shared`, `all` and
    `ordinal/N`, or None if it is not given.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    bootstrap_servers: str = Field("", description="the brokers, as host:port,… [default: the local one]")
    kafka: dict[str, str] = Field({}, description="an option of librdkafka, passed on unchanged; repeatable")
    author: str = Field(
        "",
        max_length=200,
        description="who proposals say has sent them; none leaves that and the program out [default: the "
        "user's and the host's name]",
    )
    transactions_topic: Topic = Field("lakefold.transactions", description="the topic of proposals")
    outcomes_topic: Topic = Field("lakefold.outcomes", description="the topic of outcomes")
    dead_letters_topic: Topic = Field("lakefold.dead-letters", description="the topic of refused proposals")
    topic_partitions: int = Field(1, ge=1, description="partitions of a topic that the committer creates")
    topic_replication: int | None = Field(
        None,
        ge=1,
        le=32_767,
        description="replicas of a topic that the committer creates [default: default.replication.factor of "
        "the brokers]",
    )
    partitions: tuple[Annotated[int, Field(ge=0)], ...] | str | None = Field(
        None,
        description="the partitions that this process folds: a list such as 0,2,4-7; or ordinal/N, every "
        "N-th one from its ordinal on; or all, which ends other committers of the group; or shared, those "
        "that its consumer group assigns to it [default: shared]",
    )
    ordinal: int | None = Field(
        None,
        ge=0,
        description="this process's number, from 0 [default: the one at the end of the host's name]",
    )
    group: str = Field(
        "lakefold", min_length=1, description="the consumer group whose committed offset is used"
    )
    roots: tuple[str, ...] = Field(
        default_factory=lambda: (canonical(Path.cwd()),),
        min_length=1,
        description="a URI below which tables are folded; repeatable [default: the current folder]",
    )
    storage_options: dict[str, str] = Field(
        {}, description="an option of the object store, as pylance takes it; repeatable"
    )
    http_host: str = Field(
        "127.0.0.1",
        description="the address on which metrics and health are served; 0.0.0.0, as in the image, serves "
        "other hosts too",
    )
    http_port: int = Field(8080, ge=0, le=65_535, description="the port of metrics and health; 0 = off")
    console: bool = Field(
        default=False, description="whether the committer serves the page of `lakefold console` on http_port"
    )
    console_token: str = Field(
        "", description="a text that clients of that page must know; set it by the environment or the file"
    )
    umask: str | None = Field(
        None,
        description="the umask of this process, in octal: with 002, the group may write to folders that it "
        "creates [default: that of the process]",
    )
    group_max_entries: int = Field(4096, ge=1, description="the number of entries at which a group is full")
    group_max_bytes: int = Field(4_194_304, ge=1, description="the number of bytes at which a group is full")
    group_max_wait: float = Field(
        0.005,
        ge=0,
        le=60,
        description="seconds that a group waits for more entries; if the log is idle, it doesn't wait",
    )

    manifest_bytes_per_second: int = Field(
        20_000_000,
        ge=0,
        description="bytes of manifests that a table gets per second, over a minute; above it, versions wait "
        "and more entries share them; 0 = no limit",
    )
    manifest_max_wait: float = Field(
        1.0,
        ge=0,
        le=60,
        description="seconds that a version waits at most because of manifest_bytes_per_second",
    )

    table_memory: int = Field(
        268_435_456,
        ge=0,
        description="bytes of memory for tables that have no entries waiting; above it, the tables that were "
        "unused for the longest time are closed",
    )

    claim_memory: int = Field(
        536_870_912,
        ge=0,
        description="bytes of memory for folding one proposal that is too large for a message; if it needs "
        "more, it is answered Invalid before it is decoded",
    )

    transaction_files: bool = Field(
        default=True,
        description="whether the transaction of each version is also written to its own file; without it, "
        "Lance clients before 14 can't commit after that version",
    )

    maintenance: dict[str, str] = Field(
        {},
        description="a key of the maintenance policy, for tables whose configuration has no "
        "lakefold.maintenance.KEY of its own; repeatable",
    )

    @field_validator("bootstrap_servers")
    @classmethod
    def _ports_are_ports(cls, servers: str) -> str:
        """Raises ValueError for a port that Kafka's client would take modulo 65,536, or as another port."""
        for server in _words(servers):
            match = re.fullmatch(r".*:(\d+)", server)
            if match and not 1 <= int(match[1]) <= MOST_PORT:
                raise ValueError(f"{_masked('', server)!r} has no port between 1 and {MOST_PORT}")
        return servers

    @field_validator("kafka")
    @classmethod
    def _brokers_are_named_once(cls, options: dict[str, str]) -> dict[str, str]:
        if not {"bootstrap.servers", "metadata.broker.list"}.isdisjoint(options):
            message = "set the brokers by the setting bootstrap_servers, not by an option of kafka"
            raise ValueError(message)
        return options

    @field_validator("umask")
    @classmethod
    def _umask_is_octal(cls, umask: str | None) -> str | None:
        if umask is not None and not re.fullmatch("0?[0-7]{3}", umask):
            raise ValueError(f"{umask!r} is not three octal digits, such as 002")
        return umask

    @field_validator("partitions", mode="before")
    @classmethod
    def _read_partitions(cls, value: object) -> object:
        """Reads a list such as `0,2,4-7`.

        Returns the numbers sorted, without repetition; other texts unchanged.
        """
        if not isinstance(value, str) or value in {SHARED, ALL} or _BY_ORDINAL.fullmatch(value):
            return value
        numbers: set[int] = set()
        for part in _words(value):
            if not (match := re.fullmatch(r"(\d+)(?:-(\d+))?", part)):
                message = f"{part!r} is not a partition, a range such as 4-7, ordinal/N, all or shared"
                raise ValueError(message)
            numbers.update(_range(part, int(match[1]), int(match[2] or match[1])))
        return tuple(sorted(numbers)) or None

    @field_validator("roots", mode="before")
    @classmethod
    def _read_roots(cls, value: object) -> object:
        """Reads URIs separated by commas, a list, or a JSON list. Returns their canonical forms."""
        parts = _parts(value) if isinstance(value, str) else value
        if not isinstance(parts, list | tuple):
            return value
        try:
            return tuple(canonical(str(part)) for part in parts)
        except InvalidError as error:
            raise ValueError(str(error)) from error

    def brokers(self) -> str:
        """Returns the brokers' addresses: those of the setting, else of the broker that `up` started.

        That is the one of the current folder, or of the nearest folder above it that has one.

        Raises `SettingError` if the setting is empty and no such broker exists.
        """
        if self.bootstrap_servers:
            return self.bootstrap_servers
        from lakefold.local.home import nearest_broker

        local = nearest_broker()
        if local is not None and local.bootstrap_servers:
            return local.bootstrap_servers
        message = "no brokers are set, and `lakefold up` has started none in this folder or one above it"
        given = f"--bootstrap-servers, {PREFIX}BOOTSTRAP_SERVERS, or Spark's kafka.bootstrap.servers"
        hint = f"run `lakefold up`, or set {given}"
        raise SettingError(message, where=OptionName("bootstrap_servers"), hint=hint)

    def kafka_config(self) -> KafkaConfig:
        """Returns the brokers and librdkafka's options. Raises `SettingError` if no brokers are set."""
        from lakefold_log.client.admin import KafkaConfig

        return KafkaConfig(self.brokers(), self.kafka, self.author)

    def apply_umask(self) -> None:
        """Sets the umask of this process if the setting has a value."""
        if self.umask is not None:
            os.umask(int(self.umask, 8))

    def topics(self) -> Topics:
        """Returns the names of the three topics. Raises `InvalidError` if two of them are the same."""
        from lakefold_log.client.topic_names import Topics

        return Topics(self.transactions_topic, self.outcomes_topic, self.dead_letters_topic)

    def address_of(self, table: str) -> TableAddress:
        """Returns the address of a table by the name that a user gives it. Raises `InvalidError`."""
        from lakefold_table.uri import canonical
        from lakefold_table.versions.table_address import TableAddress

        return TableAddress(canonical(table), self.storage_options)

    def in_force(self) -> Settings:
        """Returns these settings with the brokers that are used if no setting names any."""
        try:
            return self.model_copy(update={"bootstrap_servers": self.brokers()})
        except SettingError:
            return self

    def printable(self) -> dict[str, object]:
        """Returns the settings as plain values for people and JSON, with every secret masked."""
        plain: dict[str, object] = self.model_dump(mode="json")
        for name in TABLES:
            plain[name] = {key: _masked(key, value) for key, value in getattr(self, name).items()}
        plain["roots"] = list(self.printable_roots())
        plain["console_token"] = _masked("console_token", self.console_token)
        plain["bootstrap_servers"] = _masked("", self.bootstrap_servers)
        return plain

    def printable_roots(self) -> Iterator[str]:
        """Yields the roots without logins in their URIs."""
        return (_masked("", root) for root in self.roots)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Returns the masked values, which `repr` and `str` show."""
        return list(self.printable().items())


def read_settings(flags: Mapping[str, object], config: Path | None = None) -> Settings:
    """Returns the settings from `flags` (by setting name), the environment, and the TOML file `config`.

    The first of them that has a setting wins. Raises `SettingError` if a value is wrong, a name is unknown or
    the file can't be read.
    """
    sources = [(_flag_name, dict(flags)), (_variable, _from_environment())]
    if config is not None:
        sources.append((lambda name: f"{config}: {name}", _from_file(config)))
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, named in sources:
        for name, value in named.items():
            if name in TABLES:
                values[name] = _options(value, origin(name)) | values.get(name, {})
                origins[name] = f"{origins[name]}, {origin(name)}" if name in origins else origin(name)
            elif name not in values:
                values[name], origins[name] = value, origin(name)
    try:
        return Settings(**values)
    except ValidationError as error:
        raise _setting_error(error, origins) from None


def _setting_error(error: ValidationError, origins: Mapping[str, str]) -> SettingError:
    """Returns an error about the first wrong setting, with its value unless that may be a secret."""
    wrong = error.errors(include_url=False)[0]
    name = str(wrong["loc"][0])
    where = origins.get(name, name)
    if wrong["type"] == "extra_forbidden":
        names = ", ".join(Settings.model_fields)
        return SettingError(f"there is no setting {name}", where=where, hint=f"the settings are: {names}")
    reason = wrong["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if wrong["type"] == "string_pattern_mismatch":
        reason = "a topic's name consists of letters, digits, '.', '_' and '-', 249 at most"
    # The messages of our own validators quote the value already.
    quoted = name in TABLES or wrong["type"] == "value_error"
    value = "" if quoted else f", not {_masked('', str(wrong['input']))!r}"
    return SettingError(f"{name}: {reason}{value}", where=where, hint=_describe(name))


def _describe(name: str) -> str:
    return f"{name}: {Settings.model_fields[name].description}"


def _flag_name(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _variable(name: str) -> str:
    return f"environment variable {PREFIX}{name.upper()}"


def variable_of(setting: str, option: str) -> str:
    """Returns the environment variable of an option of `kafka` or `storage_options`."""
    return f"{PREFIX}{setting}__{option.replace(TABLES[setting], '_')}".upper()


def _from_environment() -> dict[str, object]:
    """Returns the settings that environment variables name. An empty variable counts as not set."""
    variables = {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}
    named: dict[str, object] = {}
    for name in Settings.model_fields:
        variable = PREFIX + name.upper()
        if value := variables.get(variable):
            named[name] = value
        if name in TABLES and (single := dict(_single_options(variables, f"{variable}__", TABLES[name]))):
            named[name] = _options(named.get(name, {}), _variable(name)) | single
    return named


def _single_options(variables: Mapping[str, str], prefix: str, joint: str) -> Iterator[tuple[str, str]]:
    for variable, value in variables.items():
        if variable.startswith(prefix):
            yield variable.removeprefix(prefix).lower().replace("_", joint), value


def _from_file(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(_content(path).decode())
    except OSError as error:
        message = f"the settings file can't be read: {error.strerror}"
        raise SettingError(message, where=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"the settings file is not TOML: {error}"
        raise SettingError(message, where=str(path)) from error


def _content(path: Path) -> bytes:
    """Returns the bytes of a settings file.

    Raises `SettingError` for a device or a pipe, which may have no end.
    """

    def opened(name: str, flags: int) -> int:
        # Without this flag, opening a pipe without a writer would wait.
        return os.open(name, flags | os.O_NONBLOCK)

    with open(path, "rb", opener=opened) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            hint = "write the settings to a regular file and name that"
            raise SettingError("the settings file is not a regular file", where=str(path), hint=hint)
        data = file.read(MOST_FILE_BYTES + 1)
    if len(data) > MOST_FILE_BYTES:
        message = f"the settings file is larger than {MOST_FILE_BYTES:,} bytes"
        raise SettingError(message, where=str(path), hint="name a TOML file of settings")
    return data


def _options(value: object, where: str) -> dict[str, str]:
    """Returns a table of options, read from a mapping, a JSON object, or the `key=value` texts of flags."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            message, hint = "not a JSON object", 'write {"option": "value", …}'
            raise SettingError(message, where=where, hint=hint) from None
    if isinstance(value, list | tuple):
        pairs = [str(text).partition("=") for text in value]
        if not all(key.strip() and equals for key, equals, _ in pairs):
            message = "an option must be written as KEY=VALUE"
            raise SettingError(message, where=where)
        return {key.strip(): text for key, _, text in pairs}
    if not isinstance(value, dict):
        message = "not a table of options"
        raise SettingError(message, where=where)
    return dict(_flat(value))


def _flat(table: Mapping[str, object], above: str = "") -> Iterator[tuple[str, str]]:
    """Yields options as texts.

    TOML reads `security.protocol = …` as a table in a table; this joins the names.
    """
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", str(value).lower() if isinstance(value, bool) else str(value)


def _range(text: str, first: int, last: int) -> range:
    """Returns the partitions of the range `text`. Raises ValueError if it is empty or too long."""
    if last < first:
        raise ValueError(f"{text!r} ends before it begins")
    if last - first >= MOST_PARTITIONS:
        raise ValueError(f"{text!r} has more than {MOST_PARTITIONS:,} partitions")
    return range(first, last + 1)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _parts(text: str) -> list[object]:
    """Returns the items of a text that is a JSON list or is separated by commas."""
    if not text.lstrip().startswith("["):
        return [*_words(text)]
    try:
        return list(json.loads(text))
    except ValueError:
        message = "it begins with [ and is not a JSON list"
        raise ValueError(message) from None


def _masked(key: str, value: str) -> str:
    """Returns `MASK` if the option's name suggests a secret, else the value without a login inside a URI."""
    return MASK if _SECRET.search(key) and value else _LOGIN_IN_URI.sub(MASK, value)


class BrokerOptions(TypedDict, total=False):
    """Options of functions that use the log; all may be left out.

    The brokers, topics, `kafka` (librdkafka's options) and `storage_options` (pylance's) come from
    `LAKEFOLD_…` variables if they aren't given, else from the TOML file `config`. If neither names brokers,
    those of `lakefold up` are used. `timeout`: seconds to wait for an outcome, or an answer of the brokers.
    """

    bootstrap_servers: str
    transactions_topic: str
    outcomes_topic: str
    kafka: Mapping[str, str]
    storage_options: Mapping[str, str]
    config: Path
    timeout: float
