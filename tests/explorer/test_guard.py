"""Requests that never become complete do not block the explorer, and nobody reads the key off a command line."""

from __future__ import annotations

import http.client
import socket
import threading
import time

import pytest

pytest.importorskip("fastapi")

import uvicorn

from rpim.cli import explore
from rpim.explorer import guard
from rpim.explorer.from_python import listen
from rpim.explorer.guard import Connection

ENOUGH = 20.0
"""Seconds, of a busy machine."""


async def app(scope, receive, send):
    """Answer with "done"; /stream goes on for two seconds."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    if scope["path"] == "/stream":
        import asyncio

        for _ in range(20):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            await asyncio.sleep(0.1)
    await send({"type": "http.response.body", "body": b"done"})


@pytest.fixture
def port(monkeypatch):
    """The port of a server that waits half a second for a request."""
    monkeypatch.setattr(guard, "REQUEST_SECONDS", 0.5)
    monkeypatch.setattr(guard, "_CHECK_SECONDS", 0.1)
    listening = listen(0)
    server = uvicorn.Server(uvicorn.Config(app, http=Connection, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield listening.getsockname()[1]
    server.should_exit = True
    thread.join()


def get(port, path="/"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ENOUGH)
    connection.request("GET", path)
    return connection.getresponse().read()


def connected(port, sent=b""):
    opened = socket.create_connection(("127.0.0.1", port), timeout=ENOUGH)
    opened.sendall(sent)
    return opened


def is_closed(opened):
    try:
        return opened.recv(1000) == b""
    except ConnectionResetError:
        return True


WHOLE = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HT", b"GET / HTTP/1.1\r\nhost: x\r\n", b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nab"],
)
def test_a_half_sent_request_is_closed(port, sent):
    with connected(port, sent) as opened:
        assert is_closed(opened)


def test_so_is_the_second_of_a_connection(port):
    with connected(port, WHOLE) as opened:
        answer = b""
        while b"done" not in answer:
            answer += opened.recv(1000)
        opened.sendall(WHOLE[:20])
        while opened.recv(1000):  # the end of the first answer, then nothing
            pass


def test_one_byte_at_a_time_is_no_way_to_stay(port):
    def drip(opened):
        for _ in range(int(10 * ENOUGH)):
            opened.sendall(b"x")
            time.sleep(0.1)

    with connected(port) as opened, pytest.raises(OSError, match=r"reset|Broken pipe|abort"):
        drip(opened)


@pytest.mark.slow
def test_an_answer_may_take_longer(port):
    assert get(port, "/stream") == b"x" * 20 + b"done"


def test_many_of_them_do_not_block_the_others(port, monkeypatch):
    monkeypatch.setattr(guard, "REQUEST_SECONDS", 60.0)
    flood = [connected(port, b"GET / HT") for _ in range(guard.MAX_CONNECTIONS + 40)]
    assert get(port) == b"done"
    assert all(map(is_closed, flood[:40]))
    for one in flood:
        one.close()


def test_the_browser_is_started_with_a_code_that_is_good_once(animals, monkeypatch, capsys):
    from starlette.testclient import TestClient

    from rpim.explorer.workbench import Workbench

    opened, apps = [], []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr(uvicorn.Server, "run", lambda server, sockets: apps.append(server.config.app))
    monkeypatch.setattr("rpim.explorer.background.Background.map", lambda self: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    listening = listen(0)
    bench = Workbench(animals)
    explore.serve(bench, listening, open_browser=True)
    while not opened:
        time.sleep(0.01)
    printed = capsys.readouterr().out.split("token=")[1].split()[0]
    assert printed not in opened[0]
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    listening.close()
    browser, late = (TestClient(apps[0], base_url=address, follow_redirects=False) for _ in range(2))
    assert late.head(opened[0]).status_code == 401
    answer = browser.get(opened[0])
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert browser.get("/api/state").status_code == 200
    assert printed not in answer.headers["set-cookie"]
    assert late.get(opened[0]).status_code == 401
    assert late.get("/", params={"token": printed}).status_code == 303
    bench.close()
