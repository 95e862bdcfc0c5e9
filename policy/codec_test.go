package policy_test

import (
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

func init() { policy.Parse = policyfile.Parse }
