"""The gateway's records of nodes: their size, their lifetime, and that nothing leaks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    ActivateNodeResponse,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
)
from flwr.proto.message_pb2 import ObjectTree, PushObjectRequest, PushObjectResponse
from flwr.proto.node_pb2 import Node
from google.protobuf.message import Message

from aggregator_server.flower.fleet import allowance
from aggregator_server.flower.fleet.allowance import MOST_WAITING, Allowance, read_body
from aggregator_server.flower.fleet.requests import CALLS, MAX_PIECE, RefusedCallError
from aggregator_server.flower.fleet.traffic import MAX_REPLY, STORED_EACH, STORED_IN_ALL, Traffic
from tests.support.server.fleet_nodes import some_id

KEY, OTHER, RUN = b"a key", b"another key", 5


class Link:
    """Traffic with a scripted SuperLink."""

    def __init__(self, run: int | None = None) -> None:
        self.now = 1000.0
        self.whole = 0
        self.traffic = Traffic(lambda: self.now, self._count, run)
        self.ids = {KEY: 7, OTHER: 8}

    def _count(self) -> None:
        self.whole += 1

    async def call(self, key: bytes, name: str, request: Message, answer: Message | None) -> None:
        """Make one call, which the SuperLink answers, or fails to."""
        call = CALLS[f"/v1/fleet/{name}"]
        settle = await self.traffic.admit(key, call, request.SerializeToString())
        settle(None if answer is None else answer.SerializeToString())

    async def come(self, key: bytes = KEY) -> None:
        request = ActivateNodeRequest(public_key=key, heartbeat_interval=30)
        await self.call(key, "activate-node", request, ActivateNodeResponse(node_id=self.ids[key]))

    async def hand(self, key: bytes = KEY, ttl: float = 60.0) -> str:
        """Hand a message to a node, and return its id."""
        given = PullMessagesResponse()
        data = given.messages_list.add().metadata
        data.message_id, data.run_id, data.created_at, data.ttl = some_id(), RUN, self.now, ttl
        given.message_object_trees.append(ObjectTree(object_id=data.message_id))
        request = PullMessagesRequest(node=Node(node_id=self.ids[key]))
        await self.call(key, "pull-messages", request, given)
        return data.message_id

    async def announce(
        self,
        asked: str,
        key: bytes = KEY,
        *,
        names: tuple[str, ...] = (),
        wanted: tuple[str, ...] | None = None,
        fails: bool = False,
    ) -> str:
        """Announce a reply, and return its id, which is its session, too."""
        root = names[-1] if names else some_id()
        request = PushMessagesRequest(node=Node(node_id=self.ids[key]))
        data = request.messages_list.add().metadata
        data.message_id, data.run_id, data.reply_to_message_id = root, RUN, asked
        data.src_node_id, data.dst_node_id = self.ids[key], 1
        tree = request.message_object_trees.add(object_id=root)
        tree.children.extend(ObjectTree(object_id=name) for name in names[:-1])
        session = PushMessagesResponse(
            objects_to_push=names or (root,) if wanted is None else wanted, session_id=root
        )
        await self.call(key, "push-messages", request, None if fails else session)
        return root

    async def store(
        self, name: str, session: str, size: int, key: bytes = KEY, *, stored: bool | None = True
    ) -> None:
        request = PushObjectRequest(
            node=Node(node_id=self.ids[key]), run_id=RUN, object_id=name, session_id=session,
            object_content=bytes(size),
        )  # fmt: skip
        answer = None if stored is None else PushObjectResponse(stored=stored)
        await self.call(key, "push-object", request, answer)


@pytest.fixture
def link() -> Iterator[Link]:
    link = Link()
    asyncio.run(link.come())
    asyncio.run(link.come(OTHER))
    yield link
    # In every case: nothing is released twice, and nothing stays reserved without an owner.
    stored = link.traffic.stored
    assert stored.total == sum(stored.held.values())
    assert all(amount > 0 for amount in stored.held.values())


def names(count: int) -> tuple[str, ...]:
    return tuple(some_id() for _ in range(count))


def test_what_is_stored_is_counted_until_it_is_fetched(link: Link) -> None:
    async def play() -> None:
        asked, pieces = await link.hand(), names(3)
        session = await link.announce(asked, names=pieces)
        assert link.traffic.stored.held[KEY] > MAX_PIECE, "as much as may yet come"
        for name in pieces:
            await link.store(name, session, 1000)
        assert link.traffic.stored.held[KEY] == 3000, "as much as came"
        link.traffic.taken("of nobody")
        link.traffic.taken(asked)
        link.traffic.taken(asked)
        assert link.traffic.stored.total == 0
        assert link.traffic.most() == (KEY, 3000)

    asyncio.run(play())


def test_a_node_that_leaves_waits_until_its_replies_are_fetched(link: Link) -> None:
    async def play() -> None:
        asked, other = await link.hand(), await link.hand(OTHER)
        await link.traffic.fetched(KEY, within=60)  # nothing is stored
        for each, key in ((asked, KEY), (other, OTHER)):
            piece = await link.announce(each, key)
            await link.traffic.fetched(key, within=60)  # nothing is complete
            await link.store(piece, piece, 10, key)
        leaving = asyncio.create_task(link.traffic.fetched(KEY, within=60))
        for message in ("of nobody", other):
            link.traffic.taken(message)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not leaving.done()
        link.traffic.taken(asked)
        await leaving
        await link.traffic.fetched(OTHER, within=60)

    asyncio.run(play())


def test_a_node_that_leaves_waits_only_for_replies_of_the_campaigns_run() -> None:
    """A refused run fetches its refusals itself, and the campaign never learns of it."""

    async def leaves_at_once(link: Link) -> bool:
        await link.come()
        piece = await link.announce(await link.hand())
        await link.store(piece, piece, 10)
        leaving = asyncio.create_task(link.traffic.fetched(KEY, within=60))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return leaving.done() or not leaving.cancel()

    assert not asyncio.run(leaves_at_once(Link(RUN)))
    assert asyncio.run(leaves_at_once(Link(RUN + 1)))


def test_a_node_that_leaves_does_not_wait_for_ever(link: Link) -> None:
    async def play() -> None:
        piece = await link.announce(await link.hand())
        await link.store(piece, piece, 10)
        await link.traffic.fetched(KEY, within=0.01)
        assert link.traffic.stored.held[KEY] == 10

    asyncio.run(play())


def test_a_reply_is_looked_for_once_when_all_of_it_is_there(link: Link) -> None:
    async def play() -> None:
        asked, pieces = await link.hand(), names(3)
        session = await link.announce(asked, names=pieces)
        for name in pieces[:2]:
            await link.store(name, session, 10)
        await link.store(pieces[2], session, 10, stored=None)
        assert link.whole == 0
        await link.store(pieces[2], session, 10)
        assert link.whole == 1
        # Endless announcements do not keep the campaign busy.
        await link.store(pieces[2], session, 10)
        await link.announce(asked, names=pieces, wanted=())
        assert link.whole == 1
        # One of which the SuperLink has all pieces is there when it is announced.
        await link.announce(await link.hand(), names=names(2), wanted=())
        assert link.whole == 2

    asyncio.run(play())


def test_what_the_superlink_did_not_take_is_not_counted(link: Link) -> None:
    async def play() -> None:
        pieces = names(2)
        await link.announce(await link.hand(), names=pieces, wanted=())
        assert link.traffic.stored.total == 0, "it refused the reply"
        session = await link.announce(await link.hand(), names=(pieces := names(6)))
        room = link.traffic.stored.total
        for stored in (False, None):
            # As often as one likes: it never adds up.
            for _ in range(5):
                await link.store(pieces[0], session, MAX_PIECE, stored=stored)
        await link.store(pieces[0], session, MAX_PIECE)
        await link.store(pieces[0], session, MAX_PIECE)  # again: an answer was lost
        await link.store(pieces[1], session, MAX_PIECE)
        with pytest.raises(RefusedCallError):
            await link.store(pieces[2], session, MAX_PIECE)
        assert link.traffic.pushed[KEY] == 2 * MAX_PIECE
        assert link.traffic.stored.total == room

    asyncio.run(play())


def test_an_answer_that_failed_may_be_announced_again(link: Link) -> None:
    async def play() -> None:
        asked, pieces = await link.hand(), names(2)
        for _ in range(3):
            await link.announce(asked, names=pieces, fails=True)
        room = link.traffic.stored.total
        session = await link.announce(asked, names=pieces)
        assert link.traffic.stored.total == room, "it has one place, however often it comes"
        for name in pieces:
            await link.store(name, session, 10)
        await link.announce(asked, names=pieces, wanted=())
        assert link.traffic.stored.total == 20

    asyncio.run(play())


def test_pieces_that_another_reply_brought_are_counted_for_both(link: Link) -> None:
    """A SuperLink keeps a piece as long as one reply has it, and asks for it once."""

    async def play() -> None:
        asked, other = await link.hand(), await link.hand()
        large, root = names(8), some_id()
        session = await link.announce(asked, names=(*large, some_id()))
        for name in large:
            await link.store(name, session, 2**21)
        late = await link.announce(other, names=(*large, root), wanted=(root,))
        await link.store(root, late, 10)
        await link.announce(other, names=(*large, root), wanted=())  # as if its answer was lost
        link.traffic.taken(asked)
        assert link.traffic.stored.held[KEY] >= 8 * 2**21, "the other one keeps them"

    asyncio.run(play())


def test_a_message_that_has_expired_is_forgotten_with_its_reply(link: Link) -> None:
    async def play() -> None:
        asked, pieces = await link.hand(ttl=60), names(2)
        session = await link.announce(asked, names=pieces)
        link.now += 100
        # A call of another node is enough; a silent node keeps nothing reserved forever.
        await link.announce(await link.hand(OTHER), OTHER, wanted=())
        assert link.traffic.stored.total == 0
        with pytest.raises(RefusedCallError):
            await link.store(pieces[0], session, 10)
        with pytest.raises(RefusedCallError):
            await link.announce(asked, names=pieces)

    asyncio.run(play())


def test_one_node_has_its_share_and_leaves_the_others_theirs(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allowance, "ROOM_S", 0.05)

    async def play() -> None:
        while link.traffic.stored.held[KEY] + MAX_REPLY <= STORED_EACH:
            await link.announce(await link.hand(), names=names(40))
        asked = await link.hand()
        with pytest.raises(RefusedCallError) as refused:
            await link.announce(asked, names=names(40))
        assert refused.value.status == 503, "Flower comes again later"
        assert link.traffic.stored.held[KEY] <= STORED_EACH
        await link.announce(await link.hand(OTHER), OTHER, names=names(40))
        assert link.traffic.stored.held[OTHER] == MAX_REPLY

    asyncio.run(play())


def test_a_push_that_waits_for_room_gets_it_when_another_reply_was_fetched(link: Link) -> None:
    async def play() -> None:
        first = [await link.hand(), await link.hand()]
        for asked in first:
            await link.announce(asked, names=names(40))
        third, pieces = await link.hand(), names(40)
        waiting = asyncio.create_task(link.announce(third, names=pieces))
        again = asyncio.create_task(link.announce(third, names=pieces))
        await asyncio.sleep(0)
        assert not waiting.done()
        link.traffic.taken(first[0])
        link.traffic.taken(first[1])
        assert await waiting == await again == pieces[-1]
        assert link.traffic.stored.total == MAX_REPLY, "one place for both"
        # And one that is given up while it waits leaves nothing.
        other = await link.hand()
        await link.announce(await link.hand(), names=names(40))
        late = asyncio.create_task(link.announce(other, names=names(40)))
        await asyncio.sleep(0)
        link.traffic.taken(other)
        link.traffic.taken(third)
        with pytest.raises(RefusedCallError):
            await late
        assert link.traffic.stored.total == MAX_REPLY

    asyncio.run(play())


def test_replies_of_many_pieces_are_refused(link: Link) -> None:
    async def play() -> None:
        asked = await link.hand()
        with pytest.raises(RefusedCallError):
            await link.announce(asked, names=names(81))
        await link.announce(asked, names=names(80))

    asyncio.run(play())


def test_whatever_a_node_does_the_bounds_hold(link: Link) -> None:
    """Hundreds of random calls of two nodes, with a SuperLink that fails now and then."""
    rng = random.Random(4)  # noqa: S311 - a test that can be repeated

    async def play() -> None:
        asked: list[tuple[bytes, str]] = []
        sent: list[tuple[bytes, str, tuple[str, ...]]] = []
        for _ in range(400):
            key = rng.choice((KEY, OTHER))
            try:
                match rng.randrange(5):
                    case 0:
                        asked.append((key, await link.hand(key, ttl=rng.uniform(1, 50))))
                    case 1 if asked:
                        who, message = rng.choice(asked)
                        pieces = names(rng.randint(1, 90))
                        wanted = tuple(rng.sample(pieces, rng.randint(0, len(pieces))))
                        async with asyncio.timeout(0.001):
                            session = await link.announce(
                                message, who, names=pieces, wanted=wanted,
                                fails=rng.random() < 0.2,
                            )  # fmt: skip
                        sent.append((who, session, pieces))
                    case 2 | 3 if sent:
                        who, session, pieces = rng.choice(sent)
                        await link.store(
                            rng.choice(pieces), session, rng.choice((0, 100, MAX_PIECE)), who,
                            stored=rng.choice((True, True, False, None)),
                        )  # fmt: skip
                    case 4 if asked and rng.random() < 0.3:
                        link.traffic.taken(rng.choice(asked)[1])
            except (RefusedCallError, TimeoutError):
                pass
            link.now += rng.uniform(0, 1)
            stored = link.traffic.stored
            assert stored.total == sum(stored.held.values()) <= STORED_IN_ALL
            assert all(0 < amount <= STORED_EACH for amount in stored.held.values())
        link.now += 1000
        await link.announce(await link.hand(), wanted=())
        assert link.traffic.stored.total == 0, "all of it has expired"

    asyncio.run(play())


def test_more_than_one_may_hold_is_never_waited_for() -> None:
    async def play() -> None:
        allowed = Allowance(10, 4)
        with pytest.raises(TimeoutError):
            await allowed.take("a", 5, within=60)
        async with allowed.holding("a", 4):
            assert (allowed.total, allowed.held["a"]) == (4, 4)
        assert (allowed.total, dict(allowed.held)) == (0, {})

    asyncio.run(play())


def test_few_of_one_holder_wait() -> None:
    async def play() -> None:
        allowed = Allowance(10, 4)
        await allowed.take("a", 4)
        waiting = [asyncio.create_task(allowed.take("a", 1)) for _ in range(MOST_WAITING)]
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await allowed.take("a", 1, within=60)
        await allowed.take("b", 4)
        allowed.give("a", 4)
        await asyncio.wait(waiting[:4])
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)
        assert allowed.held["a"] >= 4
        assert not allowed._waiting

    asyncio.run(play())


@pytest.mark.parametrize(
    ("pieces", "read"),
    [([5, 5], b"x" * 10), ([5, None], None), ([5, 6], None), ([11], None), ([0], b"")],
)
def test_a_body_is_read_whole_or_not_at_all(pieces: list[int | None], read: bytes | None) -> None:
    left = list(pieces)

    async def receive() -> dict[str, object]:
        size = left.pop(0)
        if size is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": b"x" * size, "more_body": bool(left)}

    assert asyncio.run(read_body(receive, 10)) == read


def test_a_body_that_trickles_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is not enough; a body that arrives fast enough is read, regardless of duration."""
    monkeypatch.setattr(allowance, "SPAN_S", 2.0)
    monkeypatch.setattr(allowance, "SPAN_BYTES", 100)

    async def read(size: int) -> bytes | None:
        left = 500

        async def receive() -> dict[str, object]:
            nonlocal left
            await asyncio.sleep(0.5)
            left -= size
            return {"type": "http.request", "body": b"x" * size, "more_body": left > 0}

        return await read_body(receive, 1000)

    with pytest.raises(TimeoutError):
        asyncio.run(read(1))
    assert asyncio.run(read(100)) == b"x" * 500
