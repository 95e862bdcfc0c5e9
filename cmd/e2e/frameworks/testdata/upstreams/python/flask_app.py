import json

from flask import Flask, request
from took import PATHS, member, port, read, say

app = Flask(__name__)
app.url_map.strict_slashes = False


def take(route=None):
    return say(request.headers.get("X-Trial"), read({
        "path router": lambda: route,
        "path request.path": lambda: request.path,
        "body values": lambda: request.values.get("user_name"),
        "body form": lambda: request.form.get("user_name"),
        "body json": lambda: member(request.json, "user_name"),
        "body json forced": lambda: member(request.get_json(force=True), "user_name"),
        "body json.loads": lambda: member(json.loads(request.get_data()), "user_name"),
        "body json, else form": lambda: member(request.json, "user_name") if request.is_json else request.form.get("user_name"),
        "query args": lambda: request.args.get("user_name"),
        "cookie cookies": lambda: request.cookies.get("user_name"),
        "header headers": lambda: request.headers.get("X-User-Name"),
        "host host": lambda: request.host,
    }))


def once():
    request.get_data(cache=True, parse_form_data=False)


app.before_request(once)
for path in PATHS:
    app.add_url_rule(path, path, lambda path=path: take(path), methods=["GET", "POST"])
app.register_error_handler(404, lambda e: take())
app.register_error_handler(405, lambda e: take())

if __name__ == "__main__":
    app.run("127.0.0.1", port)
