package command

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// Exit codes besides 0.
const (
	exitFailed = 1 // the command failed, or a check was negative
	exitUsage  = 2 // the command line, the environment or the configuration file is wrong
)

// ErrReported ends the program with exit code 1 without a message, because the command has printed the reason.
var ErrReported = errors.New("reported")

// failure is an error that the command line did not cause.
type failure struct{ err error }

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// Failed marks an error as not caused by the command line: the exit code is 1 instead of 2, and no usage is shown.
// It returns nil for nil.
func Failed(err error) error {
	if err == nil {
		return nil
	}
	return &failure{err}
}

// Execute runs the command that the command line names, and returns the exit code.
func Execute(root *cobra.Command) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(flagError)
	out, problems := &output{file: os.Stdout}, &output{file: os.Stderr}
	root.SetOut(out)
	root.SetErr(problems)
	c, err := root.ExecuteC()
	if out.err != nil { // the command failed, because its output is lost
		err = Failed(fmt.Errorf("standard output: %w", out.err))
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrReported):
		return exitFailed
	}
	fmt.Fprintf(problems, "sluice: %v\n", err)
	if _, failed := errors.AsType[*failure](err); failed {
		return exitFailed
	}
	fmt.Fprintf(problems, "Run \"%s --help\" for how to use it.\n", c.CommandPath())
	return exitUsage
}
