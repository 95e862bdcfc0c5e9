package main

import (
	"fmt"
	"io"
	"net/http"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/policy"
)

// printAnswers says what is sent in place of what is built in.
func printAnswers(out io.Writer, p *policy.Policy) error {
	for _, line := range p.Answers().Lines() {
		if _, err := fmt.Fprintf(out, "  answer %s\n", line); err != nil {
			return err
		}
	}
	return nil
}

// printResponse shows the answer to a refusal where the policy has one of its own, or if all is
// wanted.
func printResponse(out io.Writer, e *control.Explanation, all bool) {
	r := &e.Response
	switch {
	case !r.Own && !all:
		return
	case e.Allowed && len(r.Header) == 0:
		fmt.Fprintln(out, "the response has no fields of a limit")
		return
	case e.Allowed:
		fmt.Fprint(out, "the response has:\n\n")
	default:
		fmt.Fprintf(out, "answered with %d %s:\n\n", r.Status, http.StatusText(r.Status))
	}
	_ = r.Header.Write(out)
	if !e.Allowed {
		fmt.Fprintf(out, "\n%s\n", r.Body)
	}
}
