//go:build long

package fold

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluicehq/sluice/internal/postgrestest"
	"github.com/sluicehq/sluice/internal/testkit"
)

// sqlServer is a server that runs until the end of the test.
type sqlServer struct {
	t      *testing.T
	client []string // the command that reads statements and writes rows
}

// ask runs statements, and returns their rows.
func (s *sqlServer) ask(statements string) []string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), s.client[0], s.client[1:]...)
	cmd.Stdin = strings.NewReader(statements)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil || complaint.Len() > 0 {
		s.t.Fatalf("%.200s: %v: %.500s", statements, err, complaint.String())
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// startMariaDB starts a server that listens on a Unix socket only.
func startMariaDB(t *testing.T) *sqlServer {
	t.Helper()
	dir := serverDir(t)
	data, socket := filepath.Join(dir, "data"), filepath.Join(dir, "socket")
	run(t, "mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", "--datadir="+data)
	start(t, "mariadbd", "--no-defaults", "--user=root", "--skip-networking", "--datadir="+data, "--socket="+socket)
	s := &sqlServer{t, []string{"mariadb", "--no-defaults", "-S", socket, "-uroot", "--default-character-set=utf8mb4", "-N", "mysql"}}
	s.await()
	return s
}

// serverDir returns a directory that the account of the servers may use, with a name that
// is short enough for a socket.
func serverDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fold")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if os.Getuid() == 0 {
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// nobody is the user ID of the servers if the test runs as root.
const nobody = 65534

func command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	path, found := testkit.Find(name)
	if !found {
		if os.Getenv("SLUICE_COLLATIONS") != "" {
			t.Fatalf("%s is missing: \"make tools\" installs it", name)
		}
		testkit.Missing(t, name)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = os.TempDir()
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	return cmd
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := command(t, name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}

func start(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := command(t, name, args...)
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		if t.Failed() {
			t.Logf("output of %s: %s", name, output.String())
		}
	})
}

// await waits until the server answers.
func (s *sqlServer) await() {
	s.t.Helper()
	testkit.Await(s.t, s.client[0]+" connects", func() bool {
		cmd := exec.Command(s.client[0], s.client[1:]...)
		cmd.Stdin = strings.NewReader("select 1;")
		return cmd.Run() == nil
	})
}

// startPostgres starts a server with a database that has a character type for all of Unicode.
func startPostgres(t *testing.T) *sqlServer {
	t.Helper()
	host, port, _ := net.SplitHostPort(postgrestest.Start(t).Addr)
	client := []string{"psql", "-h", host, "-p", port, "-U", "sluice", "-qAtX", "-v", "ON_ERROR_STOP=1"}
	(&sqlServer{t, append(client, "postgres")}).ask("create database names template template0 lc_ctype 'C.UTF-8';")
	return &sqlServer{t, append(client, "names")}
}
