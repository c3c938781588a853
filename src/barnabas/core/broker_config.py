"""A broker's configuration: where its values come from, and which one counts.

Static values rise from a `.properties` file over the environment to `--set key=value`, and stay as they are. Dynamic
ones, for this broker or for all, lie above them and change while the broker runs: `set_dynamic` replaces them and tells
which values have changed. The event loop owns the object; whoever keeps it reads the current value as `config["name"]`.

A variable of the environment is named after its key: `log.retention.ms` is `BARNABAS_LOG_RETENTION_MS`, and keys that
begin with `barnabas.` do not repeat it: `barnabas.metrics.port` is `BARNABAS_METRICS_PORT`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.core import properties
from barnabas.core.broker_keys import BROKER_KEYS
from barnabas.core.config import (
    Candidate,
    ConfigEntry,
    ConfigError,
    ConfigSource,
    ConfigType,
    Layer,
    UpdateMode,
    Value,
)
from barnabas.core.listeners import Endpoint, check_advertised, check_ports, parse_endpoints, parse_protocol_map

ENVIRONMENT_PREFIX = "BARNABAS_"
OTHER_VARIABLES = (  # how those begin that name no key
    "BARNABAS_BOOTSTRAP_SERVER",
    "BARNABAS_CONTEXT",
    "BARNABAS_PURE",
    "BARNABAS_TEST_",
)
_LISTENER_PREFIX = "listener.name."


class BrokerConfig:
    """All values of one broker. `warnings` tells, one line each, which keys were accepted without effect."""

    __slots__ = (
        "_dynamic",
        "_dynamic_default",
        "_origins",
        "_static",
        "_values",
        "advertised",
        "inter_broker_listener",
        "listeners",
        "warnings",
    )

    def __init__(self, static: Mapping[str, str], origins: Mapping[str, str] | None = None) -> None:
        """`static` maps keys to texts; `origins` says where each was read, for errors: 'server.properties:12'."""
        self._origins = dict(origins or {})
        self._static = dict(static)
        self._dynamic: dict[str, str] = {}
        self._dynamic_default: dict[str, str] = {}
        self.warnings: list[str] = []
        for name, text in self._static.items():
            where = f"{self._origins[name]}: " if name in self._origins else ""
            try:
                warning = _check(name, text)
            except ConfigError as error:
                raise ConfigError(where + error.message) from None
            if warning:
                self.warnings.append(where + warning)
        self._values = self._resolve()
        self.listeners, self.advertised = self._endpoints()
        self.inter_broker_listener = self._inter_broker_listener()
        self._check_together()

    @classmethod
    def load(
        cls,
        file: tuple[str, bytes] | None = None,
        environment: Mapping[str, str] | None = None,
        settings: Iterable[str] = (),
    ) -> BrokerConfig:
        """From a file (its name and content), the environment, and `key=value` texts of the command line."""
        static: dict[str, str] = {}
        origins: dict[str, str] = {}
        repeated = []
        if file is not None:
            try:
                found = properties.parse_bytes(file[1], file[0])
            except properties.PropertiesError as error:
                raise ConfigError(str(error)) from None
            for name, value, line in found:
                if name in static:
                    repeated.append(f"{file[0]}:{line}: '{name}' is given again; this value counts")
                static[name] = value
                origins[name] = f"{file[0]}:{line}"
        for variable, value in sorted((environment or {}).items()):
            if variable.startswith(ENVIRONMENT_PREFIX) and not variable.startswith(OTHER_VARIABLES):
                name = _key_of(variable)
                static[name], origins[name] = value, f"environment variable {variable}"
        for setting in settings:
            name, equals, value = setting.partition("=")
            if not equals:
                raise ConfigError(f"--set {setting}: a setting is written key=value")
            static[name.strip()], origins[name.strip()] = value, f"--set {name.strip()}"
        config = cls(static, origins)
        config.warnings[:0] = repeated
        return config

    def __getitem__(self, name: str) -> Value:
        """The value that counts now, parsed, with synonyms and defaults behind it; KeyError for what is no key."""
        return self._values[name]

    def get(self, name: str, default: Value = None) -> Value:
        value = self._values.get(name)
        return default if value is None else value

    def is_chosen(self, name: str) -> bool:
        """Whether somebody has set the key for this broker, be it to its default."""
        return name in self._static or name in self._dynamic or name in self._dynamic_default

    @property
    def node_id(self) -> int:
        node_id: int = self._values["node.id"]
        return node_id

    @property
    def log_dirs(self) -> tuple[str, ...]:
        directories: tuple[str, ...] = self._values["log.dirs"]
        return directories

    def check_dynamic(self, name: str, text: str, *, for_all_brokers: bool) -> str | None:
        """Accept a value that is to be set while brokers run, or raise ConfigError; a warning if it has no effect."""
        warning = _check(name, text)
        if warning is None:
            mode = BROKER_KEYS[name].update
            if mode is UpdateMode.READ_ONLY:
                raise ConfigError(f"{name} cannot change while a broker runs; set it in its configuration and restart")
            if for_all_brokers and mode is not UpdateMode.CLUSTER_WIDE:
                raise ConfigError(f"{name} can only be set for one broker at a time")
        return warning

    def set_dynamic(self, this_broker: Mapping[str, str], all_brokers: Mapping[str, str]) -> frozenset[str]:
        """Replace both dynamic layers, or neither; the names of the keys whose value is now another one."""
        before, layers = self._values, (self._dynamic, self._dynamic_default)
        self._dynamic, self._dynamic_default = dict(this_broker), dict(all_brokers)
        try:
            self._values = self._resolve()
        except ConfigError:
            self._dynamic, self._dynamic_default = layers
            raise
        return frozenset(name for name, value in self._values.items() if value != before[name])

    def origin(self, name: str) -> str | None:
        """Where a static value was read, or None if it was not set."""
        return self._origins.get(name, "configuration") if name in self._static else None

    def candidates(self, name: str) -> tuple[Candidate, ...]:
        """Every value that bears on a key, the one that counts first."""
        return tuple(BROKER_KEYS.candidates(name, self._layers()))

    def describe(self, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        """What DescribeConfigs tells about this broker; `names` narrows it, and unknown ones are passed over.

        Keys without an effect are told where they are set, with no value: it may be a password.
        """
        entries = []
        for key in BROKER_KEYS:
            candidates = self.candidates(key.name)
            own = next((candidate for candidate in candidates if candidate.name == key.name), None)
            if key.sensitive:
                candidates = tuple(candidate._replace(text="") for candidate in candidates)
            entries.append(
                ConfigEntry(
                    key.name,
                    None if own is None or key.sensitive else own.text,
                    candidates[0].source if candidates else ConfigSource.DEFAULT,
                    key.type,
                    key.doc,
                    key.update is UpdateMode.READ_ONLY,
                    key.sensitive,
                    candidates,
                )
            )
        without_effect = {name: layer.source for layer in reversed(self._layers()) for name in layer.values}
        for name, source in without_effect.items():
            if name not in BROKER_KEYS:
                reason = _reason(name) or ""
                entries.append(ConfigEntry(name, None, source, ConfigType.STRING, reason, True, True, ()))
        wanted = None if names is None else frozenset(names)
        return sorted(entry for entry in entries if wanted is None or entry.name in wanted)

    def _layers(self) -> tuple[Layer, ...]:
        return (
            Layer(ConfigSource.DYNAMIC_BROKER, self._dynamic),
            Layer(ConfigSource.DYNAMIC_DEFAULT_BROKER, self._dynamic_default),
            Layer(ConfigSource.STATIC_BROKER, self._static),
        )

    def _resolve(self) -> dict[str, Value]:
        layers = self._layers()
        return {key.name: BROKER_KEYS.resolve(key.name, layers) for key in BROKER_KEYS}

    def _endpoints(self) -> tuple[tuple[Endpoint, ...], tuple[Endpoint, ...]]:
        protocols = parse_protocol_map(self["listener.security.protocol.map"])
        closed = {name.upper() for name in self["controller.listener.names"]}

        def endpoints(key: str) -> tuple[Endpoint, ...]:
            texts = [text for text in self.get(key, ()) if text.partition(":")[0].upper() not in closed]
            return parse_endpoints(key, texts, protocols)

        listeners, advertised = endpoints("listeners"), endpoints("advertised.listeners")
        if not listeners:
            raise ConfigError("listeners is empty: a broker needs at least one to serve on")
        check_ports(listeners)
        check_advertised(advertised, listeners)
        return listeners, advertised

    def _inter_broker_listener(self) -> str:
        """The name of the listener on which a peer that claims to be a broker is believed."""
        names = [listener.name for listener in self.listeners]
        wanted = self["inter.broker.listener.name"]
        if wanted is None:
            protocol: str = self["security.inter.broker.protocol"]
            return protocol if protocol in names else names[0]
        if wanted.upper() not in names:
            raise ConfigError(
                f"inter.broker.listener.name='{wanted}' is not in listeners, which has {', '.join(names)}"
            )
        return str(wanted).upper()

    def _check_together(self) -> None:
        """What no key can tell alone."""
        if not self.log_dirs or len(set(self.log_dirs)) < len(self.log_dirs) or not all(self.log_dirs):
            raise ConfigError(f"log.dirs={','.join(self.log_dirs)}: must name one directory at least, and none twice")
        if {"node.id", "broker.id"} <= self._static.keys() and self["node.id"] != self["broker.id"]:
            numbers = f"node.id={self['node.id']} and broker.id={self['broker.id']}"
            raise ConfigError(f"{numbers} contradict each other; set only node.id")
        interval_ms, timeout_ms = self["broker.heartbeat.interval.ms"], self["broker.session.timeout.ms"]
        if interval_ms >= timeout_ms:
            raise ConfigError(f"broker.heartbeat.interval.ms={interval_ms} must be below the session's {timeout_ms}")


def _check(name: str, text: str) -> str | None:
    if name.startswith(_LISTENER_PREFIX) and _reason(name):
        return f"broker configuration key '{name}' has no effect: {_reason(name)}"
    return BROKER_KEYS.check(name, text)


def _reason(name: str) -> str | None:
    """Why a key has no effect; None if it has one, or is unknown."""
    if name.startswith(_LISTENER_PREFIX):
        # listener.name.<listener>.<key>, or with the SASL mechanism: listener.name.<listener>.<mechanism>.<key>
        parts = name.removeprefix(_LISTENER_PREFIX).split(".")
        inner = (".".join(parts[start:]) for start in (1, 2))
        if any(key in BROKER_KEYS or key in BROKER_KEYS.ignored for key in inner):
            return "settings for a single listener are not served yet"
    return BROKER_KEYS.ignored.get(name)


def _key_of(variable: str) -> str:
    """The key that an environment variable names."""
    names = {variable_of(name): name for name in (*BROKER_KEYS.keys, *BROKER_KEYS.ignored)}
    try:
        return names[variable]
    except KeyError:
        guess = variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", ".")
        raise ConfigError(f"environment variable {variable}: {BROKER_KEYS.unknown(guess)}") from None


def variable_of(name: str) -> str:
    """The environment variable that sets a key."""
    return ENVIRONMENT_PREFIX + name.removeprefix("barnabas.").upper().replace(".", "_")
