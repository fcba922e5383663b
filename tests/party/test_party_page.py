"""A party's page: who may answer, what it shows, and what it never contains."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pty
import re
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from party.page import ANSWER, PartyPage, first_inputs
from party.policy.operator import Operator
from pate.data.embeddings import Embeddings
from pate.data.values import Images, Table
from pate.page.access import cookie_of
from pate.runtime.home import PAGE_TOKEN, kept_token
from tests.party.voting.test_own_data import Site as Party
from tests.party.voting.test_own_data import rows
from tests.support.party.offers import answer, joining, queries, settled
from tests.support.party.pages import Desk
from tests.support.processes.programs import until

if TYPE_CHECKING:
    from pathlib import Path


TOKEN = "t" * 43
HERE = "http://127.0.0.1:9096"
#: Stands for the key that the link gives to a tab.
KEY = "the key"
#: What the page itself sends.
OURS = {"cookie": f"pate-page={cookie_of(TOKEN)}", "x-pate-key": KEY, "origin": HERE}
OFFER = joining()


def ask(
    desk: Desk, *requests: tuple[str, str, dict[str, str]], body: bytes = b""
) -> list[httpx.Response]:
    """Ask the page's application, in this process, one after the other."""
    page = PartyPage(desk.view, desk.operator, desk.home, 0)
    closing = threading.Event()
    closing.set()
    app = page.make_app(
        token=TOKEN, hosts={"127.0.0.1", "localhost"}, cookie="pate-page", secure=False,
        closing=closing, on_fault=lambda _: None,
    )  # fmt: skip
    page.stop()

    async def all_of_them() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=HERE) as client:
            opened = await client.get(f"/?token={TOKEN}")
            client.cookies.clear()
            given = httpx.URL(opened.headers["location"]).fragment
            return [
                await client.request(
                    how,
                    path,
                    headers={
                        name: given if each == KEY else each for name, each in headers.items()
                    },
                    content=body or None,
                )
                for how, path, headers in requests
            ]

    return asyncio.run(all_of_them())


def post(says: str, headers: dict[str, str], to: str = OFFER.digest.hex()) -> tuple[str, str, Any]:
    return "POST", f"{ANSWER}?to={to}&says={says}", headers


@pytest.mark.parametrize(("says", "joins"), [("allow", True), ("refuse", False)])
def test_the_page_answers_once_and_only_what_it_shows(
    tmp_path: Path, says: str, joins: bool
) -> None:
    desk = Desk(tmp_path)
    with desk.asked(OFFER) as answers:
        shown = json.loads(desk.view())
        assert (shown["state"], shown["asked"]) == ("asked", OFFER.digest.hex())
        others = [post(says, OURS, to="ab" * 32), post("perhaps", OURS)]
        replies = ask(desk, *others, post(says, OURS), post("allow", OURS))
        assert [reply.status_code for reply in replies] == [409, 422, 204, 409]
        until(lambda: answers == [joins], "the party has the answer")
    assert json.loads(desk.view())["state"] == ("reading" if joins else "refused")
    assert not desk.ledger.campaigns(), "what is allowed is stored by whoever joins"


@pytest.mark.parametrize(
    ("without", "with_", "status"),
    [
        (("cookie",), {}, 403),  # another user of this machine
        (("x-pate-key",), {}, 403),  # one who has collected the cookie
        (("cookie", "x-pate-key"), {"authorization": f"Bearer {cookie_of(TOKEN)}"}, 403),
        ((), {"x-pate-key": cookie_of(TOKEN)}, 403),
        (("origin",), {}, 403),
        ((), {"origin": "http://evil.example"}, 403),
        ((), {"origin": "http://127.0.0.1:8000"}, 403),  # another server of this machine
        ((), {"origin": "null"}, 403),
        ((), {"sec-fetch-site": "same-site"}, 403),
        ((), {"host": "evil.example:9096", "origin": "http://evil.example:9096"}, 421),
        ((), {"transfer-encoding": "chunked"}, 403),
        ((), {"content-length": "9000000"}, 403),
    ],
)  # fmt: skip
def test_nobody_else_answers(
    tmp_path: Path, without: tuple[str, ...], with_: dict[str, str], status: int
) -> None:
    desk = Desk(tmp_path)
    headers = {name: each for name, each in OURS.items() if name not in without} | with_
    with desk.asked(OFFER):
        path = post("allow", headers)[1]
        replies = ask(desk, post("allow", headers), ("GET", path, OURS), ("PUT", path, OURS))
        assert [reply.status_code for reply in replies] == [status, 403, 403]
        assert desk.operator.asked == (OFFER, None)
        # Nothing else of the page changes anything.
        (reply,) = ask(desk, ("POST", "/api/overview", OURS))
        assert reply.status_code == 405


def test_nothing_is_read_without_the_token_and_the_key_is_in_no_address_that_is_sent(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path)
    paths = ("/", "/party.js", "/page.js", "/page.css", "/api/overview", "/api/stream")
    for reply in ask(desk, *(("GET", path, {}) for path in paths)):
        assert reply.status_code == 401
        assert "pate-party" in reply.text
        assert "hospital_a" not in reply.text
    bearer = {"authorization": f"Bearer {TOKEN}"}
    link = ("GET", f"/?token={TOKEN}", dict[str, str]())
    *replies, opened = ask(desk, *(("GET", path, bearer) for path in paths), link)
    assert [reply.status_code for reply in replies] == [200] * len(paths)
    where, key = opened.headers["location"].split("#")
    assert (where, len(key)) == ("/", 64)
    assert key not in opened.headers["set-cookie"]
    for reply in replies[:4]:
        for way_in in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert way_in not in reply.text
        assert "//" not in re.sub(r"(?m)(^|\s)//.*$", "", reply.text), "an address elsewhere"
        assert "default-src 'self'" in reply.headers["content-security-policy"]
        assert key not in reply.text


def test_what_an_earlier_start_gave_a_browser_answers_nothing(tmp_path: Path) -> None:
    """Behind it another user's server may have had its port, and the tab that was open there."""
    desk = Desk(tmp_path)
    with desk.page() as page:
        key = httpx.URL(httpx.get(page.link).headers["location"]).fragment
    with desk.page() as page, desk.asked(OFFER):
        given = httpx.get(page.link)
        cookie = given.headers["set-cookie"].partition(";")[0]
        for each, status in (
            (key, 403),
            (httpx.URL(given.headers["location"]).fragment, 204),
        ):
            ours = {"origin": page.address, "x-pate-key": each, "cookie": cookie}
            assert (
                httpx.post(page.address + post("allow", {})[1], headers=ours).status_code == status
            )


def test_it_is_on_loopback_only_by_a_token_in_a_private_file(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    with desk.page() as page:
        assert page.address == f"http://127.0.0.1:{page.port}"
        token = kept_token(tmp_path / PAGE_TOKEN)
        assert page.link == f"{page.address}/?token={token}"
        assert (tmp_path / PAGE_TOKEN).stat().st_mode & 0o777 == 0o600
        get = httpx.get(
            f"{page.address}/api/overview", headers={"authorization": f"Bearer {token}"}
        )
        assert get.json()["party"] == "hospital_a"


def test_it_shows_no_record_no_vote_and_no_number_of_records(tmp_path: Path) -> None:
    """A real party, with records that no other text has, reads them, trains and votes."""
    odd = [f"{number},{word},a" for number, word in ((73151, "quixotry"), (73152, "zyzzyva"))]
    party = Party(tmp_path, rows(*odd, n=1313))
    desk = Desk(tmp_path, party.voter._site.ledger)
    desk.inputs = Table(("lab", "kind"), (np.array([1.0]), np.array(["x"])))
    before = desk.view()
    votes = party.votes()
    desk.status.trained(3, 3)
    desk.status.is_now("connected")
    after = desk.view()
    assert before != after
    shown = json.loads(after)
    assert shown["doing"].endswith("Votes on 4 queries have left for this campaign.")
    assert "votes on 4 queries in 1 batch" in " ".join(shown["left"][0])
    plain = re.sub("[0-9a-f]{4}( [0-9a-f]{4})+|[0-9a-f]{32,}", "", after)  # keys and digests
    for text in ("quixotry", "zyzzyva", "73151", "73152", "1315", str(votes), str(votes[0])):
        assert text not in plain, text
    # The figure is that of the terms, whatever the votes are.
    assert shown["life"] == desk.ledger.cumulative_epsilon(desk.policy.divided_delta).in_words


@pytest.mark.parametrize("reads", range(1, 6))
def test_the_terms_that_are_shown_are_those_of_the_question(tmp_path: Path, reads: int) -> None:
    """Another question comes while the page is made, after any number of looks at what is asked."""
    desk, other = Desk(tmp_path), joining(campaign="d2" * 16)

    class Changing(Operator):
        looks = 0

        def __getattribute__(self, name: str) -> Any:
            if name != "asked":
                return super().__getattribute__(name)
            Changing.looks += 1
            return (OFFER, True) if Changing.looks <= reads else (other, None)

    desk.view._operator = Changing(None, page=True)
    for _ in range(2):
        shown = json.loads(desk.view())
        assert (shown["asked"] == other.digest.hex()) == (shown["campaign"] == other.campaign)


def test_what_is_asked_comes_with_unit_adjacency_and_observer(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    with desk.asked(OFFER):
        terms = dict(json.loads(desk.view())["terms"])
    assert terms["Who asks"] == "pate.example.org:9092; this party is enrolled there, with this key"
    assert terms["Signed by the key"].startswith("0001 0203")
    assert terms["Classes"] == "no, yes"
    assert "at most" in " ".join(terms)
    for term in (
        "epsilon 2",
        "delta 1e-05",
        "unit: record",
        "adjacency: one record",
        "observer: public",
    ):
        assert term in terms["What it costs, at most"]
    assert "does not hold" in terms["Towards the server"]
    other = joining(key=b"o" * 32)
    with desk.asked(other):
        assert "another key" in dict(json.loads(desk.view())["terms"])["Who asks"]


def test_the_last_campaign_of_the_ledger_is_shown_and_the_end_without_its_reason(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path)
    assert json.loads(desk.view())["terms"] == []
    answer(desk.ledger, settled(), queries(0, 3))
    shown = json.loads(desk.view())
    assert shown["campaign"] == settled().campaign
    assert desk.view() is desk.view(), "it is made once"
    desk.view.over()
    assert "Its screen says why" in json.loads(desk.view())["doing"]


def test_how_many_records_voted_in_a_series_is_not_shown(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.ledger.join(joining(aggregator="neighbour", series="spring", unit="record"))
    (lines,) = json.loads(desk.view())["left"]
    assert "of the series spring" in lines


def test_first_inputs_are_few_and_small() -> None:
    pixels = np.arange(200 * 500 * 400 * 3, dtype=np.uint8).reshape(200, 500, 400, 3)
    images = first_inputs(Images(pixels))
    assert (images["all"], images["shape"], len(images["pixels"])) == (200, (84, 67, 3), 6)
    assert base64.b64decode(images["pixels"][1]) == pixels[1, ::6, ::6].tobytes()
    names = tuple(f"column {at}" for at in range(20))
    table = Table(names, (*[np.array(["<b>\u202e" + "x" * 900] * 9)] * 19, np.array([np.nan] * 9)))
    made = first_inputs(table)
    assert (len(made["names"]), made["unlisted"], len(made["rows"])) == (12, 8, 6)
    assert made["rows"][0][0].startswith("<b>\\u202e")
    assert len(made["rows"][0][0]) == 40
    rest = first_inputs(Embeddings(np.zeros((9, 3), np.int16), "texts", "ab" * 32))
    assert rest["kind"] == "other"
    assert "embeddings" in rest["text"]


def test_the_terminal_and_the_page_ask_one_question_and_the_first_answer_counts(
    capfd: pytest.CaptureFixture[str],
) -> None:
    main, side = pty.openpty()
    with os.fdopen(side) as terminal:
        for typed, page, joins in ((b"y\n", None, True), (b"\n", None, False), (None, True, True)):
            operator = Operator(terminal, page=True)
            got: list[bool] = []
            thread = threading.Thread(target=lambda: got.append(operator.ask(OFFER)))  # noqa: B023
            thread.start()
            until(lambda: operator.asked is not None, "asked")  # noqa: B023
            if typed is not None:
                os.write(main, typed)
            else:
                assert operator.answer(OFFER.digest.hex(), says=bool(page))
            thread.join(60)
            assert got == [joins]
            assert not operator.answer(OFFER.digest.hex(), says=not joins), "it is answered"
    os.close(main)
    said = capfd.readouterr().err
    assert said.count("Join campaign c1c1c1c1") == 3
    assert said.count("by the page") == 1
    said_so: list[str] = []
    alone = Operator(None, page=True, say=said_so.append)
    thread = threading.Thread(target=alone.ask, args=(OFFER,))
    thread.start()
    until(lambda: bool(said_so), "said that the page asks")
    assert alone.answer(OFFER.digest.hex(), says=False)
    thread.join(60)
    assert said_so[0].startswith("Join campaign c1c1c1c1")
    assert said_so[0].endswith("Answer on this party's page")
    assert not Operator(None).is_here
    assert Operator(None, page=True).is_here


def test_what_was_typed_before_a_question_is_no_answer_to_it() -> None:
    """As by who answers at the page, and at the terminal, too."""
    main, side = pty.openpty()
    with os.fdopen(side) as terminal:
        operator = Operator(terminal, page=True)
        for typed in (b"y\n", b"y\ny\n"):
            os.write(main, typed)
            got: list[bool] = []
            thread = threading.Thread(target=lambda: got.append(operator.ask(OFFER)))  # noqa: B023
            thread.start()
            until(lambda: operator.asked == (OFFER, None), "asked")
            os.write(main, b"n\n")
            thread.join(60)
            assert got == [False]
    os.close(main)


@pytest.mark.slow
def test_a_party_without_a_page_loads_no_web_server() -> None:
    script = "import sys, party.session; print({'uvicorn', 'pate.page', 'party.page'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
