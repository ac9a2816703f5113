"""What keys and values are made into: the options `valueFormat`, `keyFormat`, `avroSchema`, `valuePrefix`,
`timeZone`.
"""

from __future__ import annotations

import json
import re
import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass

from spark_connector.errors import ConnectorError

FIELD_FORMATS = ("json", "avro")
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d\d)|:(\d))?(?::?00)?")
_SHORT_ZONES = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland", "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh", "EST": "-05:00",
    "MST": "-07:00", "HST": "-10:00",
}  # fmt: skip
"""what Spark takes beside regions and offsets: Java's `ZoneId.SHORT_IDS`"""


@dataclass(frozen=True)
class Formats:
    """`prefix` says which values begin with Confluent's five bytes: none, all, or those with a zero byte."""

    key: str = "binary"
    value: str = "binary"
    avro_schema: str = ""
    prefix: str = "none"
    time_zone: str = ""  # of times without one in JSON; empty for the session's

    @property
    def are_fields(self) -> bool:
        """Whether values become several columns."""
        return self.value in FIELD_FORMATS


AS_THEY_ARE = Formats()


def parse_formats(values: Mapping[str, str]) -> Formats:
    """From options in lower case; ConnectorError names the one that is wrong."""
    value = _one_of(values, "valueFormat", "binary", ("binary", "string", *FIELD_FORMATS))
    prefix = _one_of(values, "valuePrefix", "auto", ("auto", "confluent", "none"))
    if prefix == "auto":
        prefix = {"avro": "confluent", "json": "auto"}.get(value, "none")
    if value == "binary" and prefix != "none":
        raise ConnectorError("valuePrefix needs a valueFormat: binary values are given as they are")
    schema = values.get("avroschema", "")
    if (value == "avro") != bool(schema.strip()):
        raise ConnectorError("valueFormat=avro and avroSchema need each other")
    if schema:
        try:
            json.loads(schema)
        except ValueError as problem:
            raise ConnectorError(f"avroSchema is not JSON: {problem}") from None
    zone = values.get("timezone", "").strip()
    if zone and value != "json":
        raise ConnectorError("timeZone is for valueFormat=json: no other times come without a zone")
    return Formats(
        key=_one_of(values, "keyFormat", "binary", ("binary", "string")),
        value=value,
        avro_schema=schema,
        prefix=prefix,
        time_zone=parse_time_zone(zone, "timeZone") if zone else "",
    )


def parse_time_zone(text: str, name: str) -> str:
    """A zone as Spark's options and settings write it, in the form that Arrow knows."""
    if text in ("Z", "UT"):
        return "UTC"
    if text in _SHORT_ZONES:
        return _SHORT_ZONES[text]
    match = _OFFSET.fullmatch(text)
    if match is not None:
        return f"{match[1]}{int(match[2]):02}:{int(match[3] or match[4] or 0):02}"
    try:
        zoneinfo.ZoneInfo(text)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ConnectorError(
            f"{name} must be a region such as Europe/Berlin or an offset such as +01:00, not {text}; the "
            f"option timeZone is for times without a zone in JSON"
        ) from None
    return text


def _one_of(values: Mapping[str, str], name: str, default: str, known: tuple[str, ...]) -> str:
    text = values.get(name.lower(), default).strip().lower()
    if text not in known:
        raise ConnectorError(f"{name} must be one of {', '.join(known)}, not {text}")
    return text
