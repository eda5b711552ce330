"""Who may talk to the explorer: checked requests, and limits on connections.

Only this machine may, with the token, from our own page, and with a size limit. Other open web pages can send requests
to this machine (CSRF) or point their host name to it (DNS rebinding), so Host and Origin are checked, and every request
needs the token. They can also open connections and never complete a request, which would use up the files that a
process may open: connections are limited in number and in time.
"""

from __future__ import annotations

import hmac
import html
import json
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from uvicorn.protocols.http.h11_impl import H11Protocol

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY = 4 << 20
"""Maximum request size in bytes: enough for 400,000 row numbers as text."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PUBLIC = ("/static/tokens.css", "/static/refused.css", "/static/icon.svg")
"""Served without the key, for the page that asks for it."""
HEADERS = {
    b"content-security-policy": POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}
_IN_NOTEBOOKS = POLICY.replace("frame-ancestors 'none'", "frame-ancestors http://127.0.0.1:* http://localhost:*")
FRAMED_HEADERS = {
    **{name: value for name, value in HEADERS.items() if name != b"x-frame-options"},
    b"content-security-policy": _IN_NOTEBOOKS.encode(),
}
"""For a page in a notebook, which this machine serves from another port."""


class Guard:
    """ASGI middleware that checks requests and adds security headers.

    Parameters
    ----------
    app : the application behind it
    token : str
        The token in the printed address. It is exchanged for a cookie, which later requests carry.
    port : int
        The port of the server.
    code : str, optional
        Another token, which is good for one request: that of the browser that is started with it, as all users of the
        machine can see the command lines of its programs.
    framed : bool
        Whether notebooks that this machine serves may show the page.
    """

    def __init__(
        self,
        app: App,
        *,
        token: str,
        port: int,
        code: str | None = None,
        max_body: int = MAX_BODY,
        framed: bool = False,
    ) -> None:
        self._app, self._max_body = app, max_body
        self._token, self._codes = token, set() if code is None else {code}
        self._framed, self._headers = framed, FRAMED_HEADERS if framed else HEADERS
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        # A host's ports share its cookies: no other server can guess the name, to replace it, nor learns the token.
        self._cookie, self._session = f"rpim-{port}-{secrets.token_hex(8)}", secrets.token_urlsafe(32)

    def new_code(self) -> str:
        """Another token that is good for one request."""
        code = secrets.token_urlsafe(32)
        self._codes.add(code)
        return code

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        is_page = scope["path"] == "/"
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        if headers.get("host", "") not in self._hosts:
            await self._refuse(
                send,
                421,
                "This page is only served to this machine: open the address that rpim explore printed.",
                is_page,
            )
        elif not self._is_our_page(scope["method"], headers, is_page):
            await self._refuse(
                send, 403, "The request came from another page: open the address that rpim explore printed.", is_page
            )
        elif is_page and self._opens(scope["method"], query):
            await self._welcome(send)
        elif scope["path"] in PUBLIC and scope["method"] == "GET":
            await self._answer(scope, receive, send)
        elif not _same(self._from_cookie(headers.get("cookie", "")), self._session):
            await self._refuse(
                send, 401, "The key is missing or outdated: open the address that rpim explore printed.", is_page
            )
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                theirs = {name.lower(): value for name, value in message.get("headers", [])}
                message = {**message, "headers": list({**self._headers, **theirs}.items())}
            await send(message)

        if scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send_with_headers)
            return
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._max_body:
                await self._refuse(
                    send, 413, f"The request is larger than {self._max_body >> 20} MB: select fewer rows."
                )
                return
        whole: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def receive_whole() -> Message:
            return whole.pop() if whole else await receive()

        await self._app(scope, receive_whole, send_with_headers)

    def _is_our_page(self, method: str, headers: dict[str, str], is_page: bool) -> bool:
        """Check Sec-Fetch-Site and Origin; changes require an Origin. A notebook may open the page, and only that."""
        sites = ("none", "same-origin", *(("same-site",) if self._framed and is_page and method == "GET" else ()))
        if headers.get("sec-fetch-site", "none") not in sites:
            return False
        origin = headers.get("origin")
        if origin is None:
            return method in ("GET", "HEAD")
        return origin in {f"http://{host}" for host in self._hosts}

    def _opens(self, method: str, query: dict[str, list[str]]) -> bool:
        """Whether the address holds the token, or the code for the first time."""
        if _same(query.get("token", [""])[0], self._token):
            return True
        given = query.get("code", [""])[0]
        if method != "GET" or not (used := {code for code in self._codes if _same(given, code)}):
            return False
        self._codes -= used
        return True

    def _from_cookie(self, header: str) -> str:
        try:
            cookie = SimpleCookie(header).get(self._cookie)
        except CookieError:
            return ""
        return "" if cookie is None else cookie.value

    async def _welcome(self, send: Send) -> None:
        """Exchange the token in the address for an HttpOnly cookie."""
        cookie = f"{self._cookie}={self._session}; HttpOnly; SameSite=Strict; Path=/"
        headers = {**self._headers, b"location": b"/", b"set-cookie": cookie.encode()}
        await send({"type": "http.response.start", "status": 303, "headers": list(headers.items())})
        await send({"type": "http.response.body", "body": b""})

    async def _refuse(self, send: Send, status: int, sentence: str, is_page: bool = False) -> None:
        if is_page:
            kind, body = b"text/html; charset=utf-8", _REFUSED.format(sentence=html.escape(sentence))
        else:
            kind, body = b"application/json", json.dumps({"problem": sentence})
        headers = {**self._headers, b"content-type": kind}
        await send({"type": "http.response.start", "status": status, "headers": list(headers.items())})
        await send({"type": "http.response.body", "body": body.encode()})


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), wanted.encode())


_REFUSED = """<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <title>Explorer: open the printed address</title>
  <link rel="icon" href="/static/icon.svg" type="image/svg+xml">
  <link rel="stylesheet" href="/static/tokens.css">
  <link rel="stylesheet" href="/static/refused.css">
</head>
<body>
  <main>
    <h1>Open the address that rpim explore printed</h1>
    <p>{sentence}</p>
    <ul>
      <li>The address is in the terminal where <code>rpim explore RUN</code> runs. It looks like
        <code>http://127.0.0.1:PORT/?token=…</code>; open it as a whole, with its key.</li>
      <li>Every start makes a new key, so an address of an earlier start no longer works.</li>
      <li>If the terminal is closed, run <code>rpim explore RUN</code> again. All decisions are saved in the run
        folder.</li>
      <li>From another machine, forward the same port: <code>ssh -L PORT:127.0.0.1:PORT HOST</code>.</li>
    </ul>
  </main>
</body>
</html>
"""


REQUEST_SECONDS = 10.0
"""How long a request may take to arrive, from the connection or the answer before it; 4 MB from this machine do."""
MAX_CONNECTIONS = 64
_CHECK_SECONDS = 0.5


class Connection(H11Protocol):
    """A connection that is closed where no complete request arrives.

    If there are too many, the one that has waited longest for its request is closed, so that new ones are served.
    """

    _waits_since = 0.0

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._waits_since = self.loop.time()
        others: Any = self.connections
        still_open = [one for one in others if not one.transport.is_closing()]
        if len(still_open) > MAX_CONNECTIONS:
            min((one for one in still_open if one.is_waiting), key=lambda one: one._waits_since).transport.abort()
        self.loop.call_later(_CHECK_SECONDS, self._check)

    @property
    def is_waiting(self) -> bool:
        """Whether no complete request has arrived that is still to be answered."""
        cycle: Any = self.cycle
        return cycle is None or cycle.more_body or cycle.response_complete

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self._waits_since = self.loop.time()
        super().on_response_complete()

    def _check(self) -> None:
        if self.transport.is_closing():
            return
        if self.is_waiting and self.loop.time() - self._waits_since > REQUEST_SECONDS:
            self.transport.abort()
        else:
            self.loop.call_later(_CHECK_SECONDS, self._check)
