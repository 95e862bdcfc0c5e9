package resp

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// discarding is a connection that discards the replies.
type discarding struct{ net.Conn }

func (discarding) Write(p []byte) (int, error) { return len(p), nil }

// pipelined returns a connection that has just received commands, and a function that runs them.
func pipelined(tb testing.TB, commands string, observers ...func(context.Context, *policy.Observation)) (c *conn, run func()) {
	tb.Helper()
	s := New(Config{Config: door.Config{Engine: policy.NewEngine(memory.New(), nil)}})
	for _, f := range observers {
		s.Engine.Observe(f)
	}
	c = newConn(s, discarding{})
	c.in = []byte(commands)
	return c, func() {
		c.start, c.end = 0, len(c.in)
		c.runAll()
		c.flush()
	}
}

const throttle = "*5\r\n$11\r\nCL.THROTTLE\r\n$7\r\nuser123\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n"

// A decision allocates nothing, whether or not a client repeats its commands. The race detector makes pools drop items
// at random, so the test takes the minimum of many runs.
func TestNoAllocation(t *testing.T) {
	another := strings.Replace(throttle, "15", "16", 1)
	seen := 0
	see := func(_ context.Context, o *policy.Observation) { seen += len(o.Key(0)) + o.RuleIndex(0) }
	for name, commands := range map[string]string{"repeated": throttle, "another": another + "*1\r\n$4\r\nPING\r\n" + throttle, "a list": strings.Repeat(throttle, 64)} {
		_, run := pipelined(t, commands, see)
		least := testing.AllocsPerRun(1, run)
		for range 200 {
			least = min(least, testing.AllocsPerRun(1, run))
		}
		if least > 0 {
			t.Errorf("%s: %v allocations", name, least)
		}
	}
}

// The input buffer grows with the commands, within bounds, and shrinks afterwards.
func TestBuffer(t *testing.T) {
	c, _ := pipelined(t, "")
	for _, step := range []struct{ size, start, end, want int }{
		{smallBuffer, 0, 0, smallBuffer},
		{smallBuffer, 10, smallBuffer, 2 * smallBuffer}, // the buffer was filled, so more input may be waiting
		{smallBuffer, 0, smallBuffer, 2 * smallBuffer},
		{largeBuffer, largeBuffer, largeBuffer, largeBuffer},
		{largeBuffer, 0, largeBuffer, 2 * largeBuffer}, // half of a command that needs more room
		{maxCommand / 2, 0, maxCommand / 2, maxCommand},
		{maxCommand, 100, maxCommand, maxCommand},
		{maxCommand, 100, 100, smallBuffer},
	} {
		c.in, c.start, c.end = make([]byte, step.size), step.start, step.end
		c.makeRoom()
		if len(c.in) != step.want || c.start != 0 || c.end != step.end-step.start {
			t.Errorf("%+v: %d bytes, from %d to %d", step, len(c.in), c.start, c.end)
		}
	}
}

// BenchmarkPipelinedKeys decides about 12,800 keys under a limit that denies none.
func BenchmarkPipelinedKeys(b *testing.B) {
	p, err := policyfile.Parse("bench", []byte("version: 1\nrules:\n  - {name: per-key, key: [\"header:X-API-Key\"], limit: 1000000000/day}\n"))
	if err != nil {
		b.Fatal(err)
	}
	for name, command := range map[string]string{
		"CL.THROTTLE":  strings.Replace(strings.Replace(throttle, "user123", "u%06d", 1), "$2\r\n15", "$6\r\n900000", 1),
		"SLUICE.CHECK": "*4\r\n$12\r\nSLUICE.CHECK\r\n$7\r\nper-key\r\n$16\r\nheader:X-API-Key\r\n$7\r\nu%06d\r\n",
	} {
		b.Run(name, func(b *testing.B) {
			var all []func()
			s := New(Config{Config: door.Config{Engine: policy.NewEngine(memory.New(), p)}})
			for i := range 200 {
				var text strings.Builder
				for j := range 64 {
					fmt.Fprintf(&text, command, i*64+j)
				}
				c := newConn(s, discarding{})
				c.in = []byte(text.String())
				all = append(all, func() {
					c.start, c.end = 0, len(c.in)
					c.runAll()
					if c.text[0] == '-' {
						b.Fatalf("the replies are errors: %.80q", c.text)
					}
					c.flush()
				})
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				all[i%200]()
				i++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/command")
		})
	}
}
