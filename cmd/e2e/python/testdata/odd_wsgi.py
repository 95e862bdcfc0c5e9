"""Rare cases, in threads."""

import hashlib
import threading

from common import client

from sluice import SluiceWSGIMiddleware, outcome

sluice = client()
going = threading.Event()


def application(environ, start_response):
    path, fields, body = environ["PATH_INFO"], [], [b"plain"]
    if path in ("/upload", "/checked/upload"):
        body = [hashlib.sha256(environ["wsgi.input"].read()).hexdigest().encode()]
    elif path == "/hold":
        going.wait()
        body = [b"held"]
    elif path == "/go":
        going.set()
    elif path == "/priced":
        outcome(cost=3)
    elif path == "/header":
        fields = [("X-Cost", "4")]
    elif path == "/drip":
        body = (b"x" * 1000 for _ in range(3))
    start_response("200 OK", [("Content-Type", "text/plain"), *fields])
    return body


limited = SluiceWSGIMiddleware(application, sluice, bodies=["/checked/*"])


def app(environ, start_response):
    if environ["PATH_INFO"] == "/waiting":
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [str(len(sluice._pool._queue)).encode()]
    if environ["PATH_INFO"] == "/go":
        return application(environ, start_response)
    return limited(environ, start_response)
