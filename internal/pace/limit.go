package pace

import (
	"cmp"
	"time"
)

// limit is the known state of a limit of a server.
type limit struct {
	left  int64         // how many requests can be sent before limit.until
	until time.Time     // from this time on, one request can be sent in each interval, until the server reports more
	each  time.Duration // the length of that interval; 0 stands for the constant each
	since time.Time     // when the limit became known
	known time.Time     // when the latest state or refusal was recorded

	width  int // after an unexplained refusal, how many requests are tried at a time; 0 means any number
	passed int // how many requests have been allowed with this width

	always  bool   // whether every answer that reported limits has contained this one
	route   uint64 // a route to which it applies
	several bool   // whether the limit applies to other routes, too
}

// each is the time between two requests if the server's rate is unknown.
const each = time.Second

// wait returns how long a request has to wait for the limit.
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

// update records the state in the answer to a request. The parameter uncounted is the number of other requests that
// the server may not have counted when it answered. Answers may overtake each other, so an answer can raise the
// number of remaining requests only if its request was sent after the latest state was recorded.
func (l *limit) update(s State, uncounted int64, sent, now time.Time) {
	left := max(0, s.Left-uncounted)
	newer := sent.After(l.known)
	if !newer && left >= l.left && !l.known.IsZero() {
		return
	}
	if newer || l.known.IsZero() {
		l.known = now
	}
	l.left, l.until = left, now.Add(s.Reset)
	if s.Quota > 0 {
		l.each = max(1, s.Window/time.Duration(s.Quota))
	}
}

// refuse records a refusal that no reported limit explains. No request is sent for the promised time; then one
// request is tried.
func (l *limit) refuse(promise time.Duration, now time.Time) {
	l.width, l.passed, l.left, l.known = 1, 0, 0, now
	if until := now.Add(promise); until.After(l.until) {
		l.until = until
	}
}

// widest is the largest width. When the width would exceed it, requests are no longer delayed.
const widest = 32

// pass records that the server has allowed a request, which was sent at the given time. After a refusal, another
// request can then be sent. When as many requests as the width have been allowed, the width grows by one.
func (l *limit) pass(sent, now time.Time) {
	if l.width == 0 || !sent.After(l.known) {
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
