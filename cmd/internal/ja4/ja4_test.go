package ja4

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/seed"
)

// seen returns the fingerprint of a ClientHello that a server of the standard library receives.
func seen(t *testing.T, hello []byte) (fingerprint string) {
	t.Helper()
	client, server := net.Pipe()
	defer client.Close()
	go func() {
		_, _ = client.Write(hello)
		client.Close()
	}()
	_ = server.SetDeadline(time.Now().Add(time.Minute))
	_ = tls.Server(server, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		fingerprint = Of(h)
		return nil, net.ErrClosed // no more is needed
	}}).Handshake()
	server.Close()
	return fingerprint
}

// sent returns the record with the ClientHello of a client.
func sent(t *testing.T, c *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	go func() {
		_ = tls.Client(client, c).Handshake()
		client.Close()
	}()
	_ = server.SetDeadline(time.Now().Add(time.Minute))
	defer server.Close()
	head := make([]byte, 5)
	if _, err := io.ReadFull(server, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(server, body); err != nil {
		t.Fatal(err)
	}
	return append(head, body...)
}

// byHand computes the fingerprint of a record from its bytes, according to the specification.
func byHand(record []byte) string {
	at := 5 + 4 // the heads of the record and of the message
	u8 := func() int { at++; return int(record[at-1]) }
	u16 := func() int { return u8()<<8 | u8() }
	isGrease := func(v int) bool { return v>>8 == v&255 && v&15 == 10 }
	version := u16()
	at += 32
	at += u8()
	var ciphers, extensions, signatures []string
	for end := u16() + at; at < end; {
		if v := u16(); !isGrease(v) {
			ciphers = append(ciphers, fmt.Sprintf("%04x", v))
		}
	}
	at += u8()
	sni, alpn, count := "i", "00", 0
	for end := u16() + at; at < end; {
		kind, length := u16(), u16()
		next := at + length
		if !isGrease(kind) {
			count++
			switch kind {
			case 0:
				sni = "d"
			case 16:
				u16()
				first := record[at+1 : at+1+int(record[at])]
				alpn = string(first[:1]) + string(first[len(first)-1:])
			default:
				extensions = append(extensions, fmt.Sprintf("%04x", kind))
			}
			switch kind {
			case 13:
				u16()
				for at < next {
					if v := u16(); !isGrease(v) {
						signatures = append(signatures, fmt.Sprintf("%04x", v))
					}
				}
			case 43:
				u8()
				version = 0
				for at < next {
					if v := u16(); !isGrease(v) && v > version {
						version = v
					}
				}
			}
		}
		at = next
	}
	sort.Strings(ciphers)
	sort.Strings(extensions)
	c := strings.Join(extensions, ",")
	if len(signatures) > 0 {
		c += "_" + strings.Join(signatures, ",")
	}
	short := func(s string) string {
		if s == "" {
			return "000000000000" // JA4's hash of an empty list
		}
		return fmt.Sprintf("%x", sha256.Sum256([]byte(s)))[:12]
	}
	return fmt.Sprintf("t%s%s%02d%02d%s_%s_%s", map[int]string{0x304: "13", 0x303: "12"}[version], sni, len(ciphers), count, alpn, short(strings.Join(ciphers, ",")), short(c))
}

// hello returns a record with a ClientHello that has the given ciphers and extensions, in hex.
func hello(t *testing.T, ciphers string, extensions ...string) []byte {
	t.Helper()
	raw, err := hex.DecodeString(strings.ReplaceAll(ciphers, ",", ""))
	if err != nil {
		t.Fatal(err)
	}
	body := append([]byte{3, 3}, make([]byte, 32+1)...)
	body = append(binary.BigEndian.AppendUint16(body, uint16(len(raw))), raw...)
	body = append(body, 1, 0)
	var all []byte
	for _, e := range extensions {
		kind, data, _ := strings.Cut(e, ":")
		k, err1 := hex.DecodeString(kind)
		d, err2 := hex.DecodeString(data)
		if err1 != nil || err2 != nil {
			t.Fatal(e, err1, err2)
		}
		all = append(all, k...)
		all = append(binary.BigEndian.AppendUint16(all, uint16(len(d))), d...)
	}
	if len(extensions) > 0 {
		body = append(binary.BigEndian.AppendUint16(body, uint16(len(all))), all...)
	}
	message := append([]byte{1, 0, byte(len(body) >> 8), byte(len(body))}, body...)
	return append([]byte{22, 3, 1, byte(len(message) >> 8), byte(len(message))}, message...)
}

const chromeCiphers = "1301,1302,1303,c02b,c02f,c02c,c030,cca9,cca8,c013,c014,009c,009d,002f,0035"

// chrome returns the extensions of the specification's example, in its order, except the given one. A server can parse
// them. They include GREASE values as Chrome sends them.
func chrome(without string) (all []string) {
	for _, e := range []string{
		"4a4a:", "001b:020002", "0000:000c0000096c6f63616c686f7374", "0033:0005fafa000100", "0010:000c02683208687474702f312e31",
		"4469:0003026832", "0017:", "002d:0101", "000d:00120a0a04030804040105030805050108060601", "0005:0100000000",
		"0023:", "0012:", "002b:06fafa03040303", "ff01:00", "000b:0100", "000a:0008fafa001d00170018", "0015:0000", "dada:00",
	} {
		if e[:4] != without {
			all = append(all, e)
		}
	}
	return all
}

// The specification's example, which equals the ClientHello of many versions of Chrome, has the published fingerprint.
func TestPublished(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		hello []byte
		want  string
	}{
		"the example":           {hello(t, "0a0a,"+chromeCiphers, chrome("")...), "t13d1516h2_8daaf6152771_e5627efa2ab1"},
		"no signatures":         {hello(t, chromeCiphers, chrome("000d")...), "t13d1515h2_8daaf6152771_"},
		"no name":               {hello(t, chromeCiphers, chrome("0000")...), "t13i1515h2_8daaf6152771_e5627efa2ab1"},
		"no protocol":           {hello(t, chromeCiphers, chrome("0010")...), "t13d151500_8daaf6152771_e5627efa2ab1"},
		"no version":            {hello(t, chromeCiphers, chrome("002b")...), "t12d1515h2_8daaf6152771_"},
		"no extensions, cipher": {hello(t, "1a1a"), "t12i000000_000000000000_000000000000"},
	} {
		if got := seen(t, test.hello); !strings.HasPrefix(got, test.want) || len(got) != 36 {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestProtocol(t *testing.T) {
	t.Parallel()
	for first, want := range map[string]string{
		"": "00", "h2": "h2", "http/1.1": "h1", "x": "xx", "\xab": "ab", "\xab\xcd": "ad", "0\xab": "3b", "01\xab\xcd": "3d", "0\xab\xcd1": "01", "h2\n": "6a",
	} {
		if got := protocol([]string{first}); got != want {
			t.Errorf("%q: %s, want %s", first, got, want)
		}
	}
	if got := protocol(nil); got != "00" {
		t.Error(got)
	}
}

// The fingerprints of clients of the standard library equal those computed from the bytes.
func TestAgainstBytes(t *testing.T) {
	t.Parallel()
	seed := seed.Of(t)
	random := rand.New(rand.NewPCG(seed, 0))
	different := make(map[string]bool)
	for range 300 {
		c := &tls.Config{InsecureSkipVerify: true, MaxVersion: []uint16{tls.VersionTLS12, tls.VersionTLS13}[random.IntN(2)]}
		if random.IntN(2) == 0 {
			c.ServerName = "a.example"
		}
		for _, suite := range tls.CipherSuites() {
			if random.IntN(2) == 0 {
				c.CipherSuites = append(c.CipherSuites, suite.ID)
			}
		}
		for _, protocol := range []string{"h2", "http/1.1", "acme-tls/1"} {
			if random.IntN(2) == 0 {
				c.NextProtos = append(c.NextProtos, protocol)
			}
		}
		record := sent(t, c)
		got, want := seen(t, record), byHand(record)
		if got != want {
			t.Fatalf("seed %d: %s, want %s", seed, got, want)
		}
		different[got] = true
	}
	if len(different) < 20 {
		t.Errorf("seed %d: only %d fingerprints", seed, len(different))
	}
}

// Every fingerprint has 36 characters: letters, digits and underscores.
func FuzzOf(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3}, []byte{10, 10, 0, 16}, []byte("h2"))
	f.Fuzz(func(t *testing.T, ciphers, extensions, protocol []byte) {
		numbers := func(b []byte) (all []uint16) {
			for ; len(b) > 1; b = b[2:] {
				all = append(all, binary.BigEndian.Uint16(b))
			}
			return all
		}
		got := Of(&tls.ClientHelloInfo{CipherSuites: numbers(ciphers), Extensions: numbers(extensions), SupportedVersions: numbers(ciphers), SupportedProtos: []string{string(protocol)}})
		if len(got) != 36 || strings.Trim(got, "_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") != "" {
			t.Errorf("%q", got)
		}
	})
}
