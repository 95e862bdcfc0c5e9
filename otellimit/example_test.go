package otellimit_test

import (
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/otellimit"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// The span of each request gets an event for each decision about the request.
func ExampleObserve() {
	p, err := policyfile.Parse("policy.yaml", []byte("version: 1\nrules: [{name: api, limit: 100/minute, key: [client_ip]}]"))
	if err != nil {
		panic(err)
	}
	otellimit.Observe(policy.NewEngine(memory.New(), p))
}
