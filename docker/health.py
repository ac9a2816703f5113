"""Whether the broker of this container serves: exit status 0. It is asked on this machine, by HTTP, or HTTPS
where it speaks that; whose certificate it shows is not looked at. Where it demands one, it is shown that of
`KOMPAKT_HTTP_CERTIFICATE`; without that a broker that refuses us after the handshake counts as serving.
"""

import http.client
import os
import ssl
import urllib.error
import urllib.request

LIMIT_SECONDS = 4.0
PORT = os.environ["KAFKA_HTTP_PORT"]
if "://" in PORT:  # of a service `kafka-http`, told by Kubernetes; the broker passes over it
    PORT = "9644"
CERTIFICATE = os.environ.get("KOMPAKT_HTTP_CERTIFICATE")


def ask(scheme: str, trust: ssl.SSLContext | None = None) -> None:
    """OSError, unless it answers that all is well."""
    no_proxy = urllib.request.ProxyHandler({})  # which would look for 127.0.0.1 elsewhere
    opener = urllib.request.build_opener(no_proxy, urllib.request.HTTPSHandler(context=trust))
    url = f"{scheme}://127.0.0.1:{PORT}/healthz"
    opener.open(url, timeout=LIMIT_SECONDS / 2).close()


def ask_encrypted() -> None:
    """OSError, unless it answers that all is well, or demands a certificate that we do not have."""
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    if CERTIFICATE:
        trust.load_cert_chain(CERTIFICATE, password="")
    try:
        ask("https", trust)
    except http.client.RemoteDisconnected:  # hands were shaken
        if CERTIFICATE:
            raise


try:
    ask("http")
except urllib.error.HTTPError:
    raise
except OSError:
    ask_encrypted()
