"""A WSGI application without a framework."""

from urllib.parse import parse_qs

from common import SETTINGS, URL, client, login

from sluice import SluiceWSGIMiddleware, outcome


def application(environ, start_response):
    path, status, body = environ["PATH_INFO"], "200 OK", [b"alice"]
    if path == "/auth/login":
        form = parse_qs(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])).decode())
        code, text = login(form.get("password", [""])[0])
        status, body = ("200 OK" if code == 200 else "401 Unauthorized"), [text.encode()]
    elif path == "/health":
        body = [b"ok"]
    elif path == "/boom":
        raise RuntimeError("boom")
    elif path == "/priced":
        outcome(cost=3)
        body = [b"priced"]
    elif path == "/stream":
        body = iter([b"one ", b"two"])
    elif path != "/api/users":
        status, body = "404 Not Found", [b"not here"]
    if environ["REQUEST_METHOD"] == "HEAD":
        body = []
    start_response(status, [("Content-Type", "text/plain")])
    return body


app = SluiceWSGIMiddleware(application, client(), **SETTINGS) if URL else application
