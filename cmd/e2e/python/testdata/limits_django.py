import json

import django
from common import URL
from django.conf import settings
from django.http import HttpResponse, JsonResponse
from django.urls import path

settings.configure(
    SECRET_KEY="tests",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=["sluice.django.SluiceMiddleware"],
    SLUICE={"url": URL, "bodies": ["/reports/*"], "attributes": lambda request: {"account": request.headers.get("X-User")}},
)
django.setup()

from sluice.django import exempt, limit  # noqa: E402


def user_of(request):
    return {"attr:user": request.resolver_match.kwargs["user"]}


@limit("reports", key=user_of, cost=lambda request: int(request.GET["pages"]))
def reports(request, user):
    return JsonResponse({"user": user, "title": json.loads(request.body)["title"], "pages": int(request.GET["pages"])})


@limit("reports", key=user_of)
def sync(request, user):
    return JsonResponse({"rule": request.sluice.raw["results"][0]["rule"]})


@exempt
def free(request):
    return HttpResponse("free")


@limit("no-such-rule")
def wrong(request):
    return HttpResponse("never")


@limit("reports", key=user_of)
async def awaited(request, user):
    return HttpResponse("awaited")


urlpatterns = [
    path("reports/<user>", reports),
    path("sync/<user>", sync),
    path("awaited/<user>", awaited),
    path("free", free),
    path("wrong", wrong),
]

from django.core.asgi import get_asgi_application  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402

app = get_wsgi_application()
asgi = get_asgi_application()
