// Command gateway is the server under test of connectrpc.com/conformance: "sluice serve" in front of the suite's
// reference server. It reads the suite's request from the standard input, writes the address on which it serves to
// the standard output, and ends on SIGTERM.
package main

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
	"strconv"
	"strings"
	"syscall"

	"google.golang.org/protobuf/encoding/protowire"
)

// The environment variables have the paths of the two programs, and the scheme of the upstream.
const (
	envSluice = "PEERS_SLUICE"
	envServer = "PEERS_SERVER"
	envScheme = "PEERS_SCHEME"
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

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

// startGateway starts the gateway, and returns its port, which it reads from the gateway's log.
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
	return 0, fmt.Errorf("the gateway has not started:\n%s", strings.Join(seen, "\n"))
}

func end(c *exec.Cmd) {
	_ = c.Process.Kill()
	_ = c.Wait()
}

// start starts the suite's reference server, sends it the request message, and returns its answer.
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

// receive reads a message, which follows its length in four bytes.
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

// The numbers of the fields of ServerCompatRequest, TLSCreds and ServerCompatResponse.
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
