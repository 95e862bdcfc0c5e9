package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
)

// fragments are the IDs of the elements of the first page that are updated. The template of an element is named
// "first-" plus the ID.
var fragments = []string{
	"headline", "tiles", "chart-head", "rules", "upstreams", "loads", "verdict", "who", "harmed", "health", "changes", "ending", "shadowed",
}

const (
	// maxStreams bounds the open streams. They and the streams of the admin API may use half of the connections of
	// the admin address.
	maxStreams      = 24
	maxStreamsOfOne = 12
	writeTime       = 10 * time.Second
)

// streamTime is the interval of updates of an open page.
const streamTime = 2 * time.Second

// live counts the open streams.
type live struct {
	mu  sync.Mutex
	all int
	by  map[string]int
}

func (l *live) enter(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= maxStreams || l.by[name] >= maxStreamsOfOne {
		return false
	}
	if l.by == nil {
		l.by = map[string]int{}
	}
	l.all++
	l.by[name]++
	return true
}

func (l *live) leave(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.by[name]--; l.by[name] == 0 {
		delete(l.by, name)
	}
}

// update has the changes since the last update of a page.
type update struct {
	At    int64             `json:"at"` // unix seconds
	Chart *chart            `json:"chart"`
	HTML  map[string]string `json:"html"`
	// Say is the headline for screen readers, if its subject has changed.
	Say string `json:"say,omitempty"`
}

// stream keeps a page up to date until the page is closed, the server stops, or the caller may no longer see the page.
func (s *server) stream(c *call) error {
	if site := c.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return control.Problemf(http.StatusForbidden, "Only pages of this server can use this stream.")
	}
	if !s.live.enter(c.caller.Name) {
		c.w.Header().Set("Retry-After", "30")
		return control.Problemf(http.StatusServiceUnavailable, "Too many pages are open: this one is not updated.")
	}
	defer s.live.leave(c.caller.Name)
	out := http.NewResponseController(c.w)
	_ = out.SetReadDeadline(time.Time{}) // the connection may have no deadlines
	c.w.Header().Set("Content-Type", "text/event-stream")
	c.w.Header().Set("X-Accel-Buffering", "no")
	tick := time.NewTicker(streamTime)
	defer tick.Stop()
	sent := sentUpdates{seen: map[string]string{}}
	for {
		_ = out.SetWriteDeadline(time.Now().Add(writeTime))
		if err := s.sendUpdate(c, &sent); err != nil {
			return nil // the browser has left
		}
		if err := out.Flush(); err != nil {
			return nil
		}
		select {
		case <-c.Context().Done():
			return nil
		case <-s.Done:
			return nil
		case <-tick.C:
		}
		if s.identify(c) != nil || !c.caller.Role.May(source.Viewer) {
			_, _ = fmt.Fprint(c.w, "event: ended\ndata: {}\n\n")
			return nil
		}
	}
}

// sentUpdates remembers the updates that were sent to a page.
type sentUpdates struct {
	seen     map[string]string
	headline string
}

// sendUpdate sends the changes to the page.
func (s *server) sendUpdate(c *call, t *sentUpdates) error {
	var err error
	if c.policy, err = s.Control.InForce(c.caller); err != nil {
		return err
	}
	f := s.firstShown(c, c.URL.Query())
	shown := s.shownOf(c, page{Section: "now", Data: f})
	u := update{At: f.At.Unix(), Chart: f.Chart, HTML: map[string]string{}}
	for _, id := range fragments {
		var b bytes.Buffer
		if err := templates()["first"].ExecuteTemplate(&b, "first-"+id, shown); err != nil {
			s.Logger.Error("console: rendering part of a page failed", "part", id, "error", err)
			continue
		}
		if html := b.String(); t.seen[id] != html {
			t.seen[id], u.HTML[id] = html, html
		}
	}
	if about := f.Headline.Level + "\x00" + f.Headline.Rule + "\x00" + f.Headline.Upstream; about != t.headline {
		t.headline, u.Say = about, f.Text
	}
	data, err := json.Marshal(u)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.w, "event: view\ndata: %s\n\n", data)
	return err
}
