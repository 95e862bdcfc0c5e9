import asyncio

from common import SETTINGS, URL, client, login
from fastapi import FastAPI, Request, WebSocket
from fastapi.responses import PlainTextResponse, StreamingResponse

from sluice import SluiceMiddleware, outcome

app = FastAPI()
sluice = client() if URL else None
if sluice:
    app.add_middleware(SluiceMiddleware, sluice=sluice, **SETTINGS)


@app.api_route("/api/users", methods=["GET", "HEAD", "OPTIONS"])
async def users():
    return PlainTextResponse("alice")


@app.post("/auth/login")
async def log_in(request: Request):
    status, text = login((await request.form()).get("password"))
    return PlainTextResponse(text, status)


@app.get("/health")
def health():
    return PlainTextResponse("ok")


@app.get("/boom")
async def boom():
    raise RuntimeError("boom")


@app.get("/slow")
async def slow():
    await asyncio.sleep(3600)


@app.get("/priced")
async def priced():
    outcome(cost=3)
    return PlainTextResponse("priced")


@app.get("/stream")
async def stream():
    async def pieces():
        yield b"one "
        yield b"two"

    return StreamingResponse(pieces(), media_type="text/plain")


@app.websocket("/ws")
async def ws(socket: WebSocket):
    await socket.accept()
    await socket.send_text("hello")
    await socket.close()
