package cache

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// child runs fn in a process of its own, which is this test binary once more.
func child(t *testing.T, name string, fn func(dir string) error) {
	t.Helper()
	if dir := os.Getenv("WEIGHTFS_CHILD_DIR"); dir != "" {
		if err := fn(dir); err != nil {
			t.Fatal(err)
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+name+"$")
	cmd.Env = append(os.Environ(), "WEIGHTFS_CHILD_DIR="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("child: %v\n%s", err, out)
	}
}

func limitDescriptors(n uint64) error {
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n})
}
