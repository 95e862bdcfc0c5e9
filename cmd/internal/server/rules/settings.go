package rules

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/sluicehq/sluice/cmd/internal/command"
)

// Settings configure the sources of the policy.
type Settings struct {
	File     string // the name of a file, or [command.ExamplePolicy]
	Database string // a URL
	Shadow   bool

	EnvoyConfig    string // a directory
	EnvoyAlgorithm command.Algorithm
}

// AddFlags adds the flags of the policy.
func (s *Settings) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&s.File, "policy", "", "policy `file`, or \"example\" for the built-in policy, which is the default with --upstream sample")
	command.AddRulesFlag(f, &s.Database, ", with or without a policy file")
	f.BoolVar(&s.Shadow, "shadow", false, "put all rules into shadow mode: they count and report, and deny nothing")
	f.StringVar(&s.EnvoyConfig, "envoy-config", "", "`directory` with an envoyproxy/ratelimit configuration, in place of --policy")
	command.AddEnvoyAlgorithmFlag(f, &s.EnvoyAlgorithm)
}

// Any reports whether a policy is set.
func (s *Settings) Any() bool { return s.File != "" || s.Database != "" || s.EnvoyConfig != "" }

// Check returns an error if no policy is set, or if its source cannot be followed. The function origin returns the
// source of a flag's value.
func (s *Settings) Check(origin func(flag string) string) error {
	switch {
	case s.EnvoyConfig != "" && s.File != "":
		return fmt.Errorf("%s: --envoy-config is already the policy: remove one of the two, or convert it to a policy with \"sluice import envoy\"", origin("policy"))
	case !s.Any():
		return errors.New("missing policy: give --policy FILE, --policy example for the built-in one, or --rules URL for one in a database")
	case s.File == command.Stdin:
		return fmt.Errorf("%s: standard input cannot be reloaded: give a file", origin("policy"))
	}
	return nil
}
