package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// execute runs the command that the command line names.
func execute(root *cobra.Command) (*cobra.Command, error) {
	if c, args, err := root.Find(os.Args[1:]); err == nil {
		c.InitDefaultHelpFlag()
		c.InitDefaultVersionFlag()
		if err := checkDashes(c.Flags(), args); err != nil {
			return c, err
		}
	}
	return root.ExecuteC()
}

// checkDashes complains about the name of a flag behind a single dash. It would be taken for a
// flag of one letter with a value: -data for -d ata.
func checkDashes(flags *pflag.FlagSet, args []string) error {
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		name, isLong := strings.CutPrefix(args[i], "--")
		if isLong {
			if f := flags.Lookup(name); f != nil && f.NoOptDefVal == "" {
				i++ // the next is its value
			}
			continue
		}
		letters, isShort := strings.CutPrefix(args[i], "-")
		if !isShort {
			continue
		}
		if meant := longFlag(flags, letters); meant != "" {
			return fmt.Errorf("unknown flag -%.60s: did you mean --%s?", strings.SplitN(letters, "=", 2)[0], meant)
		}
		if len(letters) == 1 {
			if f := flags.ShorthandLookup(letters); f != nil && f.NoOptDefVal == "" {
				i++
			}
		}
	}
	return nil
}

// longFlag returns the flag whose name what stands behind a dash is, or begins, or "".
func longFlag(flags *pflag.FlagSet, letters string) (meant string) {
	name, _, _ := strings.Cut(strings.ToLower(letters), "=")
	if len(name) < 3 {
		return ""
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == name || meant == "" && strings.HasPrefix(f.Name, name) {
			meant = f.Name
		}
	})
	return meant
}
