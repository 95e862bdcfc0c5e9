import json

from took import PATHS, member, port, read, say

from django.conf import settings
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import path, re_path

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="-", USE_TZ=True,
                   LOGGING_CONFIG=None, DATA_UPLOAD_MAX_MEMORY_SIZE=1 << 20)


def take(request, route=None):
    body = request.body
    return HttpResponse(say(request.headers.get("X-Trial"), read({
        "path router": lambda: route,
        "path path_info": lambda: request.path_info,
        "path full": lambda: request.get_full_path().split("?")[0],
        "body POST": lambda: request.POST.get("user_name"),
        "body POST[]": lambda: request.POST["user_name"],
        "body json.loads": lambda: member(json.loads(body), "user_name"),
        "body json, else POST": lambda: member(json.loads(body), "user_name") if request.content_type == "application/json" else request.POST["user_name"],
        "query GET": lambda: request.GET.get("user_name"),
        "cookie COOKIES": lambda: request.COOKIES.get("user_name"),
        "header headers": lambda: request.headers.get("X-User-Name"),
        "host get_host": lambda: request.get_host(),
    })), content_type="application/json")


urlpatterns = [path(p[1:], take, {"route": p}) for p in PATHS] + [re_path("", take)]


class Quiet(WSGIRequestHandler):
    def log_message(self, *_): pass


ThreadedWSGIServer.daemon_threads = True
server = ThreadedWSGIServer(("127.0.0.1", port), Quiet)
server.set_app(get_wsgi_application())
server.serve_forever()
