"""The web console: static pages that ask `/api/` like anybody else. No build step, nothing from elsewhere.

`static/` is served below `/console/`; the page is `index.html`, the rest are modules that the browser loads
itself. The pages are given to whoever asks, since they say nothing; what `/api/` refuses, they show.
"""

from __future__ import annotations

from pathlib import Path

from aiohttp import web

STATIC = Path(__file__).parent / "static"
HEADERS = {
    # Nothing but its own files: what stands in a record can never become a script or a request elsewhere.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class Console:
    """Owned by: event loop."""

    def __init__(self) -> None:
        self._files = {
            str(path.relative_to(STATIC)): (path.read_bytes(), TYPES[path.suffix])
            for path in STATIC.rglob("*")
            if path.suffix in TYPES
        }

    def add_to(self, router: web.UrlDispatcher) -> None:
        """The routes."""
        router.add_get("/", self.home)
        router.add_get("/console", self.home)
        router.add_get("/console/{name:.*}", self.file)

    async def home(self, request: web.Request) -> web.StreamResponse:
        """Where the console is."""
        raise web.HTTPTemporaryRedirect("/console/")

    async def file(self, request: web.Request) -> web.StreamResponse:
        """One of its files."""
        found = self._files.get(request.match_info["name"] or "index.html")
        if found is None:
            raise web.HTTPNotFound
        body, content_type = found
        return web.Response(body=body, content_type=content_type, charset="utf-8", headers=HEADERS)
