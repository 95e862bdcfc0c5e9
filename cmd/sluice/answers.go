package main

import (
	"fmt"
	"io"
	"net/http"

	"github.com/sluicehq/sluice/answer"
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

// printOwn shows the answer to a refusal where the policy has one of its own.
func printOwn(out io.Writer, p *policy.Policy, header http.Header, d *policy.Decision) {
	var said, builtIn answer.Answer
	fields := make(http.Header)
	new(answer.Encoder).Encode(&builtIn, make(http.Header), d, answer.Client{Header: header})
	if p.Answers().For(builtIn.Status) == nil {
		return
	}
	new(answer.Encoder).Encode(&said, fields, d, answer.Client{Header: header, CORS: p.CORS(), Answers: p.Answers()})
	fmt.Fprintf(out, "answered with %d %s:\n\n", said.Status, http.StatusText(said.Status))
	_ = fields.Write(out)
	fmt.Fprintf(out, "\n%s\n", said.Body())
}
