"""The application of the server's page, with metrics and two probes."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any, Final

from fastapi import Response
from fastapi.responses import PlainTextResponse

from aggregator_server.monitoring import metrics
from aggregator_server.monitoring.overview import FILES
from pate.page.app import page_app

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from fastapi import FastAPI

    from aggregator_server.monitoring.overview import Overview
    from aggregator_server.monitoring.status import Status

FAILED: Final = "the page failed; the campaign goes on"


class _Told:
    """The current overview and its JSON text, computed once for all readers."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._last: tuple[Overview, str] | None = None

    def __call__(self) -> tuple[Overview, str]:
        found = self._status.overview()
        last = self._last
        if last is None or last[0] is not found:
            last = self._last = found, json.dumps(found.to_json(), allow_nan=False)
        return last


def make_app(
    status: Status,
    *,
    token: str,  # authorises reading
    hosts: Collection[str],  # host names and addresses that requests may name
    cookie: str = "pate-page",
    secure: bool = False,
    closing: threading.Event | None = None,
    # renders metrics from an overview and the number of following browsers
    scrape: Callable[[Overview, int], bytes] = lambda found, _: metrics.render(found),
    on_fault: Callable[[BaseException], None] = lambda _: None,
    **access: Any,  # see :class:`pate.page.access.PageAccess`
) -> FastAPI:
    """Return the application that shows a campaign's status."""
    told, following = _Told(status), set[int]()
    app = page_app(
        lambda: told()[1],
        FILES,
        closing=closing or threading.Event(),
        following=following,
        on_fault=on_fault,
        failed=FAILED,
        token=token,
        hosts=hosts,
        cookie=cookie,
        secure=secure,
        program="pate-server",
        **access,
    )

    @app.get("/metrics")
    def measured() -> Response:
        content = scrape(told()[0], len(following))
        return Response(content, media_type=metrics.CONTENT_TYPE)

    @app.get("/healthz")
    async def alive() -> Response:
        return PlainTextResponse("alive\n")

    @app.get("/readyz")
    def ready() -> Response:
        fit = status.ready()
        return PlainTextResponse("ready\n" if fit else "not ready\n", 200 if fit else 503)

    return app
