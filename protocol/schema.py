"""How a message is declared: a class in wire order whose fields say type, versions, nullability, tag and
default.

    @request(key=12, versions="0-4", flexible="4+")
    class HeartbeatRequest:
        group_id: str = string()
        group_instance_id: str | None = string("3+", nullable="3+", default=None)

One class serves all versions of a message, nested classes are its structs, version strings are Kafka's own.
The decorators make plain slotted dataclasses: to a type checker and at run time every field has a default,
so that a caller names only what matters. The codecs are generated from `Schema` on first use
(`codegen.py`). A field that a version does not know is left out when written and has its default when read.
A tagged struct that is absent is None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from inspect import get_annotations
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast, dataclass_transform, overload
from uuid import UUID

Buffer = bytes | bytearray | memoryview
Message = TypeVar("Message")
Element = TypeVar("Element")

ZERO_UUID = UUID(int=0)
NEVER = 0x7FFF

if TYPE_CHECKING:

    class Records:
        """Record batches: a view of the frame when read, bytes or consecutive parts when written."""

        def __get__(self, instance: object, owner: type[Any]) -> memoryview | None: ...
        def __set__(self, instance: object, value: Buffer | Sequence[Buffer] | None) -> None: ...

else:
    Records = memoryview


class Versions(NamedTuple):
    """An inclusive range of versions; empty when `lowest` is above `highest`."""

    lowest: int
    highest: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Read Kafka's notation: `3`, `3-5`, `3+`, `none`."""
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return cls(int(text[:-1]), NEVER)
        lowest, _, highest = text.partition("-")
        return cls(int(lowest), int(highest or lowest))

    def has(self, version: int) -> bool:
        return self.lowest <= version <= self.highest

    def __str__(self) -> str:
        if self.lowest > self.highest:
            return "none"
        if self.highest == NEVER:
            return f"{self.lowest}+"
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest}-{self.highest}"


NO_VERSIONS = Versions(NEVER, NEVER - 1)
ALL_VERSIONS = Versions(0, NEVER)


class Fixed(NamedTuple):
    """A type of fixed width: its letters in a struct format and its bytes on the wire."""

    format: str
    width_bytes: int


FIXED = {
    "int8": Fixed("b", 1),
    "int16": Fixed("h", 2),
    "uint16": Fixed("H", 2),
    "int32": Fixed("i", 4),
    "int64": Fixed("q", 8),
    "float64": Fixed("d", 8),
    "bool": Fixed("?", 1),
    "uuid": Fixed("16s", 16),
}


@dataclass(slots=True)
class Field:
    """One declared field; `kind` is Kafka's type name, or `array` of `element`, or `struct` of `struct`."""

    kind: str
    versions: Versions
    nullable: Versions
    default: Any
    tag: int | None = None
    element: Field | None = None
    struct: type[Any] | None = None
    name: str = ""

    @property
    def is_fixed(self) -> bool:
        return self.kind in FIXED


@dataclass(slots=True)
class Schema:
    """What the generator and the framing know of a message class.

    `flexible_header_from` is the first version whose *header* carries tagged fields: that of the body, but
    never for ApiVersions responses, which a client must read before it knows the broker's versions
    (KIP-511).
    """

    name: str
    kind: str
    key: int
    versions: Versions
    advertised: Versions
    flexible: Versions
    fields: tuple[Field, ...]
    flexible_header_from: int
    decoders: dict[int, Callable[..., Any]] = field(default_factory=dict)
    lenient_decoders: dict[int, Callable[..., Any]] = field(default_factory=dict)
    encoders: dict[int, Callable[..., None]] = field(default_factory=dict)


class ApiSpec(NamedTuple):
    """One API: a request, its response, the versions declared, and the lowest one that ApiVersions shows."""

    key: int
    name: str
    request: type[Any]
    response: type[Any]
    min_version: int
    max_version: int
    advertised_min_version: int


registry: dict[int, ApiSpec] = {}
_halves: dict[int, tuple[str, type[Any]]] = {}


def schema_of(cls: type[Any]) -> Schema:
    return cast(Schema, cls.__schema__)


def _field(kind: str, versions: str, default: Any, tag: int | None = None, nullable: str = "none") -> Any:
    return Field(kind, Versions.parse(versions), Versions.parse(nullable), default, tag)


def int8(versions: str = "0+", *, tag: int | None = None, default: int = 0) -> int:
    return cast(int, _field("int8", versions, default, tag))


def int16(versions: str = "0+", *, tag: int | None = None, default: int = 0) -> int:
    return cast(int, _field("int16", versions, default, tag))


def uint16(versions: str = "0+", *, tag: int | None = None, default: int = 0) -> int:
    return cast(int, _field("uint16", versions, default, tag))


def int32(versions: str = "0+", *, tag: int | None = None, default: int = 0) -> int:
    return cast(int, _field("int32", versions, default, tag))


def int64(versions: str = "0+", *, tag: int | None = None, default: int = 0) -> int:
    return cast(int, _field("int64", versions, default, tag))


def float64(versions: str = "0+", *, tag: int | None = None, default: float = 0.0) -> float:
    return cast(float, _field("float64", versions, default, tag))


def boolean(versions: str = "0+", *, tag: int | None = None, default: bool = False) -> bool:
    return cast(bool, _field("bool", versions, default, tag))


def uuid(versions: str = "0+", *, tag: int | None = None, default: UUID = ZERO_UUID) -> UUID:
    return cast(UUID, _field("uuid", versions, default, tag))


@overload
def string(versions: str = "0+", *, tag: int | None = None, default: str = "") -> str: ...
@overload
def string(
    versions: str = "0+", *, nullable: str, tag: int | None = None, default: str | None = ""
) -> str | None: ...
def string(
    versions: str = "0+", *, nullable: str = "none", tag: int | None = None, default: str | None = ""
) -> str | None:
    return cast(str, _field("string", versions, default, tag, nullable))


@overload
def binary(versions: str = "0+", *, tag: int | None = None, default: bytes = b"") -> bytes: ...
@overload
def binary(
    versions: str = "0+", *, nullable: str, tag: int | None = None, default: bytes | None = b""
) -> bytes | None: ...
def binary(
    versions: str = "0+", *, nullable: str = "none", tag: int | None = None, default: bytes | None = b""
) -> bytes | None:
    return cast(bytes, _field("bytes", versions, default, tag, nullable))


def records(versions: str = "0+", *, nullable: str = "0+") -> Records:
    return cast("Records", _field("records", versions, None, None, nullable))


@overload
def array(
    element: Callable[..., Element], versions: str = "0+", *, tag: int | None = None
) -> list[Element]: ...
@overload
def array(
    element: Callable[..., Element],
    versions: str = "0+",
    *,
    nullable: str,
    tag: int | None = None,
    default: None,
) -> list[Element] | None: ...
@overload
def array(
    element: Callable[..., Element], versions: str = "0+", *, nullable: str, tag: int | None = None
) -> list[Element] | None: ...
def array(
    element: Callable[..., Element],
    versions: str = "0+",
    *,
    nullable: str = "none",
    tag: int | None = None,
    default: list[Element] | None = (),  # type: ignore[assignment]
) -> list[Element] | None:
    """Elements are a struct class or one of the field functions above: `array(Topic)`, `array(int32)`."""
    made = _field("array", versions, default, tag, nullable)
    made.element = _struct_field(element) if isinstance(element, type) else element()
    return cast(list[Element], made)


def optional(
    struct_class: type[Element], versions: str = "0+", *, nullable: str = "none", tag: int | None = None
) -> Element | None:
    """A struct that may be absent: nullable, or tagged (where upstream calls the absence its default)."""
    made = _struct_field(struct_class)
    made.versions, made.nullable, made.tag = Versions.parse(versions), Versions.parse(nullable), tag
    return cast(Element, made)


def _struct_field(struct_class: type[Any]) -> Field:
    return Field("struct", ALL_VERSIONS, NO_VERSIONS, None, struct=struct_class)


class _FieldsLater:
    """`__dataclass_fields__` of a class that is none yet."""

    def __get__(self, message: Any, cls: type[Any]) -> Any:
        _complete(cls)
        return cls.__dataclass_fields__


def _message_class(cls: type[Any]) -> tuple[type[Any], tuple[Field, ...]]:
    """A slotted dataclass of the declared fields, and what they declared.

    It is completed when somebody makes a message of it, or asks for its fields: to write the code of each of
    the many classes, of which few are needed, took a third of every start.
    """
    fields = []
    for name in get_annotations(cls):
        declared = cls.__dict__[name]
        declared.name = name
        fields.append(declared)
    names = tuple(one.name for one in fields)
    kept = {name: value for name, value in vars(cls).items() if name not in (*names, *_OF_EVERY_CLASS)}
    later = {"__init__": _first_init, "__dataclass_fields__": _FIELDS_LATER}
    compared = {"__eq__": _is_equal, "__repr__": _shown, "__hash__": None}
    named = {"__qualname__": cls.__qualname__, "__slots__": names}
    return type(cls.__name__, (), {**kept, **named, **later, **compared}), tuple(fields)


def _first_init(self: Any, *values: Any, **named: Any) -> None:
    """`__init__` until there is one."""
    _complete(self.__class__)
    self.__init__(*values, **named)


def _complete(cls: type[Any]) -> None:
    """Give a message class what only dataclasses write, by way of one with the same fields."""
    defaults = {
        one.name: field(default_factory=list) if one.default == () else one.default
        for one in schema_of(cls).fields
    }
    named = {"__qualname__": cls.__qualname__, "__module__": cls.__module__, "__doc__": cls.__name__}
    annotations = {"__annotations__": dict.fromkeys(defaults, object)}
    template: Any = type(cls.__name__, (), {**defaults, **named, **annotations})
    template = dataclass(eq=False, repr=False, match_args=False)(template)
    cls.__init__ = template.__init__
    cls.__dataclass_fields__ = template.__dataclass_fields__


def _is_equal(self: Any, other: Any) -> bool:
    """`==` of two messages: of the same class, with equal fields."""
    return other.__class__ is self.__class__ and all(
        getattr(self, name) == getattr(other, name) for name in self.__slots__
    )


def _shown(self: Any) -> str:
    """`repr` of a message, as dataclasses have it."""
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
    return f"{self.__class__.__qualname__}({values})"


_FIELDS_LATER = _FieldsLater()
_OF_EVERY_CLASS = ("__dict__", "__weakref__")


def _message(kind: str, key: int, versions: str, flexible: str, advertised: str | None) -> Any:
    def decorate(cls: type[Any]) -> type[Any]:
        made, fields = _message_class(cls)
        declared, flexible_range = Versions.parse(versions), Versions.parse(flexible)
        header_from = NEVER if (kind, key) == ("response", 18) else flexible_range.lowest
        shown = Versions.parse(advertised or versions)
        made.__schema__ = Schema(
            made.__name__, kind, key, declared, shown, flexible_range, fields, header_from
        )
        if kind in ("request", "response"):
            _pair(made, kind, key)
        return made

    return decorate


def _pair(cls: type[Any], kind: str, key: int) -> None:
    """Enter the API into the registry when both its halves are declared; they agree on name and versions."""
    other = _halves.pop(key, None)
    if other is None:
        assert key not in registry, f"API key {key} is declared twice"
        _halves[key] = (kind, cls)
        return
    halves = {kind: cls, other[0]: other[1]}
    request_schema, response_schema = schema_of(halves["request"]), schema_of(halves["response"])
    name = request_schema.name.removesuffix("Request")
    assert response_schema.name == f"{name}Response", f"API key {key}: {name} and {response_schema.name}"
    assert request_schema.versions == response_schema.versions, (
        f"{name}: request and response differ in versions"
    )
    registry[key] = ApiSpec(
        key,
        name,
        halves["request"],
        halves["response"],
        *request_schema.versions,
        advertised_min_version=request_schema.advertised.lowest,
    )


@dataclass_transform(kw_only_default=True)
def request(
    *, key: int, versions: str, flexible: str, advertised: str | None = None
) -> Callable[[type[Message]], type[Message]]:
    """A request. `advertised` is what ApiVersions shows when that is more than what is served (G2)."""
    return cast(
        Callable[[type[Message]], type[Message]], _message("request", key, versions, flexible, advertised)
    )


@dataclass_transform(kw_only_default=True)
def response(*, key: int, versions: str, flexible: str) -> Callable[[type[Message]], type[Message]]:
    return cast(Callable[[type[Message]], type[Message]], _message("response", key, versions, flexible, None))


@dataclass_transform(kw_only_default=True)
def data(*, versions: str, flexible: str = "none") -> Callable[[type[Message]], type[Message]]:
    """A message that stands alone: the key or value of a record that the broker writes for itself."""
    return cast(Callable[[type[Message]], type[Message]], _message("data", -1, versions, flexible, None))


@dataclass_transform(kw_only_default=True)
def struct(cls: type[Message]) -> type[Message]:
    """A part of a message, nested in its class. Its versions are those of the field that holds it."""
    made, fields = _message_class(cls)
    made.__schema__ = Schema(
        made.__name__, "struct", -1, ALL_VERSIONS, ALL_VERSIONS, NO_VERSIONS, fields, NEVER
    )
    return made
