import django
from common import SETTINGS, URL, login
from django.conf import settings
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import path

from sluice import outcome


def plain(text, status=200):
    return HttpResponse(text, status=status, content_type="text/plain")


def users(request):
    return plain("alice")


def log_in(request):
    status, text = login(request.POST.get("password"))
    return plain(text, status)


def health(request):
    return plain("ok")


def boom(request):
    raise RuntimeError("boom")


def priced(request):
    outcome(cost=3)
    return plain("priced")


def stream(request):
    return StreamingHttpResponse(iter([b"one ", b"two"]), content_type="text/plain")


urlpatterns = [
    path("api/users", users),
    path("auth/login", log_in),
    path("health", health),
    path("boom", boom),
    path("priced", priced),
    path("stream", stream),
]

settings.configure(
    SECRET_KEY="tests",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    APPEND_SLASH=False,
    MIDDLEWARE=["sluice.django.SluiceMiddleware"] if URL else [],
    SLUICE={"url": URL, **SETTINGS},
)
django.setup()

from django.core.asgi import get_asgi_application  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402

app = get_wsgi_application()
asgi = get_asgi_application()
