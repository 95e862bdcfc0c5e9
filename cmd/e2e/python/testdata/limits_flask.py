from common import client
from flask import Flask, abort, g, request

from sluice.flask import SluiceFlask

app = Flask(__name__)
app.secret_key = "tests"
sluice = client()


@app.before_request
def log_in():
    g.user = request.headers.get("X-User")
    if g.user == "mallory":
        return "who is that?", 401
    if g.user == "nobody":
        abort(403)
    return None


SluiceFlask(app, sluice, attributes=lambda request: {"account": g.user}, bodies=["/reports/*"])


@app.post("/reports/<user>")
@sluice.limit("reports", key=lambda request: {"attr:user": request.view_args["user"]}, cost=lambda request: int(request.args["pages"]))
def reports(user):
    return {"user": user, "title": request.json["title"], "pages": int(request.args["pages"])}


@app.get("/sync/<user>")
@sluice.limit("reports", key=lambda request: {"attr:user": request.view_args["user"]})
def sync(user):
    return {"rule": g.sluice.raw["results"][0]["rule"]}


@app.get("/free")
@sluice.exempt
def free():
    return "free"


@app.get("/wrong")
@sluice.limit("no-such-rule")
def wrong():
    return "never"
