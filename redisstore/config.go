package redisstore

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
)

// DefaultPrefix is the default of [Config].Prefix.
const DefaultPrefix = "sluice:"

// Config has the address of the server and the settings of the connection. [ParseURL] reads it from a URL.
type Config struct {
	// Addrs has one "host:port", or several for a Cluster or for Sentinels. An address that begins with "/" is the
	// path of a Unix socket.
	Addrs []string
	// Cluster means that Addrs are nodes of a Redis or Valkey Cluster. Some of the nodes are enough.
	Cluster bool
	// Master is the name of the master. If it is set, Addrs are Sentinels that watch this master.
	Master string

	Username, Password                 string
	SentinelUsername, SentinelPassword string
	DB                                 int // always 0 on a cluster

	TLS *tls.Config // nil: without TLS

	// Prefix begins the names of all keys and of the channel for resets. If empty, it is [DefaultPrefix]. Stores
	// with the same prefix on the same server share their counts. Prefix must not contain a brace.
	Prefix string
	// HashKey, if it is not empty, is a secret that hides the charges' keys from the server: the store replaces
	// each key by its HMAC-SHA256 under HashKey, cut to 128 bits. All processes that share counts need the same
	// HashKey. It should have 32 random bytes.
	HashKey []byte
}

func (c Config) prefix() string {
	if c.Prefix == "" {
		return DefaultPrefix
	}
	return c.Prefix
}

// ParseURL reads a URL of one of these forms:
//
//	redis://[user[:password]@]host[:6379][/database]
//	redis-cluster://[user[:password]@]host[:6379],host[:6379]…
//	redis-sentinel://[user[:password]@]host[:26379],…/master[/database]
//	unix://[user[:password]@]/path/of/socket[?db=database]
//
// The schemes rediss, rediss-cluster and rediss-sentinel use TLS. Their parameters are ca, cert and key (PEM files
// with the trusted certificates, a client certificate, and its private key), and server_name (the name in the
// server's certificate, if it differs from the host). All schemes have the parameters db (the database), prefix,
// hash_key (a file with the HashKey), sentinel_user and sentinel_password.
//
// Escape special characters, such as "@" as %40 and "/" as %2F. Errors contain no part of the URL, because it may
// have secrets in unexpected places.
func ParseURL(s string) (Config, error) {
	c, err := parseURL(s)
	if err != nil {
		return Config{}, &Error{Misconfigured, fmt.Errorf("store URL: %w", err)}
	}
	return c, c.check()
}

func parseURL(s string) (Config, error) {
	hosts, s, err := cutHosts(s)
	if err != nil {
		return Config{}, err
	}
	u, err := url.Parse(s)
	if err != nil {
		return Config{}, errors.New("it cannot be read: " + encode)
	}
	c := Config{Username: u.User.Username()}
	c.Password, _ = u.User.Password()
	path := strings.Split(strings.Trim(u.Path, "/"), "/")
	scheme, encrypted := u.Scheme, false
	if strings.HasPrefix(scheme, "rediss") {
		scheme, encrypted = "redis"+scheme[len("rediss"):], true
	}
	port := "6379"
	var db string
	switch scheme {
	case "redis":
		db = path[0]
		path = path[1:]
	case "redis-cluster":
		c.Cluster = true
		if path[0] == "" {
			path = path[1:]
		}
	case "redis-sentinel":
		port = "26379"
		c.Master, path = path[0], path[1:]
		if c.Master == "" {
			return c, errors.New("the name of the master is missing: write it after the addresses, as in redis-sentinel://host/mymaster")
		}
		if len(path) > 0 {
			db, path = path[0], path[1:]
		}
	case "unix":
		c.Addrs, path = []string{u.Path}, nil
		if hosts != "" || u.Path == "" {
			return c, errors.New("the path of the socket begins with a third slash: unix:///run/redis.sock")
		}
	default:
		return c, errors.New("unknown scheme: use redis, rediss, redis-cluster, rediss-cluster, redis-sentinel, rediss-sentinel or unix")
	}
	if len(path) > 0 {
		return c, errors.New("unexpected text after the address")
	}
	if scheme != "unix" {
		for i, host := range strings.Split(hosts, ",") {
			addr, err := withPort(host, port)
			if err != nil {
				return c, fmt.Errorf("address %d: %w", i+1, err)
			}
			c.Addrs = append(c.Addrs, addr)
		}
	}
	return c, c.parseQuery(u, db, encrypted)
}

const encode = `write special characters of users, passwords and parameters as %40 for "@", %2F for "/", %3F for "?", %23 for "#" and %25 for "%"`

// cutHosts cuts the addresses out of a URL, because net/url reads only one address.
func cutHosts(s string) (hosts, rest string, err error) {
	scheme, behind, found := strings.Cut(s, "://")
	if !found {
		return "", "", errors.New("missing scheme: write it as in redis://localhost:6379")
	}
	end := strings.IndexAny(behind, "/?#")
	if end < 0 {
		end = len(behind)
	}
	// This may be the rest of a password with an unescaped character.
	if strings.ContainsAny(behind[end:], "@#") {
		return "", "", errors.New(`"@" or "#" after the address: ` + encode)
	}
	start := strings.LastIndexByte(behind[:end], '@') + 1
	return behind[start:end], scheme + "://" + behind[:start] + behind[end:], nil
}

// withPort adds the default port to an address without a port.
func withPort(addr, port string) (string, error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		host, p = strings.TrimSuffix(strings.TrimPrefix(addr, "["), "]"), port
	}
	if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
		return "", errors.New("the port is not a number from 1 to 65535")
	}
	if strings.ContainsAny(host, "[] %") || strings.Contains(host, ":") && net.ParseIP(host) == nil {
		return "", errors.New("write host:port, and IPv6 as in [::1]:6379")
	}
	if host == "" {
		host = "localhost"
	}
	return net.JoinHostPort(host, p), nil
}

var (
	parameters    = []string{"db", "prefix", "hash_key", "sentinel_user", "sentinel_password"}
	parametersTLS = []string{"ca", "cert", "key", "server_name"}
)

func (c *Config) parseQuery(u *url.URL, db string, encrypted bool) error {
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errors.New("the text after \"?\" is not a query")
	}
	for name, values := range q {
		switch {
		case !slices.Contains(parameters, name) && !slices.Contains(parametersTLS, name):
			return fmt.Errorf("unknown parameter: use %s, %s", strings.Join(parameters, ", "), strings.Join(parametersTLS, ", "))
		case slices.Contains(parametersTLS, name) && !encrypted:
			return fmt.Errorf("%s is for encrypted connections: use rediss:// instead of redis://", name)
		case len(values) > 1:
			return fmt.Errorf("%s is given twice", name)
		}
	}
	if q.Has("db") {
		db = q.Get("db")
	}
	if db != "" {
		if c.DB, err = strconv.Atoi(db); err != nil || c.DB < 0 {
			return errors.New("the database is not a number of 0 or more: write it as in redis://localhost/1")
		}
	}
	c.Prefix = q.Get("prefix")
	if q.Has("hash_key") {
		if c.HashKey, err = readHashKey(q.Get("hash_key")); err != nil {
			return err
		}
	}
	c.SentinelUsername, c.SentinelPassword = q.Get("sentinel_user"), q.Get("sentinel_password")
	if encrypted {
		c.TLS, err = readTLS(q.Get("ca"), q.Get("cert"), q.Get("key"), q.Get("server_name"))
	}
	return err
}

// readHashKey reads a secret from a file, without the line end that an editor adds.
func readHashKey(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("hash_key: %w", withoutPath(err))
	}
	key := bytes.TrimRight(text, "\r\n")
	if len(key) < 16 {
		return nil, fmt.Errorf("hash_key: a secret of %d bytes can be guessed: write 32 random bytes into the file, such as the output of \"openssl rand -hex 32\"", len(key))
	}
	return key, nil
}

// readTLS makes a TLS configuration from PEM files. Each file name may be empty.
func readTLS(ca, cert, key, serverName string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", withoutPath(err))
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("ca: the file has no certificate in PEM form")
		}
	}
	if (cert == "") != (key == "") {
		return nil, errors.New("cert and key go together: one of them is missing")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("cert and key: %w", withoutPath(err))
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// withoutPath removes the name of the file from an error.
func withoutPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// String returns the address of the server as a URL, without users and passwords, and with no parameter but db.
func (c Config) String() string {
	scheme, master, db := "redis", "", ""
	if c.DB != 0 {
		db = "/" + strconv.Itoa(c.DB)
	}
	if c.TLS != nil {
		scheme = "rediss"
	}
	switch {
	case c.Cluster:
		scheme += "-cluster"
	case c.Master != "":
		scheme, master = scheme+"-sentinel", "/"+c.Master
	case len(c.Addrs) > 0 && strings.HasPrefix(c.Addrs[0], "/"):
		scheme, db = "unix", strings.Replace(db, "/", "?db=", 1)
	}
	return scheme + "://" + strings.Join(c.Addrs, ",") + master + db
}

// check returns an error of kind Misconfigured if c cannot work.
func (c Config) check() error {
	var problem string
	switch {
	case len(c.Addrs) == 0:
		problem = "missing address"
	case c.Cluster && c.Master != "":
		problem = "both Cluster and Master are set: Sentinels do not watch clusters"
	case len(c.Addrs) > 1 && !c.Cluster && c.Master == "":
		problem = "several addresses: use redis-cluster:// for a cluster, redis-sentinel:// for Sentinels"
	case c.Cluster && c.DB != 0:
		problem = "a cluster has only database 0: leave the database out"
	case strings.ContainsAny(c.Prefix, "{}"):
		problem = "the prefix contains a brace, which would put all keys on one node of a cluster"
	default:
		return nil
	}
	return &Error{Misconfigured, errors.New(problem)}
}
