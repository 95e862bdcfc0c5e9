package policy

// Parse is [policyfile.Parse], which imports this package: see codec_test.go. Tests write their policies as YAML, as
// users do.
var Parse func(file string, data []byte) (*Policy, error)
