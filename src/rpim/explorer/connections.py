"""Connections to the explorer: how long a request may take to arrive, and how many there may be.

Anyone on this machine, and any web page, can open connections; without limits, requests that are never completed would
use up the files that a process may open.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

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
