import json

from quart import Quart, request
from took import PATHS, member, read, say

app = Quart(__name__)
app.url_map.strict_slashes = False


def handler(route=None):
    async def take(*_):
        async def some(f):
            try:
                return await f
            except Exception:
                return None

        body = await request.get_data()
        form, values, data = await some(request.form), await some(request.values), await some(request.get_json())
        return say(request.headers.get("X-Trial"), read({
            "path router": lambda: route,
            "path request.path": lambda: request.path,
            "body form": lambda: form.get("user_name"),
            "body values": lambda: values.get("user_name"),
            "body json": lambda: member(data, "user_name"),
            "body json.loads": lambda: member(json.loads(body), "user_name"),
            "query args": lambda: request.args.get("user_name"),
            "cookie cookies": lambda: request.cookies.get("user_name"),
            "header headers": lambda: request.headers.get("X-User-Name"),
            "host host": lambda: request.host,
        }))
    return take


for path in PATHS:
    app.add_url_rule(path, path, handler(path), methods=["GET", "POST"])
app.register_error_handler(404, handler())
app.register_error_handler(405, handler())
