"""Generates the source of a decoder: one function that reads one version of one message, loops and all.

The position only ever moves forward and slices never raise, so strings and records need no check of their
own: whatever ran past the end is noticed by the next fixed read or by the comparison at the very end. Only
an array's count is checked at once, because elements are built before the end is reached: the rest of the
bytes must be able to hold it, and the caller says how many elements a message may have in all. Fixed-width
neighbours, and the length byte behind them, are one precompiled struct.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from struct import calcsize, unpack_from
from struct import error as struct_error
from typing import Any
from uuid import UUID

from protocol.errors import MalformedFrame, NotText
from protocol.schema import FIXED, ZERO_UUID, Field, Schema, schema_of
from protocol.source import Source, minimal_bytes
from protocol.varint import read_rest, read_unsigned

CACHED_UUIDS = 4096


@lru_cache(maxsize=CACHED_UUIDS)
def uuid_of(raw: bytes) -> UUID:
    """Making a UUID costs a microsecond and a broker sees few topics, so they are remembered."""
    return UUID(bytes=raw)


LONGEST_REPLACED_BYTES = 32767 // 3
"""strings of old versions have 32767 bytes at most, and answers name what was asked for"""


def skip_tags(data: bytes, position: int, count: int, elements: int) -> tuple[int, int]:
    """The position behind `count` tagged fields that nobody here knows (`count`: its first byte), and how
    many of `elements` are left.
    """
    if count > 127:
        count, position = read_rest(data, position, count)
    elements = charge(count, elements)
    for _ in range(count):
        _, position = read_unsigned(data, position)
        length, position = read_unsigned(data, position)
        position += length
    return position, elements


def charge(count: int, elements: int) -> int:
    """What is left of the `elements` that a message may have, after `count` tagged fields."""
    if count > elements:
        raise MalformedFrame(f"{count} tagged fields, {elements} are allowed")
    return elements - count


def text_of(data: bytes) -> str:
    """What bytes say that may be no UTF-8. As Java has it, but that in what is very long a "?" stands for
    what cannot be read, which takes no more room: U+FFFD takes three bytes.
    """
    text = data.decode(errors="replace")
    if len(data) <= LONGEST_REPLACED_BYTES:
        return text
    return text.replace("\N{REPLACEMENT CHARACTER}", "?")


_NAMES: dict[str, Any] = {
    "IndexError": IndexError,
    "MalformedFrame": MalformedFrame,
    "NotText": NotText,
    "UnicodeDecodeError": UnicodeDecodeError,
    "ZERO_UUID": ZERO_UUID,
    "charge": charge,
    "read_rest": read_rest,
    "read_unsigned": read_unsigned,
    "skip_tags": skip_tags,
    "struct_error": struct_error,
    "text_of": text_of,
    "unpack_from": unpack_from,
    "uuid_of": uuid_of,
    # Local names of every decoder, here so that no field takes them.
    "data": None,
    "elements": None,
    "end": None,
    "length": None,
    "message": None,
    "position": None,
    "size": None,
    "tag": None,
    "view": None,
}


def decoder_source(cls: type[Any], version: int, *, is_lenient: bool = False) -> Source:
    """The source of `decode(data, position, elements) -> message` for this version.

    `elements` is how many all arrays may have together. A lenient one puts U+FFFD where a string is not
    UTF-8, as Java's `String` does; others raise `NotText` then, and are faster.
    """
    schema = schema_of(cls)
    return _Decoder(schema, version, is_lenient).generate(cls)


class _Decoder:
    """Walks a message class and writes what reads it. Owned by: the thread that generates it."""

    def __init__(self, schema: Schema, version: int, is_lenient: bool) -> None:
        self.schema = schema
        self.version = version
        self.is_lenient = is_lenient
        self.is_flexible = schema.flexible.has(version)
        self.source = Source(_NAMES)
        self.run: list[tuple[str, str]] = []

    def generate(self, cls: type[Any]) -> Source:
        source, title = self.source, f"{self.schema.name} v{self.version}"
        with source.block("def decode(data, position, elements):"):
            source.line("size = len(data)")
            source.line("view = memoryview(data)")
            with source.block("try:"):
                values = self.fields(self.schema.fields)
                self.flush()
                source.line(f"message = {self.construct(cls, values)}")
            with source.block("except (struct_error, IndexError):"):
                source.line(f'raise MalformedFrame("{title} ends too early") from None')
            with source.block("except UnicodeDecodeError:"):
                source.line(f'raise NotText("{title} has a string that is not UTF-8") from None')
            # Kafka overlooks what follows a message, and must: librdkafka's Metadata v9+ for all topics has a
            # null array of four bytes instead of one, so that three bytes are left over.
            is_wrong = "position != size" if self.schema.kind == "data" else "position > size"
            with source.block(f"if {is_wrong}:"):
                source.line(f'raise MalformedFrame(f"{title} takes {{position}} bytes of {{size}}")')
            source.line("return message")
        if not any("view[" in line for line in source.lines):
            source.lines.remove("    view = memoryview(data)")
        return source

    def construct(self, cls: type[Any], values: list[str]) -> str:
        path = cls.__qualname__.rpartition("<locals>.")[2].replace(".", "_")
        return f"{self.source.constant(path, cls)}({', '.join(values)})"

    def fields(self, fields: tuple[Field, ...]) -> list[str]:
        """Read a struct's fields; return an expression for each declared one, in order."""
        values = {}
        for field in fields:
            if field.tag is not None or not field.versions.has(self.version):
                values[field.name] = _default(field)
            else:
                values[field.name] = self.value(field, field.name)
        if self.is_flexible:
            known = [field for field in fields if field.tag is not None and field.versions.has(self.version)]
            self.tags(known, values)
        return [values[field.name] for field in fields]

    def value(self, field: Field, name: str) -> str:
        if field.is_fixed:
            target = self.source.fresh(name)
            self.take(FIXED[field.kind].format, target)
            return f"uuid_of({target})" if field.kind == "uuid" else target
        if field.kind == "array":
            return self.array(field, name)
        if field.kind == "struct":
            return self.struct(field, name)
        return self.slice(field, name)

    def take(self, letters: str, target: str) -> None:
        self.run.append((letters, target))

    def flush(self) -> None:
        """Write the read of all fixed-width values gathered since the last one."""
        if not self.run:
            return
        letters = "".join(part for part, _ in self.run)
        targets = [target for _, target in self.run]
        self.run.clear()
        if letters == "B":
            self.source.line(f"{targets[0]} = data[position]")
        else:
            comma = "," if len(targets) == 1 else ""
            self.source.line(f"{', '.join(targets)}{comma} = {self.source.unpacker(letters)}(data, position)")
        self.source.line(f"position += {calcsize('>' + letters)}")

    def length(self, field: Field, name: str) -> str:
        """Read a length or count; 0 (flexible) or -1 is returned only where null is allowed."""
        length = self.source.fresh(name)
        is_nullable = field.nullable.has(self.version)
        refusal = (
            f'raise MalformedFrame("{field.name or name} of {self.schema.name} v{self.version} is null")'
        )
        if self.is_flexible:
            self.take("B", length)
            self.flush()
            with self.source.block(f"if {length} > 127:"):
                self.source.line(f"{length}, position = read_rest(data, position, {length})")
            if not is_nullable:
                with self.source.block(f"elif not {length}:"):
                    self.source.line(refusal)
            return length
        self.take("h" if field.kind == "string" else "i", length)
        self.flush()
        with self.source.block(f"if {length} < {-1 if is_nullable else 0}:"):
            self.source.line(refusal)
        return length

    def slice(self, field: Field, name: str) -> str:
        """Read a string, bytes or records."""
        target = self.source.fresh(name)
        length = self.length(field, f"{name}_length")
        strict = "data[position:end].decode()"
        read = {
            "string": f"{target} = {'text_of(data[position:end])' if self.is_lenient else strict}",
            "bytes": f"{target} = data[position:end]",
            "records": f"{target} = view[position:end]",
        }[field.kind]
        with self.unless_null(field, target, length):
            self.source.line(f"end = position + {length}{' - 1' if self.is_flexible else ''}")
            self.source.line(read)
            self.source.line("position = end")
        return target

    def unless_null(self, field: Field, target: str, length: str) -> AbstractContextManager[None]:
        """The block that reads `target` where it may be null; no block where it may not."""
        if not field.nullable.has(self.version):
            return nullcontext()
        with self.source.block(f"if {length} {'== 0' if self.is_flexible else '< 0'}:"):
            self.source.line(f"{target} = None")
        return self.source.block("else:")

    def array(self, field: Field, name: str) -> str:
        element = field.element
        assert element is not None
        target = self.source.fresh(name)
        count = self.length(field, f"{name}_count")
        width = minimal_bytes(element, self.version, self.is_flexible)
        assert width > 0, f"{field.name}: an element without bytes has no bounded count"
        with self.unless_null(field, target, count):
            if self.is_flexible:
                self.source.line(f"{count} -= 1")
            with self.source.block(f"if {count} * {width} > size - position or {count} > elements:"):
                self.source.line(
                    f'raise MalformedFrame(f"{name} of {self.schema.name} v{self.version}: '
                    f'{{{count}}} elements in {{size - position}} bytes, {{elements}} are allowed")'
                )
            self.source.line(f"elements -= {count}")
            self.elements(element, name, target, count)
        return target

    def elements(self, element: Field, name: str, target: str, count: str) -> None:
        if element.is_fixed and element.kind != "uuid":
            fixed = FIXED[element.kind]
            letters = f'f">{{{count}}}{fixed.format}"'
            self.source.line(f"{target} = list(unpack_from({letters}, data, position))")
            self.source.line(f"position += {count} * {fixed.width_bytes}")
            return
        self.source.line(f"{target} = []")
        with self.source.block(f"for _ in range({count}):"):
            value = self.value(element, f"{name}_item")
            self.flush()
            self.source.line(f"{target}.append({value})")

    def struct(self, field: Field, name: str) -> str:
        cls = field.struct
        assert cls is not None
        fields = schema_of(cls).fields
        if not field.nullable.has(self.version):
            return self.construct(cls, self.fields(fields))
        target, marker = self.source.fresh(name), self.source.fresh(f"{name}_marker")
        self.take("b", marker)
        self.flush()
        with self.source.block(f"if {marker} {'<' if field.tag is None else '<='} 0:"):
            self.source.line(f"{target} = None")
        with self.source.block("else:"):
            values = self.fields(fields)
            self.flush()
            self.source.line(f"{target} = {self.construct(cls, values)}")
        return target

    def tags(self, known: list[Field], values: dict[str, str]) -> None:
        """Read the tagged fields: known ones into their variables, all others skipped."""
        count = self.source.fresh("tags")
        self.take("B", count)
        self.flush()
        for field in known:
            values[field.name] = self.source.fresh(field.name)
            self.source.line(f"{values[field.name]} = {_default(field)}")
        with self.source.block(f"if {count}:"):
            if not known:
                self.source.line(f"position, elements = skip_tags(data, position, {count}, elements)")
                return
            with self.source.block(f"if {count} > 127:"):
                self.source.line(f"{count}, position = read_rest(data, position, {count})")
            self.source.line(f"elements = charge({count}, elements)")
            with self.source.block(f"for _ in range({count}):"):
                self.source.line("tag, position = read_unsigned(data, position)")
                self.source.line("length, position = read_unsigned(data, position)")
                end = self.source.fresh("tag_end")
                self.source.line(f"{end} = position + length")
                for number, field in enumerate(known):
                    with self.source.block(f"{'elif' if number else 'if'} tag == {field.tag}:"):
                        value = self.value(field, field.name)
                        self.flush()
                        self.source.line(f"{values[field.name]} = {value}")
                        with self.source.block(f"if position != {end}:"):
                            self.source.line(f'raise MalformedFrame("tag {field.tag} has a wrong length")')
                with self.source.block("else:"):
                    self.source.line(f"position = {end}")


def _default(field: Field) -> str:
    """The expression for a field that the bytes do not hold."""
    if field.kind == "array" and field.default is not None:
        return "[]"
    return "ZERO_UUID" if field.kind == "uuid" else repr(field.default)
