package policyfile_test

import (
	"fmt"

	"github.com/sluicehq/sluice/policyfile"
)

func ExampleParse() {
	_, err := policyfile.Parse("api.yaml", []byte(`
version: 1
rules:
  - name: login
    mach: POST /login
    limit: 5/fortnight
`))
	fmt.Println(err)
	// Output:
	// api.yaml:5: rule "login": unknown key "mach" in a rule; did you mean "match"?
	// api.yaml:6: rule "login": limit "5/fortnight": the period "fortnight" is neither second, minute, hour or day nor a length such as 90s, 1h30m or 7d; write it as in "100/minute burst 20"
}
