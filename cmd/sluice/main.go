// Command sluice limits traffic: it is a gateway in front of an HTTP API, and the tools to
// write policies for it.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// Exit codes: 0 is success, and for check that the request passes.
const (
	exitFailed = 1 // it was tried and did not work, or the answer is no
	exitUsage  = 2 // the command line, the environment or the configuration file is wrong
)

func main() { os.Exit(run()) }

func run() int {
	root := rootCommand()
	out, problems := &border{file: os.Stdout}, &border{file: os.Stderr}
	root.SetOut(out)
	root.SetErr(problems)
	command, err := execute(root)
	if out.err != nil { // whatever became of the command: what it printed is not there
		err = &failedError{fmt.Errorf("standard output: %w", out.err)}
	}
	var said *exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &said):
		return said.code
	}
	fmt.Fprintf(problems, "sluice: %v\n", err)
	var failure *failedError
	if errors.As(err, &failure) {
		return exitFailed
	}
	fmt.Fprintf(problems, "Run \"%s --help\" for how to use it.\n", command.CommandPath())
	return exitUsage
}

// exitError ends the program with a code after everything has been said.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// failedError is an error that is not about how the program was called.
type failedError struct{ err error }

func (e *failedError) Error() string { return e.err.Error() }
func (e *failedError) Unwrap() error { return e.err }

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "sluice",
		Short:         "Limit the traffic of an API",
		Long:          "Sluice is a rate limiter: a gateway, and a service for proxies and programs.",
		Version:       versionLine(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(flagProblem)
	root.AddCommand(serveCommand(), validateCommand(), checkCommand(), describeCommand(), healthcheckCommand(), versionCommand())
	root.AddCommand(overrideCommand(), subjectCommand(), resetCommand(), refundCommand(), blockCommand(), unblockCommand())
	root.AddCommand(topCommand(), replayCommand(), recommendCommand(), migrateCommand(), exportCommand(), importCommand(), tokenCommand())
	return root
}
