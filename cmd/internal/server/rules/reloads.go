package rules

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/server/listeners"
	"github.com/sluicehq/sluice/policy"
)

// Reloads counts the policies that were read, by whether they were applied.
type Reloads struct {
	Taken, Refused uint64    // including the policy at the start
	Last           time.Time // when the policy in force came into force
	Stays          bool      // the file or the database is refused, and an older policy is in force
}

// Reloads returns the counts from the start to now.
func (r *Rules) Reloads() Reloads {
	l := &r.reloads
	file, database := r.stack.Refused()
	return Reloads{l.taken.Load(), l.refused.Load(), time.UnixMilli(l.last.Load()), cmp.Or(file, database) != nil}
}

type reloads struct {
	taken, refused atomic.Uint64
	last           atomic.Int64 // in milliseconds since the epoch
}

// refuseFile records that the file is refused, and why.
func (r *Rules) refuseFile(err error) {
	defer r.noteLooked()
	r.reloads.refused.Add(1)
	r.stack.RefuseFile(err)
	r.noteRefused(err)
}

// noteLooked tells relay that the file has been read.
func (r *Rules) noteLooked() {
	select {
	case r.looked <- struct{}{}:
	default: // relay is not waiting
	}
}

// relay passes hangups on as reloads, one after the other, and notifies systemd when each starts and ends.
func (r *Rules) relay(ctx context.Context, hangups <-chan os.Signal, reload chan<- os.Signal) {
	for {
		var hangup os.Signal
		select {
		case <-ctx.Done():
			return
		case hangup = <-hangups:
		}
		select {
		case <-r.looked: // the file was read because of a change before the hangup
		default:
		}
		listeners.NotifySystemd(r.Log, "RELOADING")
		select {
		case <-ctx.Done():
			return
		case reload <- hangup:
		}
		select {
		case <-ctx.Done():
			return
		case <-r.looked:
		}
		listeners.NotifySystemd(r.Log, "READY")
	}
}

// maxLogged bounds the lines about one policy.
const maxLogged = 20

// problems returns what is wrong with a policy. It returns nothing if the policy could not be read.
func problems(err error) policy.Errors {
	all, _ := errors.AsType[policy.Errors](err)
	return all
}

// logRefused logs why a policy is not in force. The message is unread if the policy could not be read; otherwise it
// is refused, with a line for each problem.
func logRefused(log *slog.Logger, unread, refused string, err error) {
	problems := problems(err)
	if len(problems) == 0 {
		log.Error(unread, "error", err)
		return
	}
	for _, p := range problems[:min(len(problems), maxLogged)] {
		log.Error(refused, "problem", p.String())
	}
	if more := len(problems) - maxLogged; more > 0 {
		log.Error(refused, "more_problems", more)
	}
}

// logRestarts logs limits with counters that a reload has reset, because the limits have changed.
func logRestarts(log *slog.Logger, all []policy.Restart) {
	for _, a := range all[:min(len(all), maxLogged)] {
		log.Warn("limit changed: counters reset", "rule", a.Rule, "of", a.From, "was", a.Was, "is", a.Is)
	}
	if more := len(all) - maxLogged; more > 0 {
		log.Warn("limits changed: counters reset", "more", more)
	}
}
