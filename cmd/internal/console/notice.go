package console

import (
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
)

const (
	undoTime   = 30 * time.Second
	noticeTime = 2 * time.Minute
	// maxNotices is the maximum number of notices that are kept for a caller.
	maxNotices = 50
)

// notice is a message about an act, shown on the next page.
type notice struct {
	ID   string
	Text string
	undo undo   // nil: the act cannot be undone
	to   string // the page that shows the notice
	at   time.Time

	undoing sync.Mutex // held while undo runs
	undone  atomic.Bool
}

// Left returns how many seconds are left to undo the act.
func (n *notice) Left() int {
	if n.undo == nil || n.undone.Load() {
		return 0
	}
	return max(0, int(time.Until(n.at.Add(undoTime)).Seconds()))
}

func (n *notice) old() bool { return time.Since(n.at) > noticeTime }

// notices has the latest notices of each caller.
type notices struct {
	mu sync.Mutex
	of map[string][]*notice
}

// done redirects to another page, which shows a notice. Unless undo is nil, the notice has a button that calls it.
func (c *call) done(to, text string, undo undo) error {
	n := &notice{ID: rand.Text(), Text: text, undo: undo, to: to, at: time.Now()}
	c.s.notices.add(c.caller.Name, n)
	sign := "?"
	if strings.Contains(to, "?") {
		sign = "&"
	}
	return c.redirect(to + sign + "done=" + n.ID)
}

func (l *notices) add(name string, n *notice) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[string][]*notice{}
	}
	for name, all := range l.of {
		if all = slices.DeleteFunc(all, (*notice).old); len(all) == 0 {
			delete(l.of, name)
			continue
		}
		l.of[name] = all
	}
	own := append(l.of[name], n)
	l.of[name] = own[max(0, len(own)-maxNotices):]
}

// get returns the notice with an ID, or nil if the named caller has no such notice.
func (l *notices) get(id, name string) *notice {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.of[name]
	if i := slices.IndexFunc(own, func(n *notice) bool { return n.ID == id && !n.old() }); i >= 0 {
		return own[i]
	}
	return nil
}

func (s *server) undo(c *call) error {
	tooLate := control.Problemf(http.StatusGone, "It is too late to undo this: it was done more than %d seconds ago, or has been undone.", int(undoTime.Seconds()))
	n := s.notices.get(c.PostForm.Get("id"), c.caller.Name)
	if n == nil {
		return tooLate
	}
	n.undoing.Lock()
	defer n.undoing.Unlock()
	if n.Left() == 0 {
		return tooLate
	}
	if err := n.undo(c); err != nil {
		return err
	}
	n.undone.Store(true)
	return c.done(n.to, "Undone: "+n.Text, nil)
}
