"""What a service manager is told of the process (sd_notify(3) of systemd): that it is ready, that it stops.

So a unit of `Type=notify` is active when clients are served, and what is ordered behind it starts then.
"""

from __future__ import annotations

import logging
import os
import socket

logger = logging.getLogger(__name__)

NOTIFY_SOCKET = "NOTIFY_SOCKET"
"""the variable that names the manager's socket; not there where none asked"""


def tell(*lines: str) -> None:
    """Send `READY=1`, `STOPPING=1`, `STATUS=...`; a broker serves, whether or not somebody can be told."""
    address = os.environ.get(NOTIFY_SOCKET, "")
    if not address:
        return
    place = f"\0{address[1:]}" if address[0] == "@" else address  # a name of Linux' own, of no file
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(lines).encode(), place)
    except (OSError, ValueError) as error:
        logger.warning("%s=%s cannot be told %s: %s", NOTIFY_SOCKET, address, lines[0], error)
