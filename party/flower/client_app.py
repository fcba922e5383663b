"""The Flower app of a party: bytes in, bytes out; of an error only that there was one leaves."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from flwr.app import Error, Message
from flwr.clientapp import ClientApp

from pate.errors import PateError
from protos.flower.carriage import is_array, pack, unpack_message
from protos.flower.runtime import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr.app import Context

_log = logging.getLogger(__name__)


def make_client_app(handle: Callable[[bytes], bytes]) -> ClientApp:
    """Return the app that answers each message of the server with ``handle``.

    ``handle``: takes the body of a message and returns the body of the answer. Its exceptions are
    logged here; the server gets one sentence, whatever it is: text and class of an exception can
    tell of a record.
    """
    app = ClientApp()

    @app.query()
    def answer(message: Message, _context: Context) -> Message:
        try:
            body = handle(unpack_message(message))
            # In the format of the request, which the sender can read.
            return Message(pack(body, as_array=is_array(message.content)), reply_to=message)
        except Exception:  # noqa: BLE001 - whatever it is, nothing of it must leave
            _log.exception("a message of the server could not be answered")
            failed = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, PateError.public)
            return Message(failed, reply_to=message)

    return app
