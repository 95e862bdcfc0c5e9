"""Rare cases: streams, waits, WebSockets, a late service."""

import asyncio
import hashlib

from common import client
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute

from sluice import SluiceMiddleware, outcome

sluice = client()
going = asyncio.Event()


async def upload(request):
    digest = hashlib.sha256()
    async for piece in request.stream():
        digest.update(piece)
    return PlainTextResponse(digest.hexdigest())


async def plain(request):
    return PlainTextResponse("plain")


async def hold(request):
    await going.wait()
    return PlainTextResponse("held")


@sluice.exempt
async def go(request):
    going.set()
    return PlainTextResponse("gone")


async def priced(request):
    outcome(cost=3)
    return PlainTextResponse("priced")


async def header(request):
    return PlainTextResponse("header", headers={"X-Cost": "4"})


async def drip(request):
    async def pieces():
        for _ in range(3):
            yield b"x" * 1000

    return StreamingResponse(pieces())


@sluice.exempt
async def waiting(request):
    return PlainTextResponse(str(sum(len(loop.queue) for loop in sluice._async._loops.values())))


async def ws(socket):
    await socket.accept()
    await socket.send_text("hello")
    await socket.close()


app = Starlette(
    routes=[
        Route("/upload", upload, methods=["POST"]),
        Route("/checked/upload", upload, methods=["POST"]),
        Route("/plain", plain),
        Route("/queue", plain),
        Route("/hold", hold),
        Route("/go", go),
        Route("/priced", priced),
        Route("/header", header),
        Route("/drip", drip),
        Route("/waiting", waiting),
        WebSocketRoute("/ws", ws),
    ]
)
app.add_middleware(SluiceMiddleware, sluice=sluice, bodies=["/checked/*"])
