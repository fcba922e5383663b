"""A TLS terminator in front of a loopback port, like stunnel or a proxy.

``python -m tests.support.hosts.tls_door ADDRESS PORT TO_PORT PEM``, where PEM holds certificate and key.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys


async def _pour(source: asyncio.StreamReader, into: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while content := await source.read(65_536):
            into.write(content)
            await into.drain()
    into.close()


async def _serve(address: str, port: int, to_port: int, pem: str) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back, forth = await asyncio.open_connection("127.0.0.1", to_port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pour(reader, forth), _pour(back, writer))

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(pem)
    context.set_alpn_protocols(["h2"])  # gRPC asks for it
    async with await asyncio.start_server(connected, address, port, ssl=context) as server:
        sys.stderr.write("open\n")
        sys.stderr.flush()
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
