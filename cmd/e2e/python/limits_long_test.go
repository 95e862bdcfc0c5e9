//go:build long

package python

import (
	"net/http"
	"testing"
)

// Views of Django can have their own limits, in threads and with asyncio.
func TestLongDecorators(t *testing.T) {
	t.Parallel()
	decorators(t, []application{
		{module: "django", server: "waitress", target: "limits_django:app"},
		{module: "django", server: "uvicorn", target: "limits_django:asgi"},
	})
}

// On paths with checked bodies, a body that the middleware cannot read is rejected.
func TestLongUnreadableBody(t *testing.T) {
	t.Parallel()
	needs(t, "wsgiref")
	url := app(t, "wsgiref", "odd_wsgi:app", "SLUICE_URL=http://"+service(t, odd).Check)
	if status := chunked(t, url+"/checked/plain", "{}"); status != http.StatusLengthRequired {
		t.Errorf("a chunked body to /checked: %d", status)
	}
	if status := chunked(t, url+"/plain", "{}"); status != http.StatusOK {
		t.Errorf("a chunked body elsewhere: %d", status)
	}
}
