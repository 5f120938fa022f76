"""The settings: one typed model, filled from flags, the environment, a TOML file and defaults, in that order.

Every process of Lakefold is told the same things by the same names. A wrong value is an error that names the
setting and where it was said: with four places to look, the place is half of the answer.

In the environment a setting is `LAKEFOLD_` and its name in capitals. `kafka` and `storage_options` are
tables: there they are a JSON object, or one variable for each option after two underscores, which suits
a secret (`LAKEFOLD_KAFKA__SASL_PASSWORD` is `sasl.password`). Options are merged one by one over all places.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator

from lakefold.console.masking import MASK
from lakefold.errors import SettingError
from lakefold_table.errors import InvalidError
from lakefold_table.uri import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PREFIX: Final = "LAKEFOLD_"
"""What the names of all environment variables begin with."""

TABLES: Final = {"kafka": ".", "storage_options": "_"}
"""The settings that are tables of options, and what parts the words of an option's name in each."""

_SECRET = re.compile(
    r"pass|secret|token|key|credential|account|signature|sas|jaas|auth|connection", re.IGNORECASE
)
_LOGIN_IN_URI = re.compile(r"(?<=://)[^/@\s]*:[^/@\s]*(?=@)")

SHARED: Final = "shared"
"""What `partitions` says where processes share them out among each other."""

MOST_PARTITIONS: Final = 100_000
"""So many partitions a range may have; each is a thread. A topic has far fewer."""

MOST_PORT: Final = 65_535

MOST_FILE_BYTES: Final = 1024 * 1024
"""A settings file has a few hundred bytes. What is larger is another file, or a device without an end."""

_BY_ORDINAL = re.compile(r"ordinal/[1-9]\d*")

Topic = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,249}$")]


class Settings(BaseModel):
    """What a process of Lakefold is told. `read_settings` makes one; its printed form hides secrets.

    Sizes are in bytes, times in seconds. `partitions` None is all of them; as a text it is `shared` or
    `ordinal/N`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    bootstrap_servers: str = Field("", description="the brokers, as host:port,… [default: the local one]")
    kafka: dict[str, str] = Field({}, description="an option of librdkafka, handed on as it is; repeatable")
    transactions_topic: Topic = Field("lakefold.transactions", description="the topic of proposals")
    outcomes_topic: Topic = Field("lakefold.outcomes", description="the topic of outcomes")
    dead_letters_topic: Topic = Field("lakefold.dead-letters", description="the topic of refused proposals")
    topic_partitions: int = Field(1, ge=1, description="partitions of a topic that has to be created")
    topic_replication: int = Field(
        1, ge=1, le=32_767, description="replicas of a topic that has to be created"
    )
    partitions: tuple[Annotated[int, Field(ge=0)], ...] | str | None = Field(
        None,
        description="the partitions this process folds: 0,2,4-7; ordinal/N, every N-th one, beginning with "
        "its ordinal; shared, what its group gives it [default: all]",
    )
    ordinal: int | None = Field(
        None,
        ge=0,
        description="this process's number, from 0 [default: the one at the end of the host's name]",
    )
    group: str = Field(
        "lakefold", min_length=1, description="the consumer group that holds the stamped offset"
    )
    roots: tuple[str, ...] = Field(
        default_factory=lambda: (canonical(Path.cwd()),),
        min_length=1,
        description="a URI below which tables may lie; repeatable [default: the current folder]",
    )
    storage_options: dict[str, str] = Field(
        {}, description="an option of the object store, as pylance takes it; repeatable"
    )
    http_host: str = Field("0.0.0.0", description="the address that metrics and health are served on")  # noqa: S104 - probes of an orchestrator come from outside the process's host; it serves nothing else
    http_port: int = Field(8080, ge=0, le=65_535, description="the port of metrics and health; 0 = off")
    group_max_entries: int = Field(4096, ge=1, description="a group is full at so many entries")
    group_max_bytes: int = Field(4_194_304, ge=1, description="a group is full at so many bytes")
    group_max_wait: float = Field(
        0.005, ge=0, le=60, description="a group is full after so many seconds; an idle log never waits"
    )

    table_memory: int = Field(
        268_435_456,
        ge=0,
        description="bytes that tables may take which nothing waits for; the longest unused are closed",
    )

    claim_memory: int = Field(
        536_870_912,
        ge=0,
        description="bytes of memory that folding a proposal may take that is too large for a message; one "
        "that takes more is answered Invalid before it is decoded",
    )

    transaction_files: bool = Field(
        default=True,
        description="whether each version's transaction is written to a file of its own as well; Lance "
        "clients before 14 can't commit after a version without it",
    )

    @field_validator("bootstrap_servers")
    @classmethod
    def _ports_are_ports(cls, servers: str) -> str:
        """Refuse what the client would take modulo 65,536, or for another port."""
        for server in _words(servers):
            found = re.fullmatch(r".*:(\d+)", server)
            if found and not 1 <= int(found[1]) <= MOST_PORT:
                raise ValueError(f"{_masked('', server)!r} has a port that is none")
        return servers

    @field_validator("kafka")
    @classmethod
    def _brokers_are_named_once(cls, options: dict[str, str]) -> dict[str, str]:
        if not {"bootstrap.servers", "metadata.broker.list"}.isdisjoint(options):
            message = "the brokers are the setting bootstrap_servers, not an option of kafka"
            raise ValueError(message)
        return options

    @field_validator("partitions", mode="before")
    @classmethod
    def _read_partitions(cls, value: object) -> object:
        """Read `0,2,4-7`; sorted, each once. What isn't a list stays a text."""
        if not isinstance(value, str) or value == SHARED or _BY_ORDINAL.fullmatch(value):
            return value
        numbers: set[int] = set()
        for part in _words(value):
            if not (found := re.fullmatch(r"(\d+)(?:-(\d+))?", part)):
                message = (
                    f"{part!r} is neither a partition nor a range such as 4-7, nor is it ordinal/N or shared"
                )
                raise ValueError(message)
            numbers.update(_range(part, int(found[1]), int(found[2] or found[1])))
        return tuple(sorted(numbers)) or None

    @field_validator("roots", mode="before")
    @classmethod
    def _read_roots(cls, value: object) -> object:
        """Read one URI, several parted by commas, or a list, also of JSON; give their canonical forms."""
        parts = _parts(value) if isinstance(value, str) else value
        if not isinstance(parts, list | tuple):
            return value
        try:
            return tuple(canonical(str(part)) for part in parts)
        except InvalidError as error:
            raise ValueError(str(error)) from error

    def brokers(self) -> str:
        """Give the brokers' addresses: the setting's, else those of the broker that `up` started here.

        Raises `SettingError` where neither is there.
        """
        if self.bootstrap_servers:
            return self.bootstrap_servers
        from lakefold.local.home import known_broker

        local = known_broker()
        if local is not None and local.bootstrap_servers:
            return local.bootstrap_servers
        message = "no brokers are named, and `lakefold up` has started none in this folder"
        hint = f"run `lakefold up`, or set --bootstrap-servers or {PREFIX}BOOTSTRAP_SERVERS"
        raise SettingError(message, where="bootstrap_servers", hint=hint)

    def in_force(self) -> Settings:
        """Give these settings with the brokers that they lead to, where no setting names any."""
        try:
            return self.model_copy(update={"bootstrap_servers": self.brokers()})
        except SettingError:
            return self

    def printable(self) -> dict[str, object]:
        """Give the settings as plain values for people and JSON, every secret masked."""
        plain: dict[str, object] = self.model_dump(mode="json")
        for name in TABLES:
            plain[name] = {key: _masked(key, value) for key, value in getattr(self, name).items()}
        plain["roots"] = [_masked("", root) for root in self.roots]
        plain["bootstrap_servers"] = _masked("", self.bootstrap_servers)
        return plain

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Give what `repr` and `str` show: the masked form."""
        return list(self.printable().items())


def read_settings(flags: Mapping[str, object], config: Path | None = None) -> Settings:
    """Put the settings together: `flags` (by setting name), the environment, then the TOML file `config`.

    Raises `SettingError` where a value is wrong, a name is unknown or the file can't be read.
    """
    places = [(_flag_name, dict(flags)), (_variable, _from_environment())]
    if config is not None:
        places.append((lambda name: f"{config}: {name}", _from_file(config)))
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, said in places:
        for name, value in said.items():
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
    """Name the first wrong setting, its value unless it may hold a secret, and where it was said."""
    wrong = error.errors(include_url=False)[0]
    name = str(wrong["loc"][0])
    where = origins.get(name, name)
    if wrong["type"] == "extra_forbidden":
        known = ", ".join(Settings.model_fields)
        return SettingError(f"there is no setting {name}", where=where, hint=f"the settings are: {known}")
    reason = wrong["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if wrong["type"] == "string_pattern_mismatch":
        reason = "a topic's name has letters, digits, '.', '_' and '-', 249 at most"
    # Our own reasons quote what they are about.
    quoted = name in TABLES or wrong["type"] == "value_error"
    said = "" if quoted else f", not {_masked('', str(wrong['input']))!r}"
    return SettingError(f"{name}: {reason}{said}", where=where, hint=_describe(name))


def _describe(name: str) -> str:
    return f"{name}: {Settings.model_fields[name].description}"


def _flag_name(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _variable(name: str) -> str:
    return f"environment variable {PREFIX}{name.upper()}"


def variable_of(setting: str, option: str) -> str:
    """The environment variable of one option of `kafka` or `storage_options`."""
    return f"{PREFIX}{setting}__{option.replace(TABLES[setting], '_')}".upper()


def _from_environment() -> dict[str, object]:
    """Give the settings that environment variables name; an empty variable says nothing."""
    said: dict[str, object] = {}
    for name in Settings.model_fields:
        variable = PREFIX + name.upper()
        if value := os.environ.get(variable):
            said[name] = value
        if name in TABLES and (single := dict(_single_options(f"{variable}__", TABLES[name]))):
            said[name] = _options(said.get(name, {}), _variable(name)) | single
    return said


def _single_options(prefix: str, joint: str) -> Iterator[tuple[str, str]]:
    for variable, value in os.environ.items():
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
    """Returns the bytes of a settings file. A device or a pipe may have no end, so only files are read."""

    def opened(name: str, flags: int) -> int:
        # To open a pipe that nobody writes to would wait otherwise.
        return os.open(name, flags | os.O_NONBLOCK)

    with open(path, "rb", opener=opened) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            hint = "write the settings to a file, and name that"
            raise SettingError("the settings file is no regular file", where=str(path), hint=hint)
        data = file.read(MOST_FILE_BYTES + 1)
    if len(data) > MOST_FILE_BYTES:
        message = f"the settings file is larger than {MOST_FILE_BYTES:,} bytes"
        raise SettingError(message, where=str(path), hint="name a TOML file of settings")
    return data


def _options(value: object, where: str) -> dict[str, str]:
    """Read a table of options: a mapping, a JSON object, or `key=value` texts as flags give them."""
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
    """Undo TOML's reading of `security.protocol = …` as a table in a table; options are texts."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", str(value).lower() if isinstance(value, bool) else str(value)


def _range(text: str, first: int, last: int) -> range:
    """The partitions of a range, which is `text`."""
    if last < first:
        raise ValueError(f"{text!r} ends before it begins")
    if last - first >= MOST_PARTITIONS:
        raise ValueError(f"{text!r} has more than {MOST_PARTITIONS:,} partitions")
    return range(first, last + 1)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _parts(text: str) -> list[object]:
    """What a text names that begins as a JSON list, or is parted by commas."""
    if not text.lstrip().startswith("["):
        return [*_words(text)]
    try:
        return list(json.loads(text))
    except ValueError:
        message = "it begins as a JSON list and is none"
        raise ValueError(message) from None


def _masked(key: str, value: str) -> str:
    """Hide a value whose name sounds like a secret, and a login inside a URI."""
    return MASK if _SECRET.search(key) and value else _LOGIN_IN_URI.sub(MASK, value)
