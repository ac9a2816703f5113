"""Python source under construction: lines at a depth, names that do not clash and their values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any

from protocol.schema import FIXED, Field, Schema, schema_of

INDENT = "    "


class Source:
    """Collects the body of one function. Owned by: the thread that generates it."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.lines: list[str] = []
        self.namespace = dict(names)
        self.depth = 0
        self._taken = set(names)

    def line(self, text: str) -> None:
        self.lines.append(INDENT * self.depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self.depth += 1
        yield
        self.depth -= 1

    def fresh(self, name: str) -> str:
        """A variable name nobody uses yet: every read or written field of a message has its own."""
        candidate, number = name, 2
        while candidate in self._taken:
            candidate, number = f"{name}_{number}", number + 1
        self._taken.add(candidate)
        return candidate

    def constant(self, name: str, value: Any) -> str:
        """Make `value` known to the source; the same name always stands for the same value."""
        self._taken.add(name)
        self.namespace[name] = value
        return name

    def packer(self, letters: str) -> str:
        return self.constant(f"pack_{_word(letters)}", Struct(">" + letters).pack)

    def unpacker(self, letters: str) -> str:
        return self.constant(f"unpack_{_word(letters)}", Struct(">" + letters).unpack_from)

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def _word(letters: str) -> str:
    return letters.replace("?", "t")


def minimal_bytes(field: Field, version: int, is_flexible: bool) -> int:
    """The least that a value of `field` takes on the wire: what an array's count is checked with."""
    if field.is_fixed:
        return FIXED[field.kind].width_bytes
    if field.kind == "struct":
        assert field.struct is not None
        if field.nullable.has(version):
            return 1
        return minimal_struct_bytes(schema_of(field.struct), version, is_flexible)
    if is_flexible:
        return 1
    return 2 if field.kind == "string" else 4


def minimal_struct_bytes(schema: Schema, version: int, is_flexible: bool) -> int:
    plain = (field for field in schema.fields if field.tag is None and field.versions.has(version))
    return sum(minimal_bytes(field, version, is_flexible) for field in plain) + is_flexible
