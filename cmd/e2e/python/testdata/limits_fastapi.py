"""Limits of single routes, by decorator."""

from __future__ import annotations

from typing import Optional

from common import client
from fastapi import FastAPI, Request, WebSocket
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from sluice import SluiceMiddleware

app = FastAPI()
sluice = client()
app.add_middleware(SluiceMiddleware, sluice=sluice, bodies=["/reports/*"])


class Report(BaseModel):
    title: str


@app.post("/reports/{user}")
@sluice.limit("reports", key=lambda request: {"attr:user": request.path_params["user"]}, cost=lambda request: int(request.query_params["pages"]))
async def reports(user: str, report: Report, pages: int = 1, note: Optional[str] = None):
    return {"user": user, "title": report.title, "pages": pages}


@app.get("/sync/{user}")
@sluice.limit("reports", key=lambda request: {"attr:user": request.path_params["user"]})
def sync(user: str, request: Request):
    return {"rule": request.scope["sluice"].raw["results"][0]["rule"]}


@app.get("/room")
@sluice.limit("room")
async def room():
    return "room"


@app.get("/free")
@sluice.exempt
async def free():
    return "free"


@app.get("/wrong")
@sluice.limit("no-such-rule")
async def wrong():
    return "never"


@app.get("/drip")
async def drip():
    async def pieces():
        for piece in ("a", "b", "c"):
            yield piece

    return StreamingResponse(pieces())


@app.websocket("/ws")
async def ws(socket: WebSocket):
    await socket.accept()
    await socket.send_text("hello")
    await socket.close()
