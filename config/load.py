"""Where the broker's settings come from: defaults < properties file < environment < flags.

Environment names are those of Kafka's container images: `KAFKA_LOG_RETENTION_MS` is `log.retention.ms`, a
double underscore is an underscore, a triple one a dash; `KAFKA_CFG_LOG_RETENTION_MS`, as Bitnami's images
spell it, is the same, unless both are set. Variables that only start a JVM, or tell where a service is, are
not settings.
"""

from __future__ import annotations

import codecs
import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from config.broker import BrokerConfig, broker_rows, canonical_last
from config.definition import ConfigError, by_any_name
from config.listeners import address_text, parse_address

PREFIX = "KAFKA_"
BITNAMIS_PREFIX = "KAFKA_CFG_"
NOT_SETTINGS = re.compile(
    r"KAFKA_(HEAP_OPTS|OPTS|JVM_PERFORMANCE_OPTS|GC_LOG_OPTS|DEBUG|DEBUG_.*|JMX_.*|LOG4J_.*|TOOLS_.*|"
    r"CLASSPATH|HOME|VERSION|USER|DATA_DIRS?|(KRAFT_)?CLUSTER_ID|ENABLE_KRAFT|CFG_|SERVICE_HOST|"
    r"SERVICE_PORT.*|PORT|PORT_\d+_.*|BOOTSTRAP.*|GROUP)"
)
"""what images, service links and clients put beside the settings"""
_OF_A_SERVICE = re.compile(
    r"KAFKA_.+_(SERVICE_HOST|SERVICE_PORT|SERVICE_PORT_.+|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://.*")
"""what the likes of KAFKA_UI_PORT hold, which beside a service `kafka-ui` every pod of Kubernetes has"""

_BLANKS = " \t\f"
_LINE_ENDS = re.compile("\r\n|\r|\n")
_SEPARATORS = {"_": ".", "__": "_", "___": "-"}


def environment_key(name: str) -> str:
    """The key that an environment variable sets."""
    words = name.removeprefix(BITNAMIS_PREFIX).removeprefix(PREFIX).lower()
    return re.sub("_{1,3}", lambda match: _SEPARATORS[match[0]], words)


def read_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings among the environment's variables."""
    return {key: environment[name] for key, name in _variables(environment).items()}


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that are settings, by their keys."""
    last_wins = sorted(environment.items(), key=lambda item: not item[0].startswith(BITNAMIS_PREFIX))
    return {
        environment_key(name): name
        for name, text in last_wins
        if name.startswith(PREFIX)
        and len(name) > len(PREFIX)
        and not NOT_SETTINGS.fullmatch(name)
        and not _is_of_a_service(name, text)
    }


def _is_of_a_service(name: str, text: str) -> bool:
    """Whether Kubernetes (or a link of Docker) tells here where another service is."""
    if _OF_A_SERVICE.fullmatch(name):
        return True
    return name.endswith("_PORT") and _SERVICE_ADDRESS.fullmatch(text) is not None


def read_properties(text: str) -> dict[str, str]:
    """The settings of a file as `java.util.Properties` reads it: comments, `=` `:` or blank as separator,
    lines continued by a backslash at their very end, escapes. Left out are blanks at the end of a value,
    which Kafka trims later, and what has no name. ConfigError that names the line where Java would refuse the
    file.
    """
    settings: dict[str, str] = {}
    for number, line in _logical_lines(text):
        match = re.fullmatch(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", line)
        assert match is not None, line
        try:
            settings[_unescape(match[1])] = _unescape(match[2]).rstrip(_BLANKS)
        except ValueError as problem:
            raise ConfigError(f"line {number}: {problem}: {line}") from None
    settings.pop("", None)
    return settings


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that say something, with those that continue them, and the number of each one's first. Blanks at
    the start of any do not count; no other control character ends a line, or is blank.
    """
    begin, whole = 0, ""
    for number, natural in enumerate(_LINE_ENDS.split(text), 1):
        line = natural.lstrip(_BLANKS)
        if not whole:
            if not line or line[0] in "#!":
                continue
            begin = number
        whole += line
        if len(line) - len(line.rstrip("\\")) & 1:
            whole = whole[:-1]
        elif whole:
            yield begin, whole
            whole = ""
    if whole:
        yield begin, whole


def _unescape(text: str) -> str:
    """ValueError, in Java's words, where a \\u is not followed by four hexadecimal digits."""
    controls = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

    def character(match: re.Match[str]) -> str:
        if match[1].startswith("u") and len(match[1]) == 5:
            return chr(int(match[1][1:], 16))
        if match[1] == "u":
            raise ValueError(r"Malformed \uxxxx encoding")
        return controls.get(match[1], match[1])

    return re.sub(r"\\(u[0-9A-Fa-f]{4}|.)", character, text)


def parse_assignment(text: str) -> tuple[str, str]:
    """Key and value of one `--set KEY=VALUE`."""
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise ConfigError(f"Invalid setting {text}: Expected KEY=VALUE")
    return name.strip(), value


def load(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    port: int | None = None,
    http_port: int | None = None,
    data: Sequence[str] = (),
) -> BrokerConfig:
    """The broker's configuration; ConfigError with one line for every setting that is wrong."""
    merged: dict[str, str] = {}
    sources: dict[str, str] = {}
    rows = by_any_name(broker_rows())

    def override(settings: Mapping[str, str], source: Callable[[str], str] = lambda name: "") -> None:
        for name, text in canonical_last(settings, rows):
            row = rows.get(name)
            for other in (row.name, *row.aliases) if row is not None else ():
                merged.pop(other, None)  # a later source wins, whichever of a key's names it uses
            merged[name], sources[name] = text, source(name)

    if file is not None:
        text = _text_of(file)
        try:
            override(read_properties(text), lambda name: f" (in {file})")
        except ConfigError as error:
            raise ConfigError(f"Cannot read {file}, {error.message}") from None
    variables = _variables(environment or {})
    override(read_environment(environment or {}), lambda name: f" ({variables[name]} in the environment)")
    override(settings or {})
    if data:
        for directory in data:
            _check_directory(directory)
        override({"log.dirs": ",".join(data)})
    if http_port is not None:
        override({"http.port": str(http_port)})
    if port is not None:
        listeners = merged.get("listeners", broker_rows()["listeners"].default[0])
        with contextlib.suppress(ConfigError):  # told below, with all the others
            override({"listeners": _with_port(listeners, port)})
    try:
        return BrokerConfig.parse(merged)
    except ConfigError as error:
        parts = [ConfigError(f"{one.message}{sources.get(one.key, '')}", one.key) for one in error.parts]
        raise ConfigError.together(parts) from None


def _text_of(file: Path) -> str:
    """A file is UTF-8; one that is not is Latin-1, as Java reads every file of properties. ConfigError where
    it can be neither: UTF-16, which Windows calls Unicode.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"Cannot read {file}: {error}") from None
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ConfigError(f"Cannot read {file}: it is UTF-16; save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _check_directory(name: str) -> None:
    """ConfigError where the list `log.dirs` would have it otherwise than it was given."""
    problem = "No name of a directory in log.dirs has a comma: name each with a --data of its own"
    if "," not in name:
        problem = "No name of a directory in log.dirs has blanks at its ends"
    if "," in name or name != name.strip():
        raise ConfigError(f"Invalid value {name} for --data: {problem}")


def _with_port(listeners: str, port: int) -> str:
    """The listeners with the first one's port replaced."""
    first, *others = [text.strip() for text in listeners.split(",")]
    name, host, _ = parse_address(first, "listeners")
    return ",".join([f"{name}://{address_text(host, port)}", *others])
