import json
import sys

import falcon
import waitress
from took import PATHS, member, port, read, say


class Take:
    def __init__(self, route=None): self.route = route

    def on_get(self, request, response):
        body = request.bounded_stream.read()
        request.env["wsgi.input"] = __import__("io").BytesIO(body)
        response.content_type = "application/json"
        response.text = say(request.get_header("X-Trial"), read({
            "path router": lambda: self.route,
            "path request.path": lambda: request.path,
            "path uri": lambda: request.relative_uri.split("?")[0],
            "body media": lambda: member(falcon.Request(request.env, options=request.options).media, "user_name"),
            "body json.loads": lambda: member(json.loads(body), "user_name"),
            "query get_param": lambda: request.get_param("user_name"),
            "query params": lambda: request.params.get("user_name"),
            "cookie cookies": lambda: request.cookies.get("user_name"),
            "header get_header": lambda: request.get_header("X-User-Name"),
            "host host": lambda: request.host,
            "host netloc": lambda: request.netloc,
        }))

    on_post = on_get


app = falcon.App()
app.req_options.strip_url_path_trailing_slash = True
for path in PATHS:
    app.add_route(path, Take(path))
app.add_sink(lambda request, response, **_: Take().on_get(request, response))
waitress.serve(app, listen="127.0.0.1:%d" % port, _quiet=True)
