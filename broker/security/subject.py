"""The subject of a client's certificate as text, letter for letter as Java has it. Pure.

Rules (ACLs), quotas and `ssl.principal.mapping.rules` of an Apache Kafka are about this text, which is that
of `X500Principal.getName()`: RFC 2253, the last part first. Mirrors `toRFC2253String` of the JDK's
`sun.security.x509.AVA`: a type without a keyword there is its OID, and then its value is the DER in hex.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_VERSION = 0xA0
_BEFORE_SUBJECT = 4
"""serial number, algorithm, issuer, validity"""
_TEXTS = (12, 19, 20, 22, 27, 30)
"""the tags of strings: UTF8, Printable, T61, IA5, General, BMP. Java takes the bytes of each for UTF-8"""
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
"""what is half a sign of UTF-16 is one wrong sign to Java, and several to Python"""
_ESCAPED = re.compile(r'([,=+<>#;"\\])')
_OUTER_BLANKS = re.compile(r"^[ \r]+|[ \r]+\Z")


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate in DER: CN=alice,OU=data,O=acme. ValueError where it is none."""
    for _, whole in _elements(certificate):
        for _, signed in _elements(whole):
            fields = [held for tag, held in _elements(signed) if tag != _VERSION]
            if len(fields) > _BEFORE_SUBJECT:
                return name_text(fields[_BEFORE_SUBJECT])
            break
    raise ValueError("a certificate without a subject")


def name_text(name: bytes) -> str:
    """The text of a name: the parts that its DER holds. ValueError."""
    parts = ["+".join(_pair(pair) for _, pair in _elements(part)) for _, part in _elements(name)]
    return ",".join(reversed(parts))


def _pair(pair: bytes) -> str:
    (_, kind), (tag, value) = _elements(pair)
    oid = _oid(kind)
    if oid not in KEYWORDS or tag not in _TEXTS:
        return f"{KEYWORDS.get(oid, oid)}=#{_encoded(tag, value).hex()}"
    text = _SURROGATE.sub(b"\xff", value).decode("utf-8", "replace")
    text = _ESCAPED.sub(r"\\\1", text).replace("\0", r"\00")
    return f"{KEYWORDS[oid]}={_OUTER_BLANKS.sub(_each_escaped, text)}"


def _each_escaped(blanks: re.Match[str]) -> str:
    return "".join(f"\\{blank}" for blank in blanks[0])


def _encoded(tag: int, value: bytes) -> bytes:
    """In DER, whatever way its size was written."""
    size = len(value)
    if size < 0x80:
        return bytes([tag, size]) + value
    count = (size.bit_length() + 7) // 8
    return bytes([tag, 0x80 | count]) + size.to_bytes(count, "big") + value


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and contents of each element. ValueError."""
    position = 0
    while position < len(data):
        head = data[position : position + 2]
        if len(head) < 2:
            raise ValueError("an element of a certificate is cut off")
        tag, size = head
        position += 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[position : position + count], "big")
            position += count
        end = position + size
        if end > len(data):
            raise ValueError("an element of a certificate is cut off")
        yield tag, data[position:end]
        position = end


def _oid(data: bytes) -> str:
    numbers, number = [], 0
    for byte in data:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2) if numbers else 0
    return ".".join(map(str, [first, *(numbers[:1] and [numbers[0] - 40 * first]), *numbers[1:]]))
