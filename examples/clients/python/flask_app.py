"""Limits in Flask. Requests are limited by the user of the session. One route has a rule of its own, and one is exempt."""

from flask import Flask, g, session

from sluice import Sluice
from sluice.flask import SluiceFlask

app = Flask(__name__)
app.secret_key = "change me"


@app.before_request
def log_in():
    g.user = session.get("user")


sluice = Sluice("http://localhost:8081")
SluiceFlask(app, sluice, attributes=lambda request: {"user": g.user})


def customer(request):
    return {"attr:customer": request.view_args["customer"]}


def pages(request):
    return max(1, request.args.get("pages", 1, type=int))


@app.post("/reports/<customer>")
@sluice.limit("reports", key=customer, cost=pages)
def report(customer):
    return {"report": customer}


@app.get("/health")
@sluice.exempt
def health():
    return "ok"
