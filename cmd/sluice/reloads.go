package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/policy"
)

// reloads is what has become of the policies that were read.
type reloads struct {
	taken, refused atomic.Uint64 // that of the start is one
	last           atomic.Int64  // when one came into force, in milliseconds since the epoch
	fileStays      atomic.Bool   // what the file says is refused, and an older policy stays
}

func (r *reloads) took(now time.Time) {
	r.taken.Add(1)
	r.last.Store(now.UnixMilli())
}

// refuseFile notes that the file is refused, and why.
func (r *rules) refuseFile(err error) {
	defer r.noteLooked()
	r.reloads.refused.Add(1)
	r.reloads.fileStays.Store(true)
	r.noteRefused(err)
}

// noteLooked notes that the file has been looked at.
func (r *rules) noteLooked() {
	select {
	case r.looked <- struct{}{}:
	default: // nobody has asked
	}
}

// relay passes a hangup on to whoever reads the file, and tells systemd when that begins and when it is
// done, one after the other.
func (r *rules) relay(ctx context.Context, hangups <-chan os.Signal, reload chan<- os.Signal) {
	for {
		var hangup os.Signal
		select {
		case <-ctx.Done():
			return
		case hangup = <-hangups:
		}
		select {
		case <-r.looked: // of a change that was noticed before
		default:
		}
		tellSystemd(r.log, "RELOADING=1"+monotonic())
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
		tellSystemd(r.log, "READY=1")
	}
}

// fileHolds notes that what the file says is in force.
func (r *rules) fileHolds() {
	if r.reloads.fileStays.Swap(false) {
		r.noteHeld()
	}
}

// maxRefused bounds the problems that are logged.
const maxRefused = 20

// problems returns what is wrong with a policy that was read, and nothing if it could not be read.
func problems(err error) policy.Errors {
	all, _ := errors.AsType[policy.Errors](err)
	return all
}

// logRefused says why something new is not in force.
func logRefused(log *slog.Logger, unread, refused string, err error) {
	problems := problems(err)
	if len(problems) == 0 {
		log.Error(unread, "error", err)
		return
	}
	for _, p := range problems[:min(len(problems), maxRefused)] {
		log.Error(refused, "problem", p.String())
	}
	if more := len(problems) - maxRefused; more > 0 {
		log.Error(refused, "more_problems", more)
	}
}
