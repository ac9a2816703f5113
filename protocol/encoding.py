"""Generates the source of an encoder: one function that appends one version of one message to a list of
parts.

Parts are appended, never joined, so that records travel from where they lie to the socket without a copy.
Fixed-width neighbours, and the length byte behind them, are one precompiled struct. Where the rest of a
struct is usually empty (no record errors, no message, no tags) one comparison chooses a single pack for all
of it.
"""

from __future__ import annotations

from struct import pack
from typing import Any

from protocol.schema import FIXED, NO_VERSIONS, ZERO_UUID, Field, Schema, schema_of
from protocol.source import Source
from protocol.varint import ONE_BYTE, write_unsigned

_NAMES: dict[str, Any] = {
    "ONE_BYTE": ONE_BYTE,
    "ZERO_UUID": ZERO_UUID,
    "pack": pack,
    "write_unsigned": write_unsigned,
    # Local names of every encoder, here so that no field takes them.
    "message": None,
    "parts": None,
}


def encoder_source(cls: type[Any], version: int) -> Source:
    """The source of `encode(message, parts)` for this version."""
    schema = schema_of(cls)
    return _Encoder(schema, version).generate()


class _Encoder:
    """Walks a message class and writes what writes it. Owned by: the thread that generates it."""

    def __init__(self, schema: Schema, version: int) -> None:
        self.schema = schema
        self.version = version
        self.is_flexible = schema.flexible.has(version)
        self.source = Source(_NAMES)
        self.run: list[tuple[str, str]] = []
        self.parts = "parts"

    def generate(self) -> Source:
        with self.source.block("def encode(message, parts):"):
            self.fields(self.schema.fields, "message")
            self.flush()
            if len(self.source.lines) == 1:
                self.source.line("pass")
        return self.source

    def append(self, expression: str) -> None:
        self.source.line(f"{self.parts}.append({expression})")

    def take(self, letters: str, expression: str) -> None:
        self.run.append((letters, expression))

    def flush(self) -> None:
        """Write the append of all fixed-width values gathered since the last one."""
        if self.run:
            self.append(self.packed(self.run))
            self.run = []

    def packed(self, run: list[tuple[str, str]]) -> str:
        letters = "".join(part for part, _ in run)
        if all(value.lstrip("-").isdigit() for _, value in run):
            return repr(pack(">" + letters, *(int(value) for _, value in run)))
        return f"{self.source.packer(letters)}({', '.join(value for _, value in run)})"

    def fields(self, fields: tuple[Field, ...], owner: str) -> None:
        """Write a struct's fields, the tagged ones last."""
        present = [field for field in fields if field.versions.has(self.version)]
        plain = [field for field in present if field.tag is None]
        tagged = sorted(
            (field for field in present if field.tag is not None), key=lambda field: field.tag or 0
        )
        rest = self.empty_rest(plain)
        for field in plain[:rest]:
            self.value(field, f"{owner}.{field.name}", field.name)
        conditions = [
            _is_filled(field, owner)
            for field in (*plain[rest:], *tagged)
            if not field.is_fixed or field.tag is not None
        ]
        if len(conditions) < 2:
            self.rest(plain[rest:], tagged, owner)
            return
        before = list(self.run)
        with self.source.block(f"if {' or '.join(conditions)}:"):
            self.rest(plain[rest:], tagged, owner)
            self.flush()
        with self.source.block("else:"):
            self.run = before
            for field in plain[rest:]:
                self.empty(field, owner)
            if self.is_flexible:
                self.take("B", "0")
            self.flush()

    def rest(self, plain: list[Field], tagged: list[Field], owner: str) -> None:
        for field in plain:
            self.value(field, f"{owner}.{field.name}", field.name)
        if tagged:
            self.tags(tagged, owner)
        elif self.is_flexible:
            self.take("B", "0")

    def empty_rest(self, plain: list[Field]) -> int:
        """The index from which on every field is of fixed width or may be empty."""
        index = len(plain)
        while index and (plain[index - 1].is_fixed or self.may_be_empty(plain[index - 1])):
            index -= 1
        return index

    def may_be_empty(self, field: Field) -> bool:
        return field.kind == "array" or (field.default is None and field.nullable.has(self.version))

    def empty(self, field: Field, owner: str) -> None:
        """Write a field that is known to be empty as a constant."""
        expression = f"{owner}.{field.name}"
        if field.is_fixed:
            self.value(field, expression, field.name)
        elif field.kind == "array":
            zero, null = (1, 0) if self.is_flexible else (0, -1)
            is_nullable = field.nullable.has(self.version)
            count = f"{null} if {expression} is None else {zero}" if is_nullable else str(zero)
            self.take("B" if self.is_flexible else "i", count)
        elif field.kind == "struct":
            self.take("b", "-1")
        elif self.is_flexible:
            self.take("B", "0")
        else:
            self.take("h" if field.kind == "string" else "i", "-1")

    def value(self, field: Field, expression: str, name: str) -> None:
        if field.is_fixed:
            self.take(FIXED[field.kind].format, f"{expression}.bytes" if field.kind == "uuid" else expression)
        elif field.kind == "array":
            self.array(field, expression, name)
        elif field.kind == "struct":
            self.struct(field, expression, name)
        else:
            self.slice(field, expression, name)

    def length(self, field: Field, length: str) -> None:
        """Write a length or count, together with the fixed-width values before it."""
        if not self.is_flexible:
            self.take("h" if field.kind == "string" else "i", length)
            self.flush()
        elif not self.run:
            self.append(f"ONE_BYTE[{length}] if {length} < 128 else write_unsigned({length})")
        else:
            run, self.run = self.run, []
            with self.source.block(f"if {length} < 128:"):
                self.append(self.packed([*run, ("B", length)]))
            with self.source.block("else:"):
                self.append(self.packed(run))
                self.append(f"write_unsigned({length})")

    def measured(self, field: Field, raw: str, length: str) -> None:
        """Turn `raw` into bytes and set its length as it stands on the wire; a null becomes no bytes."""
        source, more = self.source, " + 1" if self.is_flexible else ""
        if field.nullable.has(self.version):
            with source.block(f"if {raw} is None:"):
                source.line(f'{raw} = b""')
                source.line(f"{length} = {0 if self.is_flexible else -1}")
            if field.kind == "records":
                with source.block(f"elif isinstance({raw}, (list, tuple)):"):
                    source.line(f"{length} = sum(map(len, {raw})){more}")
            with source.block("else:"):
                if field.kind == "string":
                    source.line(f"{raw} = {raw}.encode()")
                source.line(f"{length} = len({raw}){more}")
        else:
            source.line(f"{length} = len({raw}){more}")

    def slice(self, field: Field, expression: str, name: str) -> None:
        """Write a string, bytes or records."""
        raw, length = self.source.fresh(name), self.source.fresh(f"{name}_length")
        is_nullable = field.nullable.has(self.version)
        encoded = field.kind == "string" and not is_nullable
        self.source.line(f"{raw} = {expression}{'.encode()' if encoded else ''}")
        self.measured(field, raw, length)
        self.length(field, length)
        if field.kind == "records":
            with self.source.block(f"if isinstance({raw}, (list, tuple)):"):
                self.source.line(f"{self.parts} += {raw}")
            with self.source.block(f"elif {raw}:"):
                self.append(raw)
        else:
            with self.source.block(f"if {raw}:"):
                self.append(raw)

    def array(self, field: Field, expression: str, name: str) -> None:
        element = field.element
        assert element is not None
        items, count = self.source.fresh(name), self.source.fresh(f"{name}_count")
        self.source.line(f"{items} = {expression}")
        more = " + 1" if self.is_flexible else ""
        if field.nullable.has(self.version):
            with self.source.block(f"if {items} is None:"):
                self.source.line(f"{items} = ()")
                self.source.line(f"{count} = {0 if self.is_flexible else -1}")
            with self.source.block("else:"):
                self.source.line(f"{count} = len({items}){more}")
        else:
            self.source.line(f"{count} = len({items}){more}")
        self.length(field, count)
        if element.is_fixed and element.kind != "uuid":
            with self.source.block(f"if {items}:"):
                self.append(f'pack(f">{{len({items})}}{FIXED[element.kind].format}", *{items})')
            return
        item = self.source.fresh(f"{name}_item")
        with self.source.block(f"for {item} in {items}:"):
            self.value(element, item, item)
            self.flush()

    def struct(self, field: Field, expression: str, name: str) -> None:
        assert field.struct is not None
        fields = schema_of(field.struct).fields
        if not field.nullable.has(self.version):
            self.fields(fields, expression)
            return
        self.flush()
        owner = self.source.fresh(name)
        self.source.line(f"{owner} = {expression}")
        with self.source.block(f"if {owner} is None:"):
            self.append(repr(b"\xff" if field.tag is None else b"\x00"))
        with self.source.block("else:"):
            self.take("b", "1")
            self.fields(fields, owner)
            self.flush()

    def tags(self, tagged: list[Field], owner: str) -> None:
        """Write the tagged fields that differ from their defaults, each first in parts of its own."""
        self.flush()
        source, outer = self.source, self.parts
        count, all_tags = source.fresh("tag_count"), source.fresh("tags")
        with source.block(f"if {' or '.join(_is_filled(field, owner) for field in tagged)}:"):
            source.line(f"{count} = 0")
            source.line(f"{all_tags} = []")
            for field in tagged:
                with source.block(f"if {_is_filled(field, owner)}:"):
                    self.parts = source.fresh(f"{field.name}_parts")
                    source.line(f"{count} += 1")
                    source.line(f"{self.parts} = []")
                    self.value(field, f"{owner}.{field.name}", field.name)
                    self.flush()
                    source.line(f"{all_tags}.append(write_unsigned({field.tag}))")
                    source.line(f"{all_tags}.append(write_unsigned(sum(map(len, {self.parts}))))")
                    source.line(f"{all_tags} += {self.parts}")
            self.parts = outer
            self.append(f"write_unsigned({count})")
            source.line(f"{self.parts} += {all_tags}")
        with source.block("else:"):
            self.append(repr(ONE_BYTE[0]))


def _is_filled(field: Field, owner: str) -> str:
    """The condition under which a field that may be empty is not."""
    expression = f"{owner}.{field.name}"
    if field.kind == "struct" and field.tag is not None and field.nullable != NO_VERSIONS:
        return "True"  # the default is a struct of defaults: null has to be said
    if (field.kind == "array" and field.default is not None) or (
        field.kind == "bool" and field.default is False
    ):
        return expression
    if field.kind == "array" and field.tag is None:
        return expression
    if field.default is None:
        return f"{expression} is not None"
    return f"{expression} != {'ZERO_UUID' if field.kind == 'uuid' else repr(field.default)}"
