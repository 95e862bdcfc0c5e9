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

// Reloads has the numbers of policies that were read and applied or refused.
type Reloads struct {
	Taken, Refused uint64    // including the policy at the start
	Last           time.Time // the time at which the policy in force was applied
	Stays          bool      // the present file or database is refused, so an older policy is in force
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

// refuseFile records that the file is refused, with the reason.
func (r *Rules) refuseFile(err error) {
	defer r.noteLooked()
	r.reloads.refused.Add(1)
	r.stack.RefuseFile(err)
	r.noteRefused(err)
}

// noteLooked informs relay that the file has been read.
func (r *Rules) noteLooked() {
	select {
	case r.looked <- struct{}{}:
	default: // relay is not waiting
	}
}

// relay passes hangups on as reloads, one after the other. It notifies systemd of the start and the end of each
// reload.
func (r *Rules) relay(ctx context.Context, hangups <-chan os.Signal, reload chan<- os.Signal) {
	for {
		var hangup os.Signal
		select {
		case <-ctx.Done():
			return
		case hangup = <-hangups:
		}
		select {
		case <-r.looked: // discard the notice of a reading before the hangup
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

// maxLogged is how many problems, and how many changed limits, of one policy are logged one by one.
const maxLogged = 20

// problems returns the errors of an invalid policy, or nil if the policy could not be read.
func problems(err error) policy.Errors {
	all, _ := errors.AsType[policy.Errors](err)
	return all
}

// logRefused logs the reasons why a policy is not in force. If the policy could not be read, it logs the message
// unread; otherwise it logs the message refused for each problem.
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

// logRestarts logs the changed limits, because a reload resets their counters.
func logRestarts(log *slog.Logger, all []policy.Restart) {
	for _, a := range all[:min(len(all), maxLogged)] {
		log.Warn("limit changed: counters reset", "rule", a.Rule, "of", a.From, "was", a.Was, "is", a.Is)
	}
	if more := len(all) - maxLogged; more > 0 {
		log.Warn("limits changed: counters reset", "more", more)
	}
}
