package command

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// checkHyphens returns an error for a long flag behind a single hyphen. Pflag would read -data as -d ata.
func checkHyphens(flags *pflag.FlagSet, args []string) error {
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		name, isLong := strings.CutPrefix(args[i], "--")
		if isLong {
			if f := flags.Lookup(name); f != nil && f.NoOptDefVal == "" {
				i++ // skip its value
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

// longFlag returns the flag whose name equals or starts with the letters behind a single hyphen, or "".
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
