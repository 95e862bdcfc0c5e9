package adminapi

import (
	"bytes"
	"net/http"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
)

const (
	// maxStreams bounds the streams, because the admin address accepts few connections.
	maxStreams = 8
	// eventPatience is the time in which a client must read an event.
	eventPatience = 10 * time.Second
	// silence is the number of seconds without an event after which a stream sends a comment.
	silence = 15
)

// answered is the result of an operation that has sent its own answer.
type answered struct{}

// events sends the stats when they change, at most once a second. It returns when the client leaves, when the
// client's access ends, or when the server stops.
func (a *API) events(c *call) (any, error) {
	stats, err := a.Control.Stats(c.who)
	if err != nil {
		return nil, err
	}
	if a.streams.Add(1) > maxStreams {
		a.streams.Add(-1)
		return nil, control.Unavailable("too many streams")
	}
	defer a.streams.Add(-1)
	writer := http.NewResponseController(c.w)
	h := c.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	// Remove the deadline for the body; otherwise the connection would be treated as broken when it passes.
	_ = writer.SetReadDeadline(time.Time{})
	send := func(data []byte) bool {
		_ = writer.SetWriteDeadline(time.Now().Add(eventPatience))
		_, err := c.w.Write(data)
		return err == nil && writer.Flush() == nil
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var sent *control.Stats
	for quiet := 0; ; quiet++ {
		switch {
		case stats != sent:
			if !send(event(control.JSON(stats))) {
				return answered{}, nil
			}
			sent, quiet = stats, 0
		case quiet >= silence:
			if !send([]byte(":\n\n")) {
				return answered{}, nil
			}
			quiet = 0
		}
		select {
		case <-c.Context().Done():
			return answered{}, nil
		case <-a.Done:
			return answered{}, nil
		case <-tick.C:
		}
		if c.who, err = a.Access.Identify(c.Request); err != nil { // for example, the token has expired
			return answered{}, nil
		}
		if stats, err = a.Control.Stats(c.who); err != nil { // for example, the token has lost its role
			return answered{}, nil
		}
	}
}

// event formats text, which has one line, as an event.
func event(text []byte) []byte {
	return append(append([]byte("event: stats\ndata: "), bytes.TrimSpace(text)...), "\n\n"...)
}
