package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/sluicehq/sluice/policyfile"
)

// configFlag names the flag whose file gives values to all the others.
const configFlag = "config"

// applySettings fills in the flags that the command line left out: from the environment
// (SLUICE_LOG_LEVEL for --log-level), else from the configuration file (log_level), else
// the default stays. So every flag is a setting, and there is one list of them.
func applySettings(flags *pflag.FlagSet) error {
	if err := fromEnvironment(flags); err != nil {
		return err
	}
	if config := flags.Lookup(configFlag); config != nil && config.Value.String() != "" {
		return fromFile(flags, config.Value.String())
	}
	return nil
}

func fromEnvironment(flags *pflag.FlagSet) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		name := "SLUICE_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, set := os.LookupEnv(name)
		if !set || f.Changed || f.Name == "help" {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("environment: %s=%.60q: %w", name, value, reason(err)))
		}
	})
	return errors.Join(errs...)
}

// fromFile reads a flat YAML document whose keys are the names of flags.
func fromFile(flags *pflag.FlagSet, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var doc yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(data)).Decode(&doc); errors.Is(err, io.EOF) {
		return nil // nothing but comments
	} else if err != nil {
		return errors.New(policyfile.YAMLProblem(path, data, err).String())
	}
	pairs := doc.Content[0]
	if pairs.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d: this is not a list of settings: write one \"name: value\" a line", path, pairs.Line)
	}
	var errs []error
	seen := map[string]bool{}
	for i := 0; i < len(pairs.Content); i += 2 {
		key, value := pairs.Content[i], pairs.Content[i+1]
		err := fromPair(flags, key, value)
		if seen[key.Value] {
			err = errors.New("it is there twice: remove one")
		}
		seen[key.Value] = true
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %.60s: %w", path, key.Line, key.Value, err))
		}
	}
	return errors.Join(errs...)
}

func fromPair(flags *pflag.FlagSet, key, value *yaml.Node) error {
	f := flags.Lookup(strings.ReplaceAll(key.Value, "_", "-"))
	switch {
	case f == nil || f.Name == configFlag || f.Name == "help" || strings.Contains(key.Value, "-"):
		return fmt.Errorf("there is no such setting: use one of %s", strings.Join(settingNames(flags), ", "))
	case value.Kind != yaml.ScalarNode:
		return errors.New("the value is not a single one: write name: value")
	case f.Changed: // the command line or the environment has said it already
		return nil
	}
	return reason(flags.Set(f.Name, value.Value))
}

func settingNames(flags *pflag.FlagSet) (names []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != configFlag && f.Name != "help" {
			names = append(names, strings.ReplaceAll(f.Name, "-", "_"))
		}
	})
	return names
}

// reason is what the flag's own type says is wrong, without the name of the flag.
func reason(err error) error {
	if invalid := new(pflag.InvalidValueError); errors.As(err, &invalid) {
		return invalid.Unwrap()
	}
	return err
}
