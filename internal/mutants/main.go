// Command mutants measures how many changes of a package its tests notice. It changes one operator, condition or
// statement of the package at a time, in an overlay that leaves the files unchanged, runs the tests, and lists the
// changes with which no test fails.
//
//	go run ./internal/mutants [-n 40] [-seed 1] [-tests PACKAGES] [-accepted FILE] PACKAGE
//
// A package has thousands of possible changes; the command tries n of them, chosen at random by the seed. In Go
// files, changes are made by rule. For other files, -substitutions names a file of changes, with lines "FILE: old
// => new".
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	n := flag.Int("n", 40, "number of changes to try; 0 tries all")
	seed := flag.Uint64("seed", 1, "seed of the random choice")
	tests := flag.String("tests", "", "packages whose tests run, separated by spaces (default: the package's own)")
	accepted := flag.String("accepted", "internal/mutants/accepted.txt", "file with lines \"PLACE: CHANGE  # reason\": changes that no test has to notice")
	substitutions := flag.String("substitutions", "", "file of changes to try in place of changes by rule")
	limit := flag.Duration("timeout", 5*time.Minute, "time for the tests of one change; a change that takes longer counts as noticed")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	r := run{pkg: flag.Arg(0), tests: strings.Fields(*tests), limit: *limit}
	if len(r.tests) == 0 {
		r.tests = []string{r.pkg}
	}
	known, err := readAccepted(*accepted)
	if err != nil {
		log.Fatal(err)
	}
	var all []mutant
	if *substitutions != "" {
		all, err = readSubstitutions(*substitutions)
	} else {
		all, err = ofPackage(r.pkg)
	}
	if err != nil {
		log.Fatal(err)
	}
	if out, err := r.test(nil); err != nil {
		log.Fatalf("the tests fail without any change: %v\n%s", err, out)
	}
	rand.New(rand.NewPCG(*seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	tried, noticed, allowed := 0, 0, 0
	for _, m := range all {
		if *n > 0 && tried == *n {
			break
		}
		verdict, err := r.try(m)
		switch {
		case err != nil:
			log.Fatal(err)
		case verdict == invalid:
			continue
		case verdict == survived && known[m.String()]:
			verdict, allowed = "accepted", allowed+1
		case verdict != survived:
			noticed++
		}
		tried++
		fmt.Printf("%-8s %s\n", verdict, m)
	}
	fmt.Printf("%s: %d of %d changes noticed, %d accepted, seed %d, of %d possible\n", r.pkg, noticed, tried, allowed, *seed, len(all))
}

// mutant is a change of one file.
type mutant struct {
	file, place    string // place is the file, the function and the text of the line, so that it stays valid when other lines change
	from, to       int    // offsets of the replaced text
	old, replacing string
}

func (m mutant) String() string { return fmt.Sprintf("%s: %q to %q", m.place, m.old, m.replacing) }

const (
	invalid  = "invalid"
	survived = "SURVIVED"
)

type run struct {
	pkg   string
	tests []string
	limit time.Duration
}

// try returns the result of a change: killed, timeout, survived, or invalid if it does not compile.
func (r run) try(m mutant) (string, error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	text, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	changed := filepath.Join(dir, filepath.Base(m.file))
	text = append(append(append([]byte{}, text[:m.from]...), m.replacing...), text[m.to:]...)
	if err := os.WriteFile(changed, text, 0o600); err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {m.file: changed}})
	if err == nil {
		err = os.WriteFile(overlay, list, 0o600)
	}
	if err != nil {
		return "", err
	}
	out, err := r.test([]string{"-overlay", overlay})
	switch {
	case err == nil:
		return survived, nil
	case bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")):
		return invalid, nil
	case errors.Is(err, context.DeadlineExceeded) || bytes.Contains(out, []byte("panic: test timed out")):
		return "timeout", nil
	}
	return "killed", nil
}

func (r run) test(more []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), r.limit+time.Minute)
	defer cancel()
	args := append([]string{"test", "-vet=off", "-failfast", "-timeout", r.limit.String()}, more...)
	out, err := exec.CommandContext(ctx, "go", append(args, r.tests...)...).CombinedOutput()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return out, err
}

// ofPackage returns all changes by rule of a package's files.
func ofPackage(pkg string) (all []mutant, err error) {
	list := exec.Command("go", "list", "-f", `{{range .GoFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}`, pkg)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, err
	}
	for _, name := range strings.Fields(string(out)) {
		of, err := ofFile(name)
		if err != nil {
			return nil, err
		}
		all = append(all, of...)
	}
	return all, nil
}

// instead has the operators that replace an operator. A comparison is replaced by the one with the other boundary
// and by its opposite, and a calculation by its inverse.
var instead = map[token.Token][]token.Token{
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.QUO}, token.QUO: {token.MUL},
	token.AND: {token.OR}, token.OR: {token.AND}, token.SHL: {token.SHR}, token.SHR: {token.SHL},
	token.INC: {token.DEC}, token.DEC: {token.INC},
	token.ADD_ASSIGN: {token.SUB_ASSIGN}, token.SUB_ASSIGN: {token.ADD_ASSIGN}, token.OR_ASSIGN: {token.AND_ASSIGN},
	token.BREAK: {token.CONTINUE}, token.CONTINUE: {token.BREAK},
}

func ofFile(name string) (all []mutant, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(must(parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments))) {
		return nil, nil
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, 0)
	if err != nil {
		return nil, err
	}
	short := name
	if wd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(wd, name); err == nil {
			short = rel
		}
	}
	lines := strings.Split(string(text), "\n")
	function := ""
	add := func(from, to token.Pos, replacing string) {
		f, t := set.Position(from), set.Position(to)
		all = append(all, mutant{
			file: name, place: fmt.Sprintf("%s %s: %s", short, function, strings.TrimSpace(lines[f.Line-1])),
			from: f.Offset, to: t.Offset, old: string(text[f.Offset:t.Offset]), replacing: replacing,
		})
	}
	operator := func(at token.Pos, was token.Token) {
		for _, other := range instead[was] {
			add(at, at+token.Pos(len(was.String())), other.String())
		}
	}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		function = f.Name.Name
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				operator(n.OpPos, n.Op)
			case *ast.IncDecStmt:
				operator(n.TokPos, n.Tok)
			case *ast.AssignStmt:
				operator(n.TokPos, n.Tok)
			case *ast.BranchStmt:
				operator(n.TokPos, n.Tok)
			case *ast.UnaryExpr:
				if n.Op == token.NOT {
					add(n.OpPos, n.OpPos+1, "")
				}
			case *ast.ExprStmt: // a call with an unused result
				if _, ok := n.X.(*ast.CallExpr); ok {
					add(n.Pos(), n.End(), "")
				}
			}
			return true
		})
	}
	return all, nil
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// readAccepted reads the changes that no test has to notice. Each needs a reason.
func readAccepted(name string) (map[string]bool, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	known := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		change, _, ok := strings.Cut(line, "  # ")
		if !ok {
			return nil, fmt.Errorf("%s: %q has no reason", name, line)
		}
		known[strings.TrimSpace(change)] = true
	}
	return known, err
}

var substitution = regexp.MustCompile(`^(\S+): (.+) => (.*)$`)

// readSubstitutions reads a file of changes. The text that a change replaces must be in its file exactly once.
func readSubstitutions(name string) (all []mutant, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSuffix(line, "\n"); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		m := substitution.FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("%s: %q is not FILE: old => new", name, line)
		}
		path, err := filepath.Abs(m[1])
		if err != nil {
			return nil, err
		}
		in, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if bytes.Count(in, []byte(m[2])) != 1 {
			return nil, fmt.Errorf("%s contains %q %d times, want once", m[1], m[2], bytes.Count(in, []byte(m[2])))
		}
		at := bytes.Index(in, []byte(m[2]))
		all = append(all, mutant{file: path, place: m[1], from: at, to: at + len(m[2]), old: m[2], replacing: m[3]})
	}
	return all, nil
}
