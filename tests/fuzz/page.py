"""Access control of the server's page: any request without the token is refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from pate.page.access import OPEN, PageAccess

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from typing import Any

_TOKEN = "a-token-that-nobody-knows"  # noqa: S105 - of a page that is not served
_ODD = (
    b"", b"localhost", b"127.0.0.1:9094", b"[::1]", b"[", b"localhost:99999999", b"\xff" * 300,
    b"Bearer", b"Bearer " + _TOKEN[:-1].encode(), b"Basic YTpi", b"pate-page=", b"pate-page=" + b"0" * 64,
    b"pate-page=%s" % _TOKEN.encode(), b"=;=;" * 400, b'pate-page="\\777"', b"\r\nhost: x", b"a" * 9_000,
)  # fmt: skip


def page(rng: random.Random) -> Callable[[], object]:
    """Make a request that has no right to be answered, and return what feeds it."""
    name = rng.choice((b"token", b"token", b"Token", b"x", b"\xff"))
    query = urlencode([(name, rng.choice(_ODD)) for _ in range(rng.randint(0, 3))]).encode()
    if rng.random() < 0.3:
        query = rng.randbytes(rng.randint(0, 60))
    headers = [
        (rng.choice((b"host", b"host", b"cookie", b"authorization", b"last-event-id", b"x" * 99)),
         rng.choice((*_ODD, rng.randbytes(20))))
        for _ in range(rng.randint(0, 6))
    ]  # fmt: skip
    path = rng.choice(
        ("/", "/", "/metrics", "/api/overview", "/api/stream", "/api/answer", "", "//", "/../", "/x" * 4_000,
         "/healthz/", "/\x00")
    )  # fmt: skip
    scope = {
        "type": rng.choice(("http", "http", "http", "websocket")),
        "method": rng.choice(("GET", "GET", "HEAD", "POST", "", "X" * 99)),
        "scheme": "http",
        "path": path,
        "query_string": query,
        "headers": headers,
        "server": rng.choice((None, ("127.0.0.1", 9094))),
        "client": rng.choice((None, ("192.0.2.1", 1))),
    }

    async def through(*_: Any) -> None:
        raise AssertionError(f"somebody without the token is let through: {scope}")

    guard = PageAccess(
        through,
        token=_TOKEN,
        hosts=("localhost", "127.0.0.1"),
        cookie="pate-page",
        secure=False,
        program="pate-server",
        posts=("/api/answer",),
    )

    async def talk() -> None:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await guard(scope, receive, send)
        if scope["type"] != "http":
            assert not sent
            return
        assert sent[0]["status"] in (401, 403, 405, 421), sent[0]
        assert _TOKEN.encode() not in b"".join(each.get("body", b"") for each in sent)

    assert path not in OPEN
    return lambda: asyncio.run(talk())
