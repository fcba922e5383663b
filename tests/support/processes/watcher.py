"""Observers of a running campaign: page, stream, metrics, health."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field

import httpx


def bearer(token: str) -> dict[str, str]:
    """Return the header that shows a token."""
    return {"authorization": f"Bearer {token}"} if token else {}


@dataclass
class Watcher:
    """Reads all that may be read of running programs, again and again, in threads."""

    # what was read, by the name of the place
    places: dict[str, bytes] = field(default_factory=dict)
    phases: set[str] = field(default_factory=set)  # phases of the campaign that were read
    errors: list[str] = field(default_factory=list)  # answers that should not have come
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def poll(self, name: str, address: str, paths: tuple[str, ...], token: str = "") -> None:
        """Read these paths until the end, or until the server stops answering."""
        self._start(self._poll, name, address, paths, token)

    def follow(self, name: str, url: str, token: str) -> None:
        """Read a stream that does not end by itself."""
        self._start(self._follow, name, url, token)

    def stop(self) -> None:
        """Read all once more, and end."""
        self._over.set()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()

    def _start(self, work: object, *arguments: object) -> None:
        assert callable(work)
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _poll(self, name: str, address: str, paths: tuple[str, ...], token: str) -> None:
        with httpx.Client(headers=bearer(token), trust_env=False, timeout=10) as client:
            while True:
                last = self._over.is_set()
                for path in paths:
                    try:
                        answer = client.get(address + path)
                    except httpx.HTTPError:
                        return  # it has ended
                    if answer.status_code not in (200, 503):
                        self.errors.append(f"{name}{path}: {answer.status_code}")
                    self.note(f"{name}{path}", answer.content, str(answer.headers).encode())
                if last:
                    return
                self._over.wait(1)

    def _follow(self, name: str, url: str, token: str) -> None:
        kept = b""
        try:
            with httpx.stream(
                "GET", url, headers=bearer(token), trust_env=False, timeout=30
            ) as answer:
                for piece in answer.iter_bytes():
                    kept += piece
                    if self._over.is_set():
                        break
        except httpx.HTTPError:
            pass  # it has ended
        self.note(name, kept)

    def note(self, name: str, *texts: bytes) -> None:
        """Keep what is new of what was read."""
        for text in texts:
            self.phases.update(p.decode() for p in re.findall(rb'"phase": "(\w+)"', text))
            held = self.places.get(name, b"")
            if text not in held:
                self.places[name] = held + b"\n" + text
