"""Settings of a process: read once from `holdfast.toml`, the environment and the command line, in this order of rank.

    holdfast.toml      port = 8787            the weakest
    environment        HOLDFAST_PORT=8787
    command line       --port 8787            the strongest

Rules
- All faults are found before any is reported, and each says where it is and what is allowed there.
- A name that is not known is a fault of the file: a setting that is silently ignored is worse than an error.
- Neither an API key nor a password in a URL is ever part of a message.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import urlsplit

from msgspec import Struct

from holdfast.errors import InvalidConfig, UsageError
from holdfast.kernel import keys, leases, limits, units
from holdfast.kernel.rates import Rate

FILE = "holdfast.toml"
PREFIX = "HOLDFAST_"
REDIS_SCHEMES = tuple(
    f"{server}{kind}" for server in ("redis", "rediss", "valkey", "valkeys") for kind in ("", "+cluster", "+sentinel")
)
SCHEMES = ("sqlite", "http", "https", *REDIS_SCHEMES)
BUS_SCHEMES = ("nats", "tls")
ROLES = ("gateway", "worker", "scheduler")
PROCESSES_MAX = 512
PATIENCE = "100ms"  # with a store that counts limits
# Up to the last @ of all, since people forget to escape what a password holds; of several URLs the last host is shown.
# A file has no password, and may have an @ in its name.
_CREDENTIALS = re.compile(r"(?<=//)(?<!///)(?<!sqlite://).*@", re.DOTALL)


class RateLimitSettings(Struct, frozen=True, kw_only=True):
    """What is limited; nothing that is left out. `proxies` are networks whose `X-Forwarded-For` is believed.

    A store that takes longer than `patience` to count is away: then each replica limits by itself.
    """

    api_key: Rate | None = None
    tenant: Rate | None = None
    start: Rate | None = None
    address: Rate | None = None
    proxies: tuple[str, ...] = ()
    patience: units.Duration = PATIENCE

    @property
    def by_name(self) -> dict[str, Rate]:
        """Those that there are."""
        named = {"address": self.address, "api_key": self.api_key, "tenant": self.tenant, "start": self.start}
        return {name: rate for name, rate in named.items() if rate is not None}


class Config(Struct, frozen=True, kw_only=True):
    """What a process is told about its surroundings."""

    url: str = "sqlite:///holdfast.db"
    bus: str | None = None
    api_key: str | None = None
    namespace: str = "default"
    packs: tuple[str, ...] = ()
    queues: tuple[str, ...] | None = None
    concurrency: int = 200
    lease: str = "30s"
    record_inputs: bool = False
    busy_limit: str = "2s"
    seal: str | None = None
    host: str = "127.0.0.1"
    port: int = 8787
    require_keys: bool | None = None
    roles: tuple[str, ...] = ("gateway",)
    processes: int | Literal["auto"] = 1
    prove_required: bool = False
    limits_api_key: Rate | None = None
    limits_tenant: Rate | None = None
    limits_start: Rate | None = None
    limits_address: Rate | None = None
    limits_proxies: tuple[str, ...] = ()
    limits_patience: str = PATIENCE

    @property
    def is_gateway(self) -> bool:
        """Whether the URL names a gateway, and not a store."""
        return urlsplit(self.url).scheme in {"http", "https"}

    @property
    def rate_limits(self) -> RateLimitSettings:
        """What a gateway limits."""
        return RateLimitSettings(
            api_key=self.limits_api_key,
            tenant=self.limits_tenant,
            start=self.limits_start,
            address=self.limits_address,
            proxies=self.limits_proxies,
            patience=self.limits_patience,
        )

    @property
    def url_shown(self) -> str:
        """The URL without a password that it may hold."""
        return shown(self.url)

    def __repr__(self) -> str:
        return f"Config(url={self.url_shown!r}, namespace={self.namespace!r})"


def shown(url: str) -> str:
    """A URL, or several, without the users and passwords that they may hold."""
    return _CREDENTIALS.sub("", url)


class Fault(NamedTuple):
    """A setting that cannot work."""

    where: str
    what: str
    allowed: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; allowed: {self.allowed}"


def _url(value: object) -> str:
    text = _text(value)
    if urlsplit(text).scheme not in SCHEMES:
        raise ValueError
    return text


def _bus(value: object) -> str:
    text = _text(value)
    if urlsplit(text).scheme not in BUS_SCHEMES:
        raise ValueError
    return text


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return value.strip()


def _namespace(value: object) -> str:
    return keys.checked(_text(value), what="namespace")


def _names(value: object) -> tuple[str, ...]:
    items = value.replace(",", " ").split() if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise ValueError
    return tuple(_text(item) for item in cast("list[object]", items))


def roles(value: object) -> tuple[str, ...]:
    """The roles that are named, in the order of `ROLES`."""
    named = _names(value)
    if not named or set(named) - set(ROLES):
        raise InvalidConfig(f"{value!r:.60} are no roles", hint=f"Use one or more of {', '.join(ROLES)}.")
    return tuple(role for role in ROLES if role in named)


def processes(value: object) -> int | Literal["auto"]:
    """How many processes are wanted."""
    if value == "auto":
        return "auto"
    try:
        return _whole_number(1, PROCESSES_MAX)(value)
    except ValueError:
        raise InvalidConfig(
            f"{value!r:.60} is no number of processes", hint=f"Use 1 to {PROCESSES_MAX}, or auto: one for each core."
        ) from None


def _whole_number(low: int, high: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError
        if not low <= (number := int(value)) <= high:
            raise ValueError
        return number

    return read


def _lease(value: object) -> str:
    leases.checked_ttl(units.milliseconds(cast("units.Duration", value)))
    return value if isinstance(value, str) else f"{value}s"


def _duration(value: object) -> str:
    units.milliseconds(cast("units.Duration", value))
    return value if isinstance(value, str) else f"{value}s"


def _limit(value: object) -> Rate:
    return limits.parse(_text(value))


def _networks(value: object) -> tuple[str, ...]:
    return tuple(str(ipaddress.ip_network(name)) for name in _names(value))


def _patience(value: object) -> str:
    text = _duration(value)
    if units.milliseconds(text) < 1:
        raise ValueError
    return text


def _truth(value: object) -> bool:
    words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or value.lower() not in words:
        raise ValueError
    return words[value.lower()]


class Setting(NamedTuple):
    """One setting: what it means, what is allowed, and how a value is read."""

    name: str
    what: str
    allowed: str
    read: Callable[[object], Any]

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()


SETTINGS = (
    Setting(
        "url",
        "The store, or the gateway, to talk to.",
        "sqlite:///file.db, redis://host:port (rediss, valkey, valkeys; with +cluster or +sentinel) or http(s)://host:port",
        _url,
    ),
    Setting(
        "bus",
        "What carries notices between processes. Unset: the store itself does.",
        "nats://host:port, several separated by commas",
        _bus,
    ),
    Setting("api_key", "The API key for a gateway.", "the token that `holdfast keys create` printed", _text),
    Setting("namespace", "Whose runs are meant. At a gateway the API key decides.", "text", _namespace),
    Setting("packs", "The modules whose packs are loaded.", "names such as shop.orders or shop.orders:pack", _names),
    Setting("queues", "The queues that a worker serves; all if unset.", "names of queues", _names),
    Setting(
        "concurrency",
        "How many runs and effects are at work in one process.",
        "1 to 100000",
        _whole_number(1, 100_000),
    ),
    Setting("lease", "How long the work of a dead process waits for another one.", "a duration from 200ms on", _lease),
    Setting(
        "record_inputs",
        "Whether the arguments of effects are recorded, where a workflow does not say.",
        "true or false",
        _truth,
    ),
    Setting(
        "busy_limit",
        "How long a workflow may compute without an await, before it is interrupted and its run is blocked. 0s: never.",
        "a duration, such as 500ms, or 0s",
        _duration,
    ),
    Setting("seal", "What encrypts payloads at rest: an object of a module.", "a name such as shop.keys:ring", _text),
    Setting("host", "The address that is listened on.", "a name or an address", _text),
    Setting("port", "The port that is listened on; 0 takes a free one.", "0 to 65535", _whole_number(0, 65_535)),
    Setting(
        "require_keys",
        "Whether requests need an API key. Unset: only on addresses that others can reach.",
        "true or false",
        _truth,
    ),
    Setting(
        "roles",
        "What `holdfast serve` does: answer requests, execute runs, attend to what one process does for all.",
        f"one or more of {', '.join(ROLES)}",
        roles,
    ),
    Setting(
        "processes",
        "How many processes `holdfast serve` and `holdfast worker` consist of, each a replica of its own.",
        f"1 to {PROCESSES_MAX}, or auto: one for each core that may be used",
        processes,
    ),
    Setting(
        "prove_required",
        "Whether `holdfast serve` and `holdfast worker` refuse to execute runs without fresh evidence of "
        "`holdfast prove`. In the file: `required` in the table `[prove]`.",
        "true or false",
        _truth,
    ),
    *(
        Setting(
            f"limits_{name}",
            f"How many requests a gateway lets through {whom}. Unset: any number. In the file: `{name}` in the table "
            "`[limits]`.",
            limits.FORMS,
            _limit,
        )
        for name, whom in (
            ("api_key", "for each API key"),
            ("tenant", "for each namespace, whatever API key they show"),
            ("start", "that start a run, for each namespace"),
            ("address", "from each address, before their API key is looked at; each process counts for itself"),
        )
    ),
    Setting(
        "limits_proxies",
        "The proxies whose `X-Forwarded-For` says from which address a request comes. In the file: `proxies` in the "
        "table `[limits]`.",
        "networks or addresses, such as 10.0.0.0/8",
        _networks,
    ),
    Setting(
        "limits_patience",
        "How long the store may take to count, before each replica limits by itself. In the file: `patience` in the "
        "table `[limits]`.",
        "a duration from 1ms on",
        _patience,
    ),
)
_BY_NAME = {setting.name: setting for setting in SETTINGS}


def read(*, file: Path | None, environment: Mapping[str, str], options: Mapping[str, object]) -> Config:
    """The settings; raises `InvalidConfig` with all faults. Options that are None were not given.

    Without a `file`, `holdfast.toml` in the current directory is read if there is one.
    """
    faults: list[Fault] = []
    values: dict[str, Any] = {}
    for name, (where, value) in (_from_file(file, faults) | _from(environment) | _given(options)).items():
        setting = _BY_NAME[name]
        try:
            values[name] = setting.read(value)
        except (ValueError, UsageError):
            what = "it" if name == "api_key" else f"{shown(repr(value)):.60}"
            faults.append(Fault(where, f"{what} does not fit", setting.allowed))
    if faults:
        raise InvalidConfig(
            "the settings cannot work:\n" + "\n".join(f"  {fault}" for fault in faults) + "\n",
            hint="`holdfast doctor` checks them again.",
        )
    return Config(**values)


Found = dict[str, tuple[str, object]]


def _from_file(file: Path | None, faults: list[Fault]) -> Found:
    path = file or Path(FILE)
    if file is None and not path.is_file():
        return {}
    import tomllib  # noqa: PLC0415 - only a process with a settings file needs it

    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        faults.append(Fault(str(path), f"it cannot be read ({error.strerror})", "a readable file"))
        return {}
    except ValueError as error:  # TOML that is none, or no UTF-8
        faults.append(Fault(str(path), str(error), "TOML: name = value"))
        return {}
    table = _flat(table)
    known = ", ".join(_BY_NAME)
    faults += [Fault(f"{path}: {name}", "no setting has this name", known) for name in table if name not in _BY_NAME]
    return {name: (f"{path}: {name}", value) for name, value in table.items() if name in _BY_NAME}


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """What is in a table of the file belongs to the setting of both names: `[prove] required` is `prove_required`."""
    flat: dict[str, Any] = {}
    for name, value in table.items():
        is_table = isinstance(value, dict) and any(known.startswith(f"{name}_") for known in _BY_NAME)
        inner = cast("dict[str, Any]", value) if is_table else {}
        flat.update({f"{name}_{each}": what for each, what in inner.items()} if is_table else {name: value})
    return flat


def _from(environment: Mapping[str, str]) -> Found:
    return {
        setting.name: (setting.variable, environment[setting.variable])
        for setting in SETTINGS
        if environment.get(setting.variable)
    }


def _given(options: Mapping[str, object]) -> Found:
    return {
        name: (f"--{name.replace('_', '-')}", value)
        for name, value in options.items()
        if value is not None and value != []
    }
