package redisstore

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// explain returns an error that names the setting to change, if that is known. If probe is true, it may connect to
// the server to find out.
func (c Config) explain(err error, probe bool) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	e := failure(err)
	if hint := c.hint(e, probe); hint != "" {
		return &Error{Misconfigured, fmt.Errorf("%s: %s (%w)", strings.Join(c.Addrs, ", "), hint, err)}
	}
	if e.Kind == Unknown { // nothing was charged yet
		e.Kind = Unavailable
	}
	return &Error{e.Kind, fmt.Errorf("%s: %w", strings.Join(c.Addrs, ", "), e.Err)}
}

// hint returns the change to make, or "" if the settings may be right.
func (c Config) hint(e *Error, probe bool) string {
	if reply, ok := errors.AsType[*rueidis.RedisError](e.Err); ok {
		return c.replyHint(reply.Error())
	}
	if !probe {
		return ""
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](e.Err)
	switch {
	case untrusted:
		return "the server's certificate is not trusted: set ca to the file of its authority, or server_name to a name in the certificate (Config.TLS)"
	case c.TLS == nil && c.speaksTLS():
		return "the server requires an encrypted connection: use rediss:// instead of redis:// (Config.TLS)"
	case c.TLS != nil && c.speaksPlain():
		return "the server does not speak TLS on this port: use redis:// instead of rediss://, or the TLS port"
	case c.TLS != nil && c.asksForCertificate():
		return "the server requires a known client certificate: set cert and key (Config.TLS)"
	}
	return ""
}

// These are the permissions that the user needs: for the script, for the heartbeat, and to inspect the server. CONFIG
// GET is only for [Store.Dangers], and INFO also for [Store.EvictsByExpiry]. ZCOUNT and ZSCORE are for permits,
// ZRANGEBYSCORE for permits and posts. Without PUBLISH and SUBSCRIBE, resets are noticed later. The commands in the
// last line are for [Store.Post] and [Store.Posted], and ZREM also for permits.
const (
	commands = "+eval +evalsha +script|load +ping +hello +info +config|get +time " +
		"+get +mget +set +del +incrby +getrange +setrange +strlen +append +pexpireat " +
		"+zadd +zremrangebyscore +zcard +zcount +zscore +zrangebyscore +pexpire +publish +subscribe " +
		"+hset +hdel +hget +hstrlen +zrem +zrange"
	clusterCommands = " +cluster|slots +cluster|shards +asking"
)

func (c Config) replyHint(text string) string {
	word, _, _ := strings.Cut(text, " ")
	switch {
	case word == "WRONGPASS":
		return "the user or the password is wrong: write them before the address, as in redis://user:password@host (Config.Username, Password)"
	case word == "NOAUTH":
		return "the server requires a password: write it before the address, as in redis://:password@host (Config.Password)"
	case word == "NOPERM":
		needed := commands
		switch {
		case c.Cluster:
			needed += clusterCommands
		case c.DB != 0:
			needed += " +select"
		}
		return "the user lacks permissions: ACL SETUSER NAME ~" + c.prefix() + "* &" + c.resetChannel() + " " + needed + " (Config.Username)"
	case strings.Contains(text, "without any password configured"):
		return "the server has no password: remove it (Config.Password)"
	case strings.Contains(text, "DB index is out of range"), strings.Contains(text, "invalid DB index"):
		return fmt.Sprintf("the server has no database %d: change the number after the address (Config.DB)", c.DB)
	case strings.Contains(text, "cluster support disabled"):
		return "this is not a cluster: use redis:// instead of redis-cluster:// (Config.Cluster)"
	case strings.Contains(text, "SELECT is not allowed in cluster mode"):
		return "this is a node of a cluster: use redis-cluster:// and no database (Config.Cluster)"
	case strings.Contains(text, "No such master"):
		return fmt.Sprintf("the Sentinels do not know a master %q (Config.Master)", c.Master)
	case strings.Contains(text, "unknown command") && c.Master != "":
		return "this is not a Sentinel: use redis:// or redis-cluster://, or the port of the Sentinels"
	}
	return ""
}

// probeFor is the timeout of a probe.
const probeFor = 400 * time.Millisecond

// probe calls ask with a new connection to the server.
func (c Config) probe(ask func(net.Conn) bool) bool {
	conn, err := net.DialTimeout(networkOf(c.Addrs[0]), c.Addrs[0], probeFor)
	if err != nil {
		return false
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(probeFor))
	return ask(conn)
}

// speaksTLS reports whether the server answers a TLS handshake in any way.
func (c Config) speaksTLS() bool {
	return c.probe(func(conn net.Conn) bool {
		// The certificate need not be verified, because nothing is sent over this connection.
		err := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).Handshake()
		_, alert := errors.AsType[tls.AlertError](err)
		return err == nil || alert || strings.Contains(err.Error(), "remote error: tls")
	})
}

// asksForCertificate reports whether the server refuses the client because of its certificate. The server does so
// after the handshake.
func (c Config) asksForCertificate() bool {
	return c.probe(func(conn net.Conn) bool {
		config := c.TLS.Clone()
		config.InsecureSkipVerify = true
		_, err := tls.Client(conn, config).Read(make([]byte, 1))
		return err != nil && strings.Contains(err.Error(), "remote error: tls") && strings.Contains(err.Error(), "certificate")
	})
}

// speaksPlain reports whether the server answers an unencrypted PING.
func (c Config) speaksPlain() bool {
	return c.probe(func(conn net.Conn) bool {
		answer := make([]byte, 1)
		if _, err := conn.Write([]byte("PING\r\n")); err != nil {
			return false
		}
		_, err := conn.Read(answer)
		return err == nil && (answer[0] == '+' || answer[0] == '-')
	})
}
