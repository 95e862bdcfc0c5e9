package command

import (
	"github.com/spf13/pflag"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/examples"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// Names of policies that are not files.
const (
	ExamplePolicy = "example" // the built-in policy
	Stdin         = "-"
)

// AddRulesFlag adds --rules, the database of rules. The detail is a part of the flag's description.
func AddRulesFlag(f *pflag.FlagSet, url *string, detail string) {
	f.StringVar(url, "rules", "", "rules database"+detail+": a `URL` such as sqlite:rules.db or postgres://user@host/name;\nkeep the password in SLUICE_RULES, PGPASSWORD or ~/.pgpass, not on the command line")
}

// ParseExample parses and compiles the built-in policy.
func ParseExample(compile policyfile.Compiler) (*policy.Policy, error) {
	return policyfile.ParseTo("examples/api.yaml", examples.API, nil, compile)
}

// AddEnvoyAlgorithmFlag adds --envoy-algorithm. Its default is the sliding window counter.
func AddEnvoyAlgorithmFlag(f *pflag.FlagSet, a *Algorithm) {
	*a = Algorithm(sluice.SlidingWindowCounter)
	f.Var(a, "envoy-algorithm", "algorithm for limits that set no metadata.sluice.algorithm in an envoyproxy/ratelimit configuration, and for limits that Envoy's requests carry.\n"+
		"envoyproxy/ratelimit itself uses fixed_window, which allows up to twice the limit across the boundary of two windows")
}
