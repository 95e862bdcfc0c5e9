"""cancelled.py URL cancels requests, as servers do after a timeout. Afterwards, their permits must not be held."""

import asyncio
import sys

from django.conf import settings

settings.configure(SECRET_KEY="tests", ALLOWED_HOSTS=["*"], SLUICE={"url": sys.argv[1], "deadline": 60})

from django.test import AsyncRequestFactory, RequestFactory  # noqa: E402

import sluice.django  # noqa: E402
from sluice import Sluice, SluiceMiddleware, SluiceWSGIMiddleware  # noqa: E402

held = {}
client = Sluice(sys.argv[1], deadline=60)


async def cancelled(name, sluice, request):
    task = asyncio.ensure_future(request)
    while not sluice.keeper._places:
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait({task})
    held[name] = len(sluice.keeper._places)


def stopped(name, sluice, call):
    try:
        call()
    except SystemExit:
        held[name] = len(sluice.keeper._places)


async def forever(*_):
    await asyncio.sleep(3600)


def stop(*_):
    raise SystemExit


async def main():
    await cancelled("Django", sluice.django.sluice(), sluice.django.SluiceMiddleware(forever)(AsyncRequestFactory().get("/")))
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "client": ("192.0.2.2", 1)}
    await cancelled("ASGI", client, SluiceMiddleware(forever, client)(scope, forever, forever))


asyncio.run(main())
environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "REMOTE_ADDR": "192.0.2.3"}
stopped("Django in threads", sluice.django.sluice(), lambda: sluice.django.SluiceMiddleware(stop)(RequestFactory().get("/", REMOTE_ADDR="192.0.2.4")))
stopped("WSGI", client, lambda: SluiceWSGIMiddleware(stop, client)(environ, stop))
print(held)
