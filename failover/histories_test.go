package failover_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/lease"
	"github.com/sluicehq/sluice/memory"
)

func TestHistories(t *testing.T) {
	t.Parallel()
	fresh := func() faultstore.TakerAt { return memory.New() }
	faultstore.Play(t, "testdata/histories.txt", fresh, func(t *testing.T, sv *faultstore.Store, settings map[string]string) faultstore.Subject {
		instances, _ := strconv.Atoi(settings["instances"])
		deadline, _ := time.ParseDuration(settings["deadline"])
		var log lines
		var shared failover.Shared = sv
		if settings["leased"] == "true" {
			leased := lease.New(sv)
			t.Cleanup(leased.Close)
			shared = leased
		}
		s := open(shared, failover.Config{Instances: instances, Deadline: deadline, Logger: logTo(&log)})
		take := func(_ time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
			return s.Take(context.Background(), charges, receipts)
		}
		status := func() map[string]int {
			st := s.Status()
			numbers := map[string]int{
				"unavailable": 0, "owing": st.Owing, "instances": int(s.Instances()), "written": int(st.WrittenBack), "unreadable": int(st.Unreadable),
				"shared": int(st.Shared), "local": int(st.Local), "failed": int(st.Failed), "timed_out": int(st.TimedOut),
				// lines of the log
				"changes": log.about("=\"shared store is"), "uncounted": log.about("cannot count the instances"),
				"counted": log.about("number of instances is known again"), "of_three": log.about("instances=3"),
				"unreadable_lines": log.about("contains foreign data"), "left_out": log.about("not_logged_since=400"),
			}
			if st.Degraded() {
				numbers["unavailable"] = 1
			}
			return numbers
		}
		return faultstore.Subject{Takes: []func(time.Duration, []sluice.Charge, []sluice.Receipt) error{take}, Status: status, Close: s.Close}
	})
}
