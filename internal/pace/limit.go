package pace

import (
	"cmp"
	"time"
)

// limit is what is known of a limit of a server.
type limit struct {
	left  int64         // how many requests may be sent before until
	until time.Time     // from then on there is one each time, until the server tells more
	each  time.Duration // each if the rate of the server is unknown
	since time.Time     // when it became known
	told  time.Time     // when the latest news came

	width  int // how many are tried at a time since it has refused without telling a state; 0: any
	passed int // of these

	always  bool   // every answer that told of limits has told of this one
	route   uint64 // one that it holds for
	several bool   // and it holds for others, too
}

// each is the time between two requests when nothing is known.
const each = time.Second

// wait returns how long a request has to wait.
func (l *limit) wait(now time.Time) time.Duration {
	if l.left > 0 {
		return 0
	}
	return max(0, l.until.Sub(now))
}

// take counts a request.
func (l *limit) take(now time.Time) {
	switch {
	case l.left > 0:
		l.left--
	case !now.Before(l.until) && !l.until.IsZero():
		l.until = now.Add(cmp.Or(l.each, each))
	}
}

// tell records the state in the answer to a request. uncounted is the number of other requests that the server may
// not have counted by then. Answers may overtake each other: only the answer to a request that was sent after the
// latest state was known can raise what remains.
func (l *limit) tell(s State, uncounted int64, sent, now time.Time) {
	left := max(0, s.Left-uncounted)
	newer := sent.After(l.told)
	if !newer && left >= l.left && !l.told.IsZero() {
		return
	}
	if newer || l.told.IsZero() {
		l.told = now
	}
	l.left, l.until = left, now.Add(s.Reset)
	if s.Quota > 0 {
		l.each = max(1, s.Window/time.Duration(s.Quota))
	}
}

// refuse notes a refusal without a state: nothing for so long, and then one request to try.
func (l *limit) refuse(promise time.Duration, now time.Time) {
	l.width, l.passed, l.left, l.told = 1, 0, 0, now
	if until := now.Add(promise); until.After(l.until) {
		l.until = until
	}
}

// widest is the number under way from which no request is delayed.
const widest = 32

// pass notes that a request was let through that was sent at some time. After a refusal it makes
// room for the next, and when all that may be under way have passed, for one more.
func (l *limit) pass(sent, now time.Time) {
	if l.width == 0 || !sent.After(l.told) {
		return
	}
	l.left, l.until = l.left+1, now.Add(each)
	if l.passed++; l.passed == l.width {
		l.left, l.width, l.passed = l.left+1, l.width+1, 0
	}
	if l.width > widest {
		l.width, l.left, l.until = 0, 0, time.Time{}
	}
}
