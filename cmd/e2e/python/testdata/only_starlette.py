"""Only functions with a limit make checks."""

from common import client
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from sluice import SluiceMiddleware

sluice = client()


async def plain(request):
    return PlainTextResponse("plain")


@sluice.limit()
async def limited(request):
    return PlainTextResponse("limited")


app = Starlette(routes=[Route("/open", plain), Mount("/api", routes=[Route("/limited", limited)])])
app.add_middleware(SluiceMiddleware, sluice=sluice, everywhere=False, attributes=lambda request: {"user": request.headers.get("x-user")})
