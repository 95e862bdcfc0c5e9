from common import SETTINGS, URL, client, login
from flask import Flask, Response, request

from sluice import outcome
from sluice.flask import SluiceFlask

app = Flask(__name__)
if URL:
    SluiceFlask(app, client(), **SETTINGS)


def plain(text, status=200):
    return Response(text, status, mimetype="text/plain")


@app.route("/api/users", methods=["GET", "HEAD", "OPTIONS"], provide_automatic_options=False)
def users():
    return plain("alice")


@app.post("/auth/login")
def log_in():
    status, text = login(request.form.get("password"))
    return plain(text, status)


@app.get("/health")
def health():
    return plain("ok")


@app.get("/boom")
def boom():
    raise RuntimeError("boom")


@app.get("/priced")
def priced():
    outcome(cost=3)
    return plain("priced")


@app.get("/stream")
def stream():
    return plain(iter([b"one ", b"two"]))
