"""A Django project with limits, in a single file: python3 django_app.py runserver 8000"""

import sys

import django
from django.conf import settings
from django.http import HttpResponse
from django.urls import path

MIDDLEWARE = [
    "sluice.django.SluiceMiddleware",
]
SLUICE = {"url": "http://localhost:8081", "on_error": lambda request: "deny" if request and request.path == "/login" else "allow"}

settings.configure(
    SECRET_KEY="change me",
    ALLOWED_HOSTS=["localhost", "127.0.0.1"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=MIDDLEWARE,
    SLUICE=SLUICE,
)
django.setup()

from sluice.django import exempt, limit  # noqa: E402


@limit("reports", key=lambda request: {"attr:customer": request.resolver_match.kwargs["customer"]})
def report(request, customer):
    return HttpResponse(f"report of {customer}")


@exempt
def health(request):
    return HttpResponse("ok")


urlpatterns = [path("reports/<customer>", report), path("health", health)]

if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
