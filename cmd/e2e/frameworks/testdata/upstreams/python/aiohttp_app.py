import json

from aiohttp import web
from took import PATHS, member, port, read, say


def handler(route=None):
    async def take(request):
        async def some(f):
            try:
                return await f()
            except Exception:
                return None

        body = await request.read()
        form, data = await some(request.post), await some(request.json)
        return web.Response(content_type="application/json", text=say(request.headers.get("X-Trial"), read({
            "path router": lambda: route,
            "path request.path": lambda: request.path,
            "path rel_url": lambda: request.rel_url.path,
            "path raw_path": lambda: request.raw_path.split("?")[0],
            "body post": lambda: form.get("user_name"),
            "body json": lambda: member(data, "user_name"),
            "body json.loads": lambda: member(json.loads(body), "user_name"),
            "query query": lambda: request.query.get("user_name"),
            "cookie cookies": lambda: request.cookies.get("user_name"),
            "header headers": lambda: request.headers.get("X-User-Name"),
            "host host": lambda: request.host,
            "host url": lambda: request.url.host,
        })))
    return take


app = web.Application(client_max_size=1 << 20)
for path in PATHS:
    app.router.add_route("*", path, handler(path))
app.router.add_route("*", "/{rest:.*}", handler())
web.run_app(app, host="127.0.0.1", port=port, print=None)
