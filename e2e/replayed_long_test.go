//go:build long

package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// agree holds what "sluice replay" says of the requests to what the gateway did, request by request: the log
// has the gateway's answers, so that of those with one status all are refused, and of the others none.
func agree(t *testing.T, entries []entry, refused []bool, policy string) {
	t.Helper()
	var log strings.Builder
	statuses := map[string]int{}
	now := time.Now().UTC().Format("02/Jan/2006:15:04:05 -0700") // limits are those of a day
	for i, e := range entries {
		status := 200
		if refused[i] {
			status = 429
		}
		statuses[fmt.Sprintf("%dxx", status/100)]++
		fmt.Fprintf(&log, "127.0.0.1 - - [%s] \"%s %s HTTP/1.1\" %d 1 \"-\" \"-\" \"%s\"\n", now, e.method, e.target, status, e.address)
	}
	c := exec.Command(testkit.Binary(t), "replay", "--policy", write(t, "policy.yaml", policy), "--output", "json", "--format",
		`$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" "$http_x_forwarded_for"`,
		write(t, "access.log", log.String()))
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var report struct {
		Requests, Unreadable int
		Statuses             []struct {
			Class             string
			Requests, Refused int
		}
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatal(err)
	}
	if report.Requests != len(entries) || report.Unreadable != 0 || len(report.Statuses) != 2 {
		t.Fatalf("of %d requests the replay has %+v", len(entries), report)
	}
	for _, s := range report.Statuses {
		want := 0
		if s.Class == "4xx" {
			want = s.Requests
		}
		if s.Requests != statuses[s.Class] || s.Refused != want {
			t.Errorf("of %d requests that the gateway has answered with %s, the replay refuses %d of %d", statuses[s.Class], s.Class, s.Refused, s.Requests)
		}
	}
}
