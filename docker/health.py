"""Whether the broker of this container serves: exit status 0. It is asked on this machine, by HTTP, or HTTPS
where it speaks that; whose certificate it shows is not looked at.
"""

import os
import ssl
import urllib.error
import urllib.request

LIMIT_SECONDS = 4.0


def ask(scheme: str) -> None:
    """OSError, unless it answers that all is well."""
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    url = f"{scheme}://127.0.0.1:{os.environ['KAFKA_HTTP_PORT']}/healthz"
    urllib.request.urlopen(url, timeout=LIMIT_SECONDS / 2, context=trust).close()


try:
    ask("http")
except urllib.error.HTTPError:
    raise
except OSError:
    ask("https")
