// Package connectconformance runs connectrpc.com/conformance through the gateway.
package connectconformance

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Environment of the process that the suite starts as the server under test: the programs, and the
// scheme of the upstream.
const (
	envSluice = "PEERS_SLUICE"
	envServer = "PEERS_SERVER"
	envScheme = "PEERS_SCHEME"
)

func TestMain(m *testing.M) {
	if os.Getenv(envScheme) != "" {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// build builds a program of a package into dir.
func build(t *testing.T, dir, from, pkg string) string {
	t.Helper()
	program := filepath.Join(dir, filepath.Base(pkg))
	c := exec.CommandContext(t.Context(), "go", "build", "-o", program, pkg)
	c.Dir = from
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

var (
	total  = regexp.MustCompile(`(?m)^(\d+) passed, (\d+) failed`)
	failed = regexp.MustCompile(`(?m)^FAILED: (.*?):?$`)
)

// The gateway fails no case that the reference server passes without it.
func TestConformance(t *testing.T) {
	dir := t.TempDir()
	suite := build(t, dir, ".", "connectrpc.com/conformance/cmd/connectconformance")
	server := build(t, dir, ".", "connectrpc.com/conformance/cmd/referenceserver")
	sluice := build(t, dir, "../..", "./cmd/sluice")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run := func(t *testing.T, features string, env []string, command string, only ...string) (int, []string) {
		t.Helper()
		conf := filepath.Join(t.TempDir(), "conf.yaml")
		if err := os.WriteFile(conf, []byte("features: "+features), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // it takes some seconds, and a case that hangs ends it
		defer cancel()
		args := []string{"--mode", "server", "--conf", conf}
		for _, name := range only {
			args = append(args, "--run", name)
		}
		c := exec.CommandContext(ctx, suite, append(args, "--", command)...)
		c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
		c.WaitDelay = 10 * time.Second
		c.Env = append(os.Environ(), env...)
		out, err := c.CombinedOutput()
		found := total.FindSubmatch(out)
		if found == nil {
			t.Fatalf("%v\n%s", err, out)
		}
		var names []string
		for _, m := range failed.FindAllSubmatch(out, -1) {
			names = append(names, string(m[1]))
		}
		passed, _ := strconv.Atoi(string(found[1]))
		t.Logf("%s: %s", filepath.Base(command), found[0])
		if err != nil && len(names) == 0 {
			t.Errorf("%v\n%s", err, out)
		}
		return passed, names
	}
	const (
		http1 = "{versions: [HTTP_VERSION_1], supportsH2c: false, supportsHalfDuplexBidiOverHttp1: true}"
		http2 = "{versions: [HTTP_VERSION_2], supportsH2c: false}"
	)
	for _, test := range []struct{ name, features, scheme string }{
		{"HTTP1", http1, "http"},
		{"HTTP2 to h2c", http2, "h2c"},
		{"HTTP2 to https", http2, "https"},
	} {
		t.Run(test.name, func(t *testing.T) {
			direct, known := run(t, test.features, nil, server)
			env := []string{envSluice + "=" + sluice, envServer + "=" + server, envScheme + "=" + test.scheme}
			passed, names := run(t, test.features, env, self)
			if direct < 500 || passed+len(names) != direct+len(known) {
				t.Errorf("%d cases directly, %d through the gateway", direct+len(known), passed+len(names))
			}
			if len(names) > 0 && len(names) < 20 { // cases have deadlines, which a busy machine misses
				_, names = run(t, test.features, env, self, names...)
			}
			for _, name := range names {
				if !slices.Contains(known, name) {
					t.Errorf("the gateway fails %s", name)
				}
			}
		})
	}
}

// serve is the server under test: the gateway in front of the reference server. It reads what is
// asked for, writes where it serves, and ends with SIGTERM.
func serve() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	dir, err := os.MkdirTemp("", "conformance")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	message, err := receive(os.Stdin)
	if err != nil {
		return err
	}
	asked := fieldsOf(message)
	scheme, secure := os.Getenv(envScheme), asked[useTLS].number > 0

	upstream := exec.CommandContext(ctx, os.Getenv(envServer))
	answer, err := start(upstream, append(protowire.AppendTag(message, useTLS, protowire.VarintType), byte(protowire.EncodeBool(scheme == "https"))))
	if err != nil {
		return err
	}
	defer end(upstream)
	at := fieldsOf(answer)

	policy := "version: 1\nrules: [{name: all, key: [client_ip], limit: 1000000/second}]\n"
	args := []string{"serve", "--proxy", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--policy", filepath.Join(dir, "policy.yaml"),
		"--upstream", fmt.Sprintf("%s://127.0.0.1:%d", scheme, at[serverPort].number)}
	files := map[string][]byte{"policy.yaml": []byte(policy)}
	var cert []byte
	if secure {
		own := fieldsOf(asked[serverCreds].bytes)
		cert = own[credsCert].bytes
		files["cert.pem"], files["key.pem"] = cert, own[credsKey].bytes
		args = append(args, "--tls-cert", filepath.Join(dir, "cert.pem"), "--tls-key", filepath.Join(dir, "key.pem"))
	}
	if scheme == "https" {
		files["ca.pem"] = at[serverCert].bytes
		args = append(args, "--upstream-ca", filepath.Join(dir, "ca.pem"))
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}
	gateway := exec.CommandContext(ctx, os.Getenv(envSluice), args...)
	port, err := startGateway(gateway)
	if err != nil {
		return err
	}
	defer end(gateway)
	b := protowire.AppendString(protowire.AppendTag(nil, serverHost, protowire.BytesType), "127.0.0.1")
	b = protowire.AppendVarint(protowire.AppendTag(b, serverPort, protowire.VarintType), port)
	b = protowire.AppendBytes(protowire.AppendTag(b, serverCert, protowire.BytesType), cert)
	if err := send(os.Stdout, b); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// startGateway returns the port that the log names.
func startGateway(c *exec.Cmd) (port uint64, err error) {
	log, err := c.StderrPipe()
	if err != nil {
		return 0, err
	}
	if err := c.Start(); err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(log)
	var seen []string
	for lines.Scan() {
		var record struct{ Proxy string }
		if json.Unmarshal(lines.Bytes(), &record) == nil && record.Proxy != "" {
			go func() { _, _ = io.Copy(io.Discard, log) }()
			_, text, err := net.SplitHostPort(record.Proxy)
			if err != nil {
				return 0, err
			}
			return strconv.ParseUint(text, 10, 16)
		}
		seen = append(seen, lines.Text())
	}
	return 0, fmt.Errorf("the gateway does not serve:\n%s", strings.Join(seen, "\n"))
}

func end(c *exec.Cmd) {
	_ = c.Process.Kill()
	_ = c.Wait()
}

// start starts a server of the suite with what is asked of it, and returns its answer.
func start(c *exec.Cmd, message []byte) (answer []byte, err error) {
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		return nil, err
	}
	if err := send(in, message); err != nil {
		return nil, err
	}
	return receive(out)
}

// Messages have their length in front of them, in four bytes.
func receive(r io.Reader) ([]byte, error) {
	var size uint32
	if err := binary.Read(r, binary.BigEndian, &size); err != nil {
		return nil, err
	}
	message := make([]byte, size)
	_, err := io.ReadFull(r, message)
	return message, err
}

func send(w io.Writer, message []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...))
	return err
}

// The fields of ServerCompatRequest, TLSCreds and ServerCompatResponse.
const (
	useTLS, serverCreds                = 4, 7
	credsCert, credsKey                = 1, 2
	serverHost, serverPort, serverCert = 1, 2, 3
)

type field struct {
	number uint64
	bytes  []byte
}

// fieldsOf returns the last value of each field.
func fieldsOf(message []byte) map[protowire.Number]field {
	all := make(map[protowire.Number]field)
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return all
		}
		message = message[n:]
		var f field
		switch kind {
		case protowire.VarintType:
			f.number, n = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(message)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return all
		}
		all[number], message = f, message[n:]
	}
	return all
}
