import json

import bottle
from bottle import request
from took import PATHS, member, port, read, say

app = bottle.Bottle()


def take(route=None):
    def body():
        request.body.seek(0)
        return request.body.read()

    line = say(request.get_header("X-Trial"), read({
        "path router": lambda: route,
        "path request.path": lambda: request.path.rstrip("/"),
        "path url": lambda: request.urlparts.path,
        "body forms": lambda: request.forms.user_name or None,
        "body forms.get": lambda: request.forms.get("user_name"),
        "body POST": lambda: request.POST.get("user_name"),
        "body params": lambda: request.params.get("user_name"),
        "body json": lambda: member(request.json, "user_name"),
        "body json.loads": lambda: member(json.loads(body()), "user_name"),
        "query query": lambda: request.query.get("user_name"),
        "query GET": lambda: request.GET.getunicode("user_name"),
        "cookie get_cookie": lambda: request.get_cookie("user_name"),
        "header get_header": lambda: request.get_header("X-User-Name"),
        "host headers": lambda: request.get_header("Host"),
        "host urlparts": lambda: request.urlparts.netloc,
    }))
    return line


for path in PATHS:
    app.route(path, ["GET", "POST"], lambda path=path: take(path))
app.error(404)(lambda e: take())
app.error(405)(lambda e: take())

bottle.BaseRequest.MEMFILE_MAX = 1 << 20
app.run(host="127.0.0.1", port=port, quiet=True)
