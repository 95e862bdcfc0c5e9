// Command bench runs Sluice and its rivals on the same work, each in a process of its own,
// interleaved over several rounds, and writes RESULTS.md.
//
//	go run . [-rounds N] [-only REGEXP] [-out FILE]
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
)

func main() {
	var (
		rounds  = flag.Int("rounds", 5, "how often each contender runs")
		only    = flag.String("only", "", "run the works whose names match this `regexp`")
		out     = flag.String("out", "", "write the report to this `file`")
		isChild = flag.Bool("child", false, "measure one contender: WORK CONTENDER")
		isProxy = flag.Bool("reverse-proxy", false, "be the bare reverse proxy: LISTEN UPSTREAM")
	)
	flag.Parse()
	if *isProxy {
		must(reverseProxy(flag.Arg(0), flag.Arg(1)))
	}
	works := slices.Concat(memoryWorks(), middlewareWorks(), redisWorks(), gatewayWorks())
	if *isChild {
		if err := childMain(works, flag.Arg(0), flag.Arg(1)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	results := run(works, regexp.MustCompile(*only), *rounds)
	report := report(works, results, *rounds)
	fmt.Print(report)
	if *out != "" {
		must(os.WriteFile(*out, []byte(report), 0o644))
	}
}
