package cli

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// policySource is the policy of a command: a file, a database of rules, or both.
type policySource struct {
	file, rules string
	disabled    []string // rules of the database that are not in force, set by read
}

func (s *policySource) any() bool { return s.file+s.rules != "" }

// read reads and compiles the policy. In errors, the parameter origin names the file.
func (s *policySource) read(c *cobra.Command, origin string) (doc *policy.Document, p *policy.Policy, err error) {
	if s.rules != "" {
		return s.readDatabase(c, origin)
	}
	doc = new(policy.Document)
	p, err = s.readFile(c.InOrStdin(), func(d policy.Document, where func(string) (string, int)) (*policy.Policy, error) {
		*doc = d
		return policy.CompileAt(d, where)
	})
	return doc, p, command.Failed(command.Unreadable(origin, err))
}

// readDatabase reads the database, and the policy file if one is given.
func (s *policySource) readDatabase(c *cobra.Command, origin string) (*policy.Document, *policy.Policy, error) {
	stack := &source.Stack{Swap: func(*policy.Policy) {}}
	if s.file != "" {
		_, err := s.readFile(c.InOrStdin(), stack.File)
		if err == nil {
			err = stack.UseFile()
		}
		if err != nil {
			return nil, nil, command.Failed(command.Unreadable(origin, err))
		}
	}
	db, err := source.Open(s.rules, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", command.Origin(c.Flags(), "rules"), err)
	}
	defer func() { _ = db.Close() }()
	stack.Name = db.String()
	contents, err := db.Read(c.Context())
	if err == nil {
		err = stack.Contents(contents)
	}
	if err != nil {
		return nil, nil, command.Failed(err)
	}
	s.disabled = contents.Disabled()
	doc, _ := stack.Document()
	return doc, stack.Policy(), nil
}

func (s *policySource) readFile(in io.Reader, compile policyfile.Compiler) (*policy.Policy, error) {
	if s.file == command.ExamplePolicy {
		return command.ParseExample(compile)
	}
	return readFile(s.file, in, compile)
}

// readFile reads and compiles the named policy file. If the name is [command.Stdin] and the given reader is not nil,
// it reads from this reader.
func readFile(name string, in io.Reader, compile policyfile.Compiler) (*policy.Policy, error) {
	if name != command.Stdin || in == nil {
		data, err := policyfile.ReadFile(name)
		if err != nil {
			return nil, err
		}
		return policyfile.ParseTo(name, data, policyfile.ReadFile, compile)
	}
	data, err := io.ReadAll(io.LimitReader(in, policyfile.MaxDocument+1))
	if err != nil {
		return nil, err
	}
	return policyfile.ParseTo("stdin", data, policyfile.ReadFile, compile)
}

// readDocument reads a policy file without compiling it.
func readDocument(name string, in io.Reader) (doc policy.Document, err error) {
	_, err = readFile(name, in, func(d policy.Document, _ func(string) (string, int)) (*policy.Policy, error) {
		doc = d
		return nil, nil
	})
	return doc, err
}
