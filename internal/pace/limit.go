package pace

import (
	"cmp"
	"time"
)

// limit is the known state of a limit of a server.
type limit struct {
	left  int64         // the number of requests that may be sent before until
	until time.Time     // from then on, one request may be sent in each interval, until the server reports more
	each  time.Duration // that interval; 0: the constant each
	since time.Time     // when the limit became known
	told  time.Time     // when the latest state or refusal was recorded

	width  int // after an unexplained refusal, how many requests are tried at a time; 0: any number
	passed int // how many of these have been allowed

	always  bool   // every answer with states has contained this limit
	route   uint64 // a route to which it applies
	several bool   // it applies to other routes, too
}

// each is the time between two requests if the server's rate is unknown.
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
// latest state was known can raise the number of remaining requests.
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

// refuse records a refusal that no state explains: no request is sent for the promised time, and then one as a
// trial.
func (l *limit) refuse(promise time.Duration, now time.Time) {
	l.width, l.passed, l.left, l.told = 1, 0, 0, now
	if until := now.Add(promise); until.After(l.until) {
		l.until = until
	}
}

// widest is the largest width. Above it, requests are no longer delayed.
const widest = 32

// pass records that the server has allowed a request, which was sent at sent. After a refusal, this makes room for
// another request, and for one more when as many requests as the width have been allowed.
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
