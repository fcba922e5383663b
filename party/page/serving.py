"""Serves a party's page while it takes part."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

from pate.page.serving import TokenPage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from party.page.view import View
    from party.policy.operator import Operator
    from pate.listening.http_server import App
    from pate.runtime.screen import Screen

#: Path of an answer to the question whether to join.
ANSWER: Final = "/api/answer"
_FILES: Final = dict.fromkeys(("page.html", "party.js"), "party.page")


class PartyPage(TokenPage):
    """A party's page on loopback; use it as a context manager."""

    default_port = 9096
    without = "leave out --page"
    what = "the party"

    def __init__(
        self,
        view: View,
        operator: Operator,
        home: Path,
        port: int | None = None,
        say: Callable[[str, str], None] = lambda _, __: None,
    ) -> None:
        """Take the port. Nothing is served before :meth:`start`."""
        super().__init__(home, port=port, say=say)
        self._view, self._operator = view, operator

    def make_app(self, **access: Any) -> App:
        """Return the application: what all pages have, and an answer by POST."""
        from fastapi import Response

        from pate.page.app import page_app

        app = page_app(
            self._view,
            _FILES,
            following=set(),
            failed="the page failed; the party goes on",
            program="pate-party",
            posts=(ANSWER,),
            **access,
        )

        @app.post(ANSWER)
        def answer(to: str, says: Literal["allow", "refuse"]) -> Response:
            # Of the offer that was shown: another one is another question.
            taken = self._operator.answer(to, says == "allow")
            return Response(status_code=204 if taken else 409)

        return app


@contextmanager
def shown(
    view: View, operator: Operator, home: Path, port: int | None, screen: Screen
) -> Iterator[None]:
    """Show a party while the block runs; browsers that follow see that it ends."""
    with PartyPage(view, operator, home, port, screen.say) as page:
        page.tell(screen)
        try:
            yield
        finally:
            view.over()
