from common import SETTINGS, URL, client, login
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Mount, Route

from sluice import SluiceMiddleware, outcome


async def users(request):
    return PlainTextResponse("alice")


async def log_in(request):
    status, text = login((await request.form()).get("password"))
    return PlainTextResponse(text, status)


def health(request):
    return PlainTextResponse("ok")


async def boom(request):
    raise RuntimeError("boom")


def priced(request):  # in a thread
    outcome(cost=3)
    return PlainTextResponse("priced")


async def stream(request):
    async def pieces():
        yield b"one "
        yield b"two"

    return StreamingResponse(pieces(), media_type="text/plain")


app = Starlette(
    routes=[
        Mount("/api", routes=[Route("/users", users, methods=["GET", "OPTIONS"])]),
        Route("/auth/login", log_in, methods=["POST"]),
        Route("/health", health),
        Route("/boom", boom),
        Route("/priced", priced),
        Route("/stream", stream),
    ],
)
if URL:
    app = SluiceMiddleware(app, client(), **SETTINGS)
