// Command bench runs Sluice and its rivals on the same works, each in a separate process and interleaved over
// several rounds, and prints a report. With -out it also writes the report to a file, with pictures.
//
//	go run . [-quick] [-rounds N] [-within TIME] [-only REGEXP] [-profile DIR] [-out FILE]
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

// quickWorks matches the works of most of the figures to reach, without those that take long.
const quickWorks = `hot key, allowed$|1 M keys, uniform|what a key takes|a flood|middleware|64 callers|gateway|a stream|pipelined 64|rules`

// setting is the values of the flags. Child processes get it, too.
type setting struct {
	quick   bool
	profile string // a directory
}

func main() {
	var (
		s       setting
		rounds  = flag.Int("rounds", 5, "run each contender at most this many times")
		within  = flag.Duration("within", 13*time.Minute, "after the third round, start only rounds that should end within this `time`")
		only    = flag.String("only", "", "run only the works whose names match this `regexp`")
		out     = flag.String("out", "", "write the report to this `file`, and pictures to the same directory")
		isChild = flag.Bool("child", false, "measure one contender: WORK CONTENDER")
		isProxy = flag.Bool("reverse-proxy", false, "be the bare reverse proxy: LISTEN UPSTREAM pooled|plain")
	)
	var beConstant, beOK bool
	flag.BoolVar(&beConstant, "constant", false, "be a net/http server that answers with a constant: LISTEN")
	flag.BoolVar(&beOK, "grpc-ok", false, "be a grpc-go server that answers OK: LISTEN")
	flag.BoolVar(&s.quick, "quick", false, "run one round of the most important works, without Caddy and envoyproxy/ratelimit")
	flag.StringVar(&s.profile, "profile", "", "write CPU profiles of the contenders to this `directory`")
	flag.Parse()
	switch {
	case *isProxy:
		must(reverseProxy(flag.Arg(0), flag.Arg(1), flag.Arg(2) == "pooled"))
	case beConstant:
		must(constant(flag.Arg(0)))
	case beOK:
		must(answerOK(flag.Arg(0)))
	case *isChild:
		if err := childMain(s, flag.Arg(0), flag.Arg(1)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		if s.quick {
			*rounds = 1
			if *only == "" {
				*only = quickWorks
			}
		}
		must(compare(s, regexp.MustCompile(*only), *rounds, *within, *out))
	}
}

// compare runs the works with matching names, and writes the report.
func compare(s setting, match *regexp.Regexp, rounds int, within time.Duration, out string) error {
	begin := time.Now()
	steady, varying := chosen(steadyWorks(), match), chosen(varyingWorks(s), match)
	cleanUp, err := buildGateways(s, varying)
	if err != nil {
		return err
	}
	defer cleanUp()
	defer removeHostile()
	once := run(s, steady, 1, 0)
	many := run(s, varying, rounds, within-time.Since(begin))
	command := "make bench"
	if s.quick {
		command = "make bench-quick"
	}
	r := report{command, slices.Concat(varying, steady), slices.Concat(many, once), time.Since(begin)}
	notes, err := os.ReadFile("notes.md")
	if err != nil {
		return err
	}
	text := r.markdown(string(notes))
	fmt.Print(text)
	if out == "" {
		return nil
	}
	if err := r.draw(filepath.Dir(out)); err != nil {
		return err
	}
	return os.WriteFile(out, []byte(text), 0o644)
}

// varyingWorks returns the works that are measured in every round.
func varyingWorks(s setting) []work {
	return slices.Concat(memoryWorks(), leaseWorks(), policyWorks(), growthWorks(), changeWorks(), middlewareWorks(), redisWorks(), gatewayWorks(s), streamWorks(), doorWorks(s), replayWorks())
}

// steadyWorks returns the works that are measured once, because they count bytes or instructions, which hardly
// vary.
func steadyWorks() []work {
	return slices.Concat(footprintWorks(), leaseTimes(), keySizeWorks(), followWorks(), instructionWorks())
}

func chosen(works []work, match *regexp.Regexp) []work {
	return slices.DeleteFunc(works, func(w work) bool { return !match.MatchString(w.name) })
}
