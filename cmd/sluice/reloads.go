package main

import (
	"errors"
	"log/slog"
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
	r.reloads.refused.Add(1)
	r.reloads.fileStays.Store(true)
	r.noteRefused(err)
}

// fileHolds notes that what the file says is in force.
func (r *rules) fileHolds() {
	if r.reloads.fileStays.Swap(false) {
		r.noteHeld()
	}
}

// maxRefused bounds the problems that are logged.
const maxRefused = 20

// logRefused says why something new is not in force, and reports whether it was read at all.
func logRefused(log *slog.Logger, unread, refused string, err error) bool {
	problems, _ := errors.AsType[policy.Errors](err)
	if len(problems) == 0 {
		log.Error(unread, "error", err)
		return false
	}
	for _, p := range problems[:min(len(problems), maxRefused)] {
		log.Error(refused, "problem", p.String())
	}
	if more := len(problems) - maxRefused; more > 0 {
		log.Error(refused, "more_problems", more)
	}
	return true
}
