package console

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
)

const (
	undoTime   = 30 * time.Second
	noticeTime = 2 * time.Minute
	maxNotices = 500
)

// undo takes back what an act has done. It fails if somebody has changed the same since.
type undo func(ctx context.Context, who control.Caller) error

// notice says what was done, on the page that comes after it.
type notice struct {
	ID   string
	Text string
	undo undo   // nil: it cannot be undone
	to   string // the page that it is on
	whom string
	at   time.Time
	used bool
}

// Left returns for how many more seconds it can be undone.
func (n *notice) Left() int {
	if n.undo == nil || n.used {
		return 0
	}
	return max(0, int(time.Until(n.at.Add(undoTime)).Seconds()))
}

// notices are those of the last minutes.
type notices struct {
	mu  sync.Mutex
	all []*notice
}

// done leads to another page, which says what was done, and undoes it unless undo is nil.
func (c *call) done(to, text string, undo undo) error {
	n := &notice{ID: rand.Text(), Text: text, undo: undo, to: to, whom: c.caller.Name, at: time.Now()}
	c.s.notices.add(n)
	sign := "?"
	if strings.Contains(to, "?") {
		sign = "&"
	}
	return c.redirect(to + sign + "done=" + n.ID)
}

func (l *notices) add(n *notice) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, func(o *notice) bool { return time.Since(o.at) > noticeTime })
	if len(l.all) >= maxNotices {
		l.all = slices.Delete(l.all, 0, 1)
	}
	l.all = append(l.all, n)
}

// get returns a copy of the caller's own notice of that ID, or nil.
func (l *notices) get(id string, who control.Caller) *notice {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.all {
		if n.ID == id && n.whom == who.Name && time.Since(n.at) <= noticeTime {
			copied := *n
			return &copied
		}
	}
	return nil
}

// use marks a notice as undone, and reports whether it was not before.
func (l *notices) use(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.all {
		if n.ID == id && !n.used {
			n.used = true
			return true
		}
	}
	return false
}

func (s *server) undo(c *call) error {
	n := s.notices.get(c.PostForm.Get("id"), c.caller)
	if n == nil || n.Left() == 0 || !s.notices.use(n.ID) {
		return control.Problemf(http.StatusGone, "It is too late to undo this here: it was done more than %d seconds ago, or has been undone.", int(undoTime.Seconds()))
	}
	if err := n.undo(c.Context(), c.caller); err != nil {
		return err
	}
	return c.done(n.to, "Undone: "+n.Text, nil)
}
