"""The page from another machine: over TLS, with the server's certificate and host names."""

from __future__ import annotations

import datetime as dt
import ssl
import time
from pathlib import Path

import httpx

from aggregator_server.identities import Identities
from aggregator_server.monitoring.serving import Page, PageServer
from pate.runtime.home import PAGE_TOKEN, kept_token
from tests.support.server.statuses import a_campaign


def test_it_speaks_tls_under_the_names_of_the_certificate(tmp_path: Path) -> None:
    now = dt.datetime.now(dt.UTC)
    identities = Identities.create(
        tmp_path / "home", ["pate.hospital.example", "127.0.0.1"], 9092, now
    )
    trust = ssl.create_default_context(cafile=str(identities.ca))
    headers = {"authorization": f"Bearer {kept_token(tmp_path / 'home' / PAGE_TOKEN)}"}
    everywhere = PageServer("0.0.0.0", 0)  # noqa: S104 - over TLS
    with (
        a_campaign(tmp_path) as (_, status),
        Page(status, everywhere, tmp_path / "home", identities=identities) as page,
        httpx.Client(verify=trust, headers=headers) as client,
    ):  # fmt: skip
        assert page.address == f"https://pate.hospital.example:{page.port}"
        here = f"https://127.0.0.1:{page.port}"
        assert client.get(f"{here}/api/overview").json()["campaign"] == "chest-xray"
        named = client.get(here, headers={"host": f"pate.hospital.example:{page.port}"})
        stranger = client.get(here, headers={"host": "other.example"})
        assert (named.status_code, stranger.status_code) == (200, 421)
        ends = [
            float(line.split()[1])
            for line in client.get(f"{here}/metrics").text.splitlines()
            if line.startswith("pate_certificate_expiry_timestamp_seconds ")
        ]
        assert len(ends) == 1
        assert ends[0] > time.time()
        cookie = client.get(f"{here}/?token={kept_token(tmp_path / 'home' / PAGE_TOKEN)}").headers[
            "set-cookie"
        ]
        assert "Secure" in cookie.split("; ")
        try:
            plain = httpx.get(f"http://127.0.0.1:{page.port}/")
        except httpx.TransportError:
            plain = None
        assert plain is None
