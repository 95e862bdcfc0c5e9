package telemetry_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"os"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
	"github.com/sluicehq/sluice/telemetry"
)

func ExampleLogRefusals() {
	p, err := policyfile.Parse("policy.yaml", []byte("version: 1\nrules: [{name: api, limit: 1/day, key: [client_ip]}]"))
	if err != nil {
		panic(err)
	}
	engine := policy.NewEngine(memory.New(), p)
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: withoutTimes}))
	stop := telemetry.LogRefusals(engine, logger)

	for range 9 {
		engine.Decide(context.Background(), &policy.Request{
			Path: "/orders", Peer: netip.MustParseAddr("192.0.2.7"),
			Header: http.Header{"X-Request-Id": {"9f3b"}},
		})
	}
	stop()
	// Output:
	// level=INFO msg=denied rule=api limit="1/day burst 1" from=rule because=limit subject=192.0.2.7 address=192.0.2.7 path=/orders request_id=9f3b
	// level=INFO msg=denied rule=api limit="1/day burst 1" from=rule because=limit subject=192.0.2.7 address=192.0.2.7 path=/orders request_id=9f3b
	// level=INFO msg=denied rule=api limit="1/day burst 1" from=rule because=limit subject=192.0.2.7 address=192.0.2.7 path=/orders request_id=9f3b
	// level=INFO msg=denied rule=api limit="1/day burst 1" from=rule because=limit subject=192.0.2.7 address=192.0.2.7 path=/orders request_id=9f3b
	// level=INFO msg=denied rule=api limit="1/day burst 1" from=rule because=limit subject=192.0.2.7 address=192.0.2.7 path=/orders request_id=9f3b left_out=3
}

func withoutTimes(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Key == "wait" {
		return slog.Attr{}
	}
	return a
}
