package telemetry

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// Denials by overload are logged and kept, with the class of the request.
func TestOverloadLogged(t *testing.T) {
	t.Parallel()
	l := logRefusals(t, memory.New(), `rules:
  - {name: capacity, in_flight: {auto: true, least: 1, most: 1}}
  - {name: watched, key: [host], in_flight: {auto: true, least: 1, most: 1}, shadow: true}
  - {name: exports, match: /export, class: sheddable}
`)
	kept := KeepRefusals(l.Engine)
	ask := func(path string) {
		l.Decide(t.Context(), &policy.Request{Path: path, Host: "api.example.com", Door: "gateway", Ends: true, Timed: true, Header: map[string][]string{"X-Request-Id": {"r1"}}})
	}
	ask("/")
	ask("/export")
	l.stop()
	lines := strings.Split(strings.TrimSpace(l.out.String()), "\n")
	var line map[string]any
	if len(lines) != 1 || json.Unmarshal([]byte(lines[0]), &line) != nil {
		t.Fatalf("the log is %q", lines)
	}
	if line["msg"] != "denied" || line["rule"] != "capacity" || line["because"] != "overload" || line["class"] != "sheddable" || line["wait"].(float64) < 1 || line["subject"] != nil {
		t.Errorf("the line is %v", line)
	}
	found := kept.Find("r1")
	if len(found) != 1 || found[0].Because != "overload" || found[0].Class != "sheddable" || found[0].Shadow || found[0].Rule != "capacity" {
		t.Errorf("the kept denials are %+v", found)
	}
}
