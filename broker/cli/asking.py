"""What the commands have in common: how they fail, and how they ask a running broker over HTTP.

What goes wrong is one line and an exit status: 2 when no broker can be asked, or not in this way, 1 when it
refuses.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import click
from click.exceptions import Exit

if TYPE_CHECKING:
    import ssl
    from urllib.error import HTTPError

BAD_USAGE = 2
REFUSED = 1
NOT_UNDERSTOOD = 400
WHO_ASKS = 401
LINES = "application/x-ndjson"
USER_VARIABLE, PASSWORD_VARIABLE = "KOMPAKT_HTTP_USER", "KOMPAKT_HTTP_PASSWORD"
TOKEN_VARIABLE = "KOMPAKT_HTTP_TOKEN"
AUTHORITY_VARIABLE, CERTIFICATE_VARIABLE = "KOMPAKT_HTTP_CA", "KOMPAKT_HTTP_CERTIFICATE"
UNKNOWN_SIGNERS = (18, 19, 20, 21)
"""OpenSSL's numbers: a certificate that is its own signer, or whose signer is not at hand"""
NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
HTTP_VARIABLE = "KOMPAKT_HTTP"
DEFAULT_HTTP = "127.0.0.1:9644"
PORT_VARIABLE = "KAFKA_HTTP_PORT"
"""the port that the broker of a container is given, so that its commands find it in there"""

TOPIC_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
FROM_ZERO = click.IntRange(min=0)

with_topic = click.argument("topic", help="The topic.")
with_partition = click.option("--partition", type=FROM_ZERO, help="Only this partition.", metavar="N")


def default_http() -> str:
    """Where the broker of this machine is; beside a service `kafka-http` Kubernetes tells that one's address
    by the same variable, which `serve` passes over, too.
    """
    host, _, port = DEFAULT_HTTP.rpartition(":")
    told = os.environ.get(PORT_VARIABLE, "")
    return f"{host}:{port if not told or '://' in told else told}"


with_http = click.option(
    "--http",
    envvar=HTTP_VARIABLE,
    default=default_http,
    show_default=f"{HTTP_VARIABLE}, else {DEFAULT_HTTP}",
    help="Where the broker's HTTP listener is; https:// before it where it speaks TLS.",
    metavar="HOST:PORT",
)
with_key = click.argument("key", help="The key, as text unless --hex or --base64 is given.")
with_hex = click.option("--hex", "is_hex", is_flag=True, help="The key is written in hex digits.")
with_base64 = click.option("--base64", "is_base64", is_flag=True, help="The key is written in base 64.")
with_json = click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")


def fail(message: str, status: int) -> Exit:
    """Print one line; the exit to raise."""
    print(f"kompakt: {message}", file=sys.stderr)
    return Exit(status)


def topic_path(topic: str, rest: str, **query: object) -> str:
    """The path of a question about `topic`; parameters that are None are left out."""
    if not TOPIC_NAME.fullmatch(topic):
        raise fail(f"{topic!a} is no name of a topic", BAD_USAGE)
    return f"/api/topics/{quote(topic, safe='')}/{rest}{written(query)}"


def written(query: Mapping[str, object]) -> str:
    """Parameters as they follow a path; a shell's bytes are the bytes that are asked for."""
    said = given(**query)
    return f"?{urlencode(said, errors='surrogateescape')}" if said else ""


def given(**fields: object) -> dict[str, object]:
    """Those that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def encoding_of(key: str, *, is_hex: bool, is_base64: bool) -> str:
    """How a key is written, as the broker is told it."""
    if is_hex and is_base64:
        raise fail("say either --hex or --base64", BAD_USAGE)
    as_text(key, "the key", ": write it in hex digits, with --hex")
    return "hex" if is_hex else "base64" if is_base64 else "text"


def as_text(text: str, what: str, instead: str = "") -> str:
    """An argument that must be text: a shell takes any bytes, and Python smuggles them through."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise fail(f"{what} is no UTF-8{instead}", BAD_USAGE) from None
    return text


def ask(
    where: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
    refused: int = REFUSED,
) -> dict[str, Any]:
    """GET, or POST `body`; the answer. With `on_progress` it comes as lines, of which the last counts.

    `refused` is the exit status when the broker understands the question and refuses it.
    """
    import http.client  # here, because they are long to load, and `serve` has no use for them
    import urllib.error
    import urllib.request

    scheme = "https" if where.startswith("https://") else "http"
    where = where.removeprefix(f"{scheme}://").rstrip("/")
    if "@" in where:
        raise fail(
            f"--http takes HOST:PORT; a name and a password are taken from {USER_VARIABLE} and "
            f"{PASSWORD_VARIABLE}",
            BAD_USAGE,
        )
    if "/" in where or re.search(r":[^:\]]+$", where) is None:
        raise fail(f"--http takes HOST:PORT, not {where}", BAD_USAGE)
    last: dict[str, Any] = {}
    headers = {"Accept": LINES if on_progress is not None else "application/json", **_credentials()}
    data = None
    if body is not None:
        data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
    try:
        request = urllib.request.Request(f"{scheme}://{where}{path}", data, headers)
        handlers = [urllib.request.HTTPSHandler(context=_trust())] if scheme == "https" else []
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), *handlers)
        with opener.open(request) as answer:
            for line in answer if on_progress is not None else [answer.read()]:
                last = json.loads(line)
                if on_progress is not None and "bytes_done" in last:
                    on_progress(last)
    except urllib.error.HTTPError as error:
        with error:
            reason = _reason(error)
        if error.code == WHO_ASKS and not _credentials():
            reason += f" ({USER_VARIABLE} and {PASSWORD_VARIABLE}, or {TOKEN_VARIABLE}, say who asks)"
        raise fail(reason, BAD_USAGE if error.code == NOT_UNDERSTOOD else refused) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        if not last:
            why = error.reason if isinstance(error, urllib.error.URLError) else error
            raise fail(f"no broker answers at {where}: {why}{_hint(why, scheme)}", BAD_USAGE) from None
    if on_progress is not None and "partitions" not in last:  # where lines end without a word, too
        raise fail(f"the broker at {where} stopped before it was done", BAD_USAGE)
    return last


def _hint(why: object, scheme: str) -> str:
    """What may help, where one of the two speaks TLS in another way than the other."""
    import http.client
    import ssl

    if isinstance(why, ssl.SSLCertVerificationError) and why.verify_code in UNKNOWN_SIGNERS:
        return f" ({AUTHORITY_VARIABLE} names the file of who has signed it)"
    if isinstance(why, ssl.SSLError) and why.reason in NO_TLS:
        return " (it speaks no TLS: leave out https://)"
    if not isinstance(why, http.client.RemoteDisconnected):
        return ""
    if scheme == "http":
        return " (where it speaks TLS: https:// before the address)"
    return f" (where it demands a certificate: {CERTIFICATE_VARIABLE} names the file of one's own)"


def _trust() -> ssl.SSLContext:
    """Whom to believe that it is the broker, and who one is oneself; `fail` where a file is no good."""
    import ssl

    authority, own = os.environ.get(AUTHORITY_VARIABLE), os.environ.get(CERTIFICATE_VARIABLE)
    what = AUTHORITY_VARIABLE
    try:
        context = ssl.create_default_context(cafile=authority)
        if own:
            what = CERTIFICATE_VARIABLE
            context.load_cert_chain(own, password="")
    except (OSError, ValueError) as problem:
        raise fail(f"{what} has to be a file with certificates, as PEM: {problem}", BAD_USAGE) from None
    return context


def _credentials() -> dict[str, str]:
    """A name and a password for a broker with rules; not on the command line, where everybody sees them."""
    token = os.environ.get(TOKEN_VARIABLE)
    if token is not None:
        return {"Authorization": f"Bearer {token.strip()}"}
    user = os.environ.get(USER_VARIABLE)
    if not user:
        return {}
    pair = f"{user}:{os.environ.get(PASSWORD_VARIABLE, '')}"
    return {"Authorization": "Basic " + base64.b64encode(pair.encode(errors="surrogateescape")).decode()}


def _reason(error: HTTPError) -> str:
    try:
        return str(json.loads(error.read())["error"])
    except (ValueError, KeyError, TypeError):
        return f"the broker answers {error.code} {error.reason}"


def exit_if_refused(answer: Mapping[str, Any]) -> None:
    """With the status that says so when a partition has an error."""
    if any("error" in one for one in answer["partitions"]):
        raise Exit(REFUSED)


def print_json(answer: Mapping[str, Any]) -> None:
    print(json.dumps(answer, indent=2))


def milliseconds(text: str) -> int:
    """ms since 1970; a time without a zone is UTC."""
    try:
        if text.isascii() and text.isdigit():
            return int(text)
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise fail(f"{text} is neither ms since 1970 nor a time as ISO 8601 has it", BAD_USAGE) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)
