package checkapi

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"time"
)

const (
	// maxBody is the maximum size of a body in bytes.
	maxBody = 2 << 20
	// Calls with up to about smallBody bytes and up to smallBatch checks are handled immediately. Of larger calls, at
	// most maxLarge are handled at a time.
	smallBody  = 64 << 10
	smallBatch = 64
	maxLarge   = 16
	// largePatience is the maximum time for which a large call waits for its turn.
	largePatience = 5 * time.Second
)

// jsonType is the required Content-Type of a call. With this type, a web page cannot make calls without a CORS
// preflight.
const jsonType = "application/json"

func isJSON(fields []string) bool {
	if len(fields) != 1 || fields[0] == jsonType {
		return len(fields) == 1
	}
	kind, _, err := mime.ParseMediaType(fields[0])
	return err == nil && kind == jsonType
}

// read returns the body.
func (c *call) read() (string, *problem) {
	h := c.r.Header
	switch {
	case !isJSON(h["Content-Type"]):
		return "", problemf(http.StatusUnsupportedMediaType, "send the body as JSON, with \"Content-Type: application/json\"")
	case h["Content-Encoding"] != nil:
		return "", problemf(http.StatusUnsupportedMediaType, "send the body without a Content-Encoding")
	case c.r.ContentLength > maxBody:
		return "", tooLarge()
	}
	buf := slices.Grow(c.in[:0], int(min(max(c.r.ContentLength+1, 512), smallBody)))
	for {
		n, err := c.r.Body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		c.in = buf
		switch {
		case err == io.EOF:
			return string(buf), nil
		case err != nil:
			return "", brokenOff(err)
		case len(buf) > maxBody:
			return "", tooLarge()
		case len(buf) == cap(buf):
			if p := c.reserve(2*len(c.in) > smallBody); p != nil {
				return "", p
			}
			buf = slices.Grow(buf, len(buf))
		}
	}
}

// reserve waits until a large call may be handled.
func (c *call) reserve(large bool) *problem {
	if c.large || !large {
		return nil
	}
	t := time.NewTimer(largePatience)
	defer t.Stop()
	select {
	case c.api.large <- struct{}{}:
		c.large = true
		return nil
	case <-t.C:
		return unavailable("too many large requests are being handled: try again, or send fewer checks at once").set("Connection", "close")
	}
}

func tooLarge() *problem {
	return problemf(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes: send fewer checks at once", maxBody).set("Connection", "close")
}

func brokenOff(err error) *problem {
	p := problemf(http.StatusBadRequest, "the body ended early")
	if errors.Is(err, os.ErrDeadlineExceeded) {
		p = problemf(http.StatusRequestTimeout, "the body took too long")
	}
	return p.set("Connection", "close")
}
