"""Starlette itself, and forms and bodies as FastAPI reads them."""

import json

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
from took import PATHS, member, read, say


def handler(route=None):
    async def take(request):
        async def some(f):
            try:
                return await f()
            except Exception:
                return None

        body = await request.body()
        form, data = await some(request.form), await some(request.json)
        return Response(media_type="application/json", content=say(request.headers.get("X-Trial"), read({
            "path router": lambda: route,
            "path url": lambda: request.url.path,
            "path scope": lambda: request.scope["path"],
            "path raw": lambda: request.scope["raw_path"],
            "body form": lambda: form.get("user_name"),
            "body json": lambda: member(data, "user_name"),
            "body json.loads": lambda: member(json.loads(body), "user_name"),
            "query query_params": lambda: request.query_params.get("user_name"),
            "cookie cookies": lambda: request.cookies.get("user_name"),
            "header headers": lambda: request.headers.get("X-User-Name"),
            "host headers": lambda: request.headers.get("host"),
            "host url": lambda: request.url.hostname,
        })))
    return take


ANY = ["GET", "POST"]
app = Starlette(routes=[Route(p, handler(p), methods=ANY) for p in PATHS] + [Route("/{rest:path}", handler(), methods=ANY)])
