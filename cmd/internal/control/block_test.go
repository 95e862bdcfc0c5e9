package control_test

import (
	"testing"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
)

// A block returns the override that it has written, so that it can be undone, and the override that it replaced.
func TestBlockReturnsItsOverride(t *testing.T) {
	c, who := control.New(overDatabase(t)), control.Caller{Name: "ann", Role: source.Operator}
	r := control.BlockRequest{Target: control.Target{Rule: "per-key", Key: map[string]string{"api_key": "k-1"}}, Until: "2126-01-01"}
	for _, before := range []string{"", "2126-01-01"} {
		if dry, err := c.Block(t.Context(), who, r, true); err != nil || dry.Put != nil {
			t.Errorf("a dry run: %+v %v", dry, err)
		}
		done, err := c.Block(t.Context(), who, r, false)
		if err != nil {
			t.Fatal(err)
		}
		i, err := c.Read(who, control.Overrides, done.Put.Override)
		if err != nil || i.ETag != done.Put.ETag || (done.Put.Before == nil) != (before == "") || before != "" && done.Put.Before.Until != before {
			t.Errorf("the block returns %+v, and the override is %+v %v", done.Put, i, err)
		}
		r.Until = "2126-12-31"
	}
}
