package fs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMountedBytes: every way of reading gives the bytes of the file.
func TestMountedBytes(t *testing.T) {
	f, m := mounted(t, testConfig())
	for _, op := range []string{"pread", "mmap", "direct", "sendfile", "eof", "parallel", "write"} {
		t.Run(op, func(t *testing.T) { child(t, op, m.Dir()) })
	}
	if s := f.Status(); s.Errors != 0 || s.Panics != 0 || s.Bytes.Served < bigSize {
		t.Errorf("after all that: %+v\n%s", s, f.ring.Bytes())
	}
}

// TestMountedOneProcessor: the same with one processor for the server.
func TestMountedOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	_, m := mounted(t, testConfig())
	for _, op := range []string{"pread", "mmap", "parallel"} {
		child(t, op, m.Dir())
	}
}

// TestPageCacheIsKept: what was read once is not asked for again, over opens and processes.
func TestPageCacheIsKept(t *testing.T) {
	f, m := mounted(t, testConfig())
	child(t, "copy", filepath.Join(m.Dir(), "mix.bin"))
	before := f.Status()
	child(t, "copy", filepath.Join(m.Dir(), "mix.bin"))
	if after := f.Status(); after.Reads != before.Reads {
		t.Errorf("the second read of a file makes %d requests", after.Reads-before.Reads)
	}
}

// TestStat: sizes, link counts, blocks, times, inode numbers and the file system's own.
func TestStat(t *testing.T) {
	_, m := mounted(t, testConfig())
	out := child(t, "stat", m.Dir(), ".", "big.bin", "empty", "sub", "sub/a", "blocks/E00003.bin", ".weightfs/log")
	mtime := released().Unix()
	ino := func(path string) uint64 { return (&place{path: path, tree: testTree("")}).ino() }
	for _, line := range []string{
		fmt.Sprintf(". 40555 2 0 0 4096 1 %d\n", mtime),
		fmt.Sprintf("big.bin 100444 1 %d %d 4096 %d %d\n", bigSize, (bigSize+511)/512, ino("big.bin"), mtime),
		fmt.Sprintf("empty 100444 1 0 0 4096 %d %d\n", ino("empty"), mtime),
		fmt.Sprintf("sub 40555 2 0 0 4096 %d %d\n", ino("sub"), mtime),
		fmt.Sprintf("sub/a 100444 1 1 1 4096 %d %d\n", ino("sub/a"), mtime),
		fmt.Sprintf("blocks/E00003.bin 100444 1 8192 16 4096 %d %d\n", ino("blocks/E00003.bin"), mtime),
		".weightfs/log 100400 1 ",
		fmt.Sprintf("statfs 4096 %d 0 77 255\n", 123<<20/4096),
	} {
		if !strings.Contains(out, line) {
			t.Errorf("no line %q in\n%s", line, out)
		}
	}
}

// TestInodeNumbers hang on the release and the path and on nothing else.
func TestInodeNumbers(t *testing.T) {
	a, b := testTree(""), testTree("")
	b.Revision = "other"
	ino := func(tree *Tree, path string) uint64 { return (&place{path: path, tree: tree}).ino() }
	if ino(a, "x") != ino(testTree(""), "x") || ino(a, "x") == ino(a, "y") || ino(a, "x") == ino(b, "x") {
		t.Error("inode numbers do not depend on release and path alone")
	}
	d := newDoor(newFS(t, testConfig()), t.Context())
	if err := d.register(5, "a"); err != nil {
		t.Error(err)
	}
	if err := d.register(5, "a"); err != nil {
		t.Error(err)
	}
	if err := d.register(5, "b"); err == nil {
		t.Error("two paths have one inode number")
	}
}

// TestErrnos: what a reader gets for each failure, at open and at read.
func TestErrnos(t *testing.T) {
	c := testConfig()
	c.Deadline = 300 * time.Millisecond
	f, m := mounted(t, c)
	for name, exp := range map[string]string{
		"failing/temporary.bin":  fmt.Sprintf("open 0 read %d\n", syscall.EIO),
		"failing/changed.bin":    fmt.Sprintf("open 0 read %d\n", syscall.ESTALE),
		"failing/denied.bin":     fmt.Sprintf("open 0 read %d\n", syscall.EACCES),
		"failing/panics.bin":     fmt.Sprintf("open 0 read %d\n", syscall.EIO),
		"failing/hangs.bin":      fmt.Sprintf("open 0 read %d\n", syscall.EIO),
		"failing/refuses.bin":    fmt.Sprintf("open %d\n", syscall.EACCES),
		"failing/wrong-size.bin": fmt.Sprintf("open %d\n", syscall.EIO),
		"nowhere.bin":            fmt.Sprintf("open %d\n", syscall.ENOENT),
		"late/x":                 fmt.Sprintf("open %d\n", syscall.EIO),
		"big.bin":                "open 0 read 0\n",
	} {
		if got := child(t, "errno", filepath.Join(m.Dir(), name)); got != exp {
			t.Errorf("%s: %q, not %q", name, got, exp)
		}
	}
	if s := f.Status(); s.Panics == 0 || s.Errors == 0 {
		t.Errorf("the failures are not counted: %+v", s)
	}
	log := string(f.ring.Bytes())
	for _, part := range []string{"a store that panics", "harness_test.go", "failing/changed.bin", "no answer within the read deadline"} {
		if !strings.Contains(log, part) {
			t.Errorf("the log does not have %q:\n%s", part, log)
		}
	}
}

// TestShortReplyIsAnError: nothing but the bytes there are, or an error, passes the choke point.
func TestShortReplyIsAnError(t *testing.T) {
	for _, x := range []struct {
		n     int
		err   error
		off   int64
		asked int
		ok    bool
	}{
		{100, nil, 0, 100, true}, {50, io.EOF, 50, 100, true}, {0, io.EOF, 100, 10, true}, {0, io.EOF, 1 << 62, 10, true}, {0, nil, 0, 0, true},
		{99, nil, 0, 100, false}, {99, io.EOF, 0, 100, false}, {0, nil, 0, 100, false}, {0, io.EOF, 99, 1, false}, {101, nil, 0, 100, false},
		{100, io.ErrUnexpectedEOF, 0, 100, false},
	} {
		n, err := reply(x.n, x.err, 100, x.off, x.asked)
		if ok := err == nil || err == io.EOF; ok != x.ok || ok && n != x.n || !ok && n != 0 {
			t.Errorf("%+v: %d, %v", x, n, err)
		}
	}
}

// TestKilledReader: a reader that waits for bytes is released by SIGKILL long before the deadline; SIGTERM's handler and other
// signals do not end its wait.
func TestKilledReader(t *testing.T) {
	_, m := mounted(t, testConfig())
	cmd := childCommand(t.Context(), "hang", filepath.Join(m.Dir(), "failing/hangs.bin"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		time.Sleep(20 * time.Millisecond)
		if err := cmd.Process.Signal(syscall.SIGURG); err != nil {
			t.Fatal(err)
		}
	}
	if state := processState(cmd.Process.Pid); state == "" || strings.Contains(state, "Z") {
		t.Fatalf("signals ended the wait: state %q", state)
	}
	start := time.Now()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
		t.Logf("gone after %v", time.Since(start))
	case <-time.After(10 * time.Second):
		t.Error("the killed reader still waits")
	}
}

// TestInterruptStorm: a signal every millisecond does not keep a page fault on a slow file from being answered.
func TestInterruptStorm(t *testing.T) {
	f, m := mounted(t, testConfig())
	child(t, "storm", filepath.Join(m.Dir(), "failing/slow.bin"))
	if n := f.Status().Errors; n != 0 {
		t.Errorf("%d errors:\n%s", n, f.ring.Bytes())
	}
}

// TestFaultOfFailure: a page that cannot be read is a fault, never a page of zeros.
func TestFaultOfFailure(t *testing.T) {
	_, m := mounted(t, testConfig())
	for name, exp := range map[string]string{"failing/changed.bin": "fault\n", "failing/panics.bin": "fault\n", "big.bin": fmt.Sprintf("byte %d\n", fileByte(0, 0))} {
		if got := child(t, "fault", filepath.Join(m.Dir(), name)); got != exp {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func processState(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return rest[:1]
}

// TestLargeListing: a directory of 82,432 files lists quickly, and memory stays small when every entry has been looked at.
func TestLargeListing(t *testing.T) {
	if raceEnabled {
		t.Skip("82,432 files take minutes with the race detector, which has nothing to find here")
	}
	f, m := mounted(t, testConfig())
	dir := filepath.Join(m.Dir(), "blocks")
	start, before := time.Now(), heap()
	if got := child(t, "list", dir); got != "82432\n" {
		t.Fatalf("%s entries", got)
	}
	listed := time.Since(start)
	if got := child(t, "list", dir, "stat"); got != "82432\n" {
		t.Fatalf("%s entries", got)
	}
	grown := heap() - before
	t.Logf("listed in %v, with stat %v, %d bytes of heap an entry", listed, time.Since(start)-listed, grown/blocks)
	if grown > 1500*blocks {
		t.Errorf("looking at everything holds %d MiB", grown>>20)
	}
	if n := f.plans.lru.Len(); n != 0 {
		t.Errorf("listing made %d plans", n)
	}
}

func heap() int64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// TestPlansAreBounded: opening many files keeps few plans.
func TestPlansAreBounded(t *testing.T) {
	c := testConfig()
	c.Plans = 10_000
	f := newFS(t, c)
	for i := range 1000 {
		file, err := f.Open(t.Context(), fmt.Sprintf("blocks/E%05d.bin", i))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.ReadAt(t.Context(), make([]byte, 10), 0); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.plans.memory(); n > 10_000 || n <= 0 {
		t.Errorf("plans of %d bytes are kept", n)
	}
}

// TestControlFiles: status and log through the mount, fresh at every open.
func TestControlFiles(t *testing.T) {
	_, m := mounted(t, testConfig())
	read := func() (s Status) {
		if err := json.Unmarshal([]byte(child(t, "copy", filepath.Join(m.Dir(), ".weightfs/status.json"))), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := read()
	child(t, "copy", filepath.Join(m.Dir(), "mix.bin"))
	second := read()
	if first.PID != os.Getpid() || second.Bytes.Served != first.Bytes.Served+mixSize || first.Bytes.Fetched != 11 || first.Bytes.Cached != 22 {
		t.Errorf("first %+v\nthen %+v", first, second)
	}
	if mount := first.Mount; mount == nil || mount.Connection == 0 || mount.Dir != m.Dir() || first.Sources[0].Source != "hf://org/" {
		t.Errorf("%+v, %+v", first.Mount, first.Sources)
	}
	if os.Geteuid() == 0 && second.Mount.ReadAheadKB != defaultReadAheadKB {
		t.Errorf("read-ahead is %d KiB", second.Mount.ReadAheadKB)
	}
	child(t, "errno", filepath.Join(m.Dir(), "failing/changed.bin"))
	if log := child(t, "copy", filepath.Join(m.Dir(), ".weightfs/log")); !strings.Contains(log, "changed.bin") {
		t.Errorf("the log: %q", log)
	}
}

// TestSeveralSources: each under its own name.
func TestSeveralSources(t *testing.T) {
	_, m := mounted(t, testConfig(testTree("org/a"), testTree("org/b@rev"), testTree("plain")))
	if got := child(t, "list", m.Dir()); got != "3\n" { // .weightfs, org, plain
		t.Errorf("%s entries", got)
	}
	for _, dir := range []string{"org/a", "org/b@rev", "plain"} {
		child(t, "pread", filepath.Join(m.Dir(), dir))
	}
	for _, trees := range [][]*Tree{{testTree("a"), testTree("a")}, {testTree(""), testTree("a")}, {testTree("a"), testTree("a/b")}, {testTree("a/b"), testTree("a")}} {
		if _, err := New(testConfig(trees...)); err == nil {
			t.Errorf("trees at %q and %q are accepted", trees[0].At, trees[1].At)
		}
	}
}

// TestNoLeaks: after unmounting nothing of a mount is left, also after a thousand of them: no goroutine, descriptor or FUSE connection.
func TestNoLeaks(t *testing.T) {
	needFUSE(t)
	rounds := 1000
	if testing.Short() || raceEnabled {
		rounds = 50
	}
	f, dir := newFS(t, testConfig()), t.TempDir()
	cycle := func(read bool) {
		m, err := f.Mount(dir, MountOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if read {
			child(t, "copy", filepath.Join(m.Dir(), "mix.bin"))
		}
		if err := m.Unmount(); err != nil {
			t.Fatal(err)
		}
	}
	cycle(true)
	ignore, fds, connections := goleak.IgnoreCurrent(), openFiles(t), fuseConnections()
	for i := range rounds {
		cycle(i%(rounds/5) == 0)
	}
	if err := goleak.Find(ignore); err != nil {
		t.Error(err)
	}
	if now := openFiles(t); now > fds {
		t.Errorf("%d open files, %d before", now, fds)
	}
	if now := fuseConnections(); now > connections+rounds/2 { // other programs mount and unmount too
		t.Errorf("%d FUSE connections, %d before", now, connections)
	}
	if f.Status().Mount != nil {
		t.Error("the status still has a mount")
	}
}

func fuseConnections() int {
	entries, _ := os.ReadDir("/sys/fs/fuse/connections") // not mounted everywhere
	return len(entries)
}

func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// serving starts a process that mounts the tree on dir.
func serving(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	cmd := childCommand(context.Background(), "serve", dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = unmount(dir, true)
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "mounted\n" {
		t.Fatalf("the server says %q, %v", line, err)
	}
	return cmd
}

// TestDeadMountIsCleaned: after kill -9 of the server, the next mount cleans the place and does not stack; a living mount is left alone.
func TestDeadMountIsCleaned(t *testing.T) {
	needFUSE(t)
	dir := t.TempDir()
	server := serving(t, dir)
	f := newFS(t, testConfig())
	if _, err := f.Mount(dir, MountOptions{}); err == nil || !strings.Contains(err.Error(), "weightfs umount") {
		t.Fatalf("mounting over a living mount: %v", err)
	}
	_ = server.Process.Kill()
	_ = server.Wait()
	if out := child(t, "errno", filepath.Join(dir, "big.bin")); out != fmt.Sprintf("open %d\n", syscall.ENOTCONN) {
		t.Fatalf("a dead mount: %q", out)
	}
	m, err := f.Mount(dir, MountOptions{})
	if err != nil {
		t.Fatal(err)
	}
	child(t, "pread", dir)
	if err := m.Unmount(); err != nil {
		t.Fatal(err)
	}
	if info, err := mountAt(dir); info != nil || err != nil {
		t.Errorf("below the mount there was another: %v, %v", info, err)
	}
}

// TestUnmountDead: umount works on dead mounts, and says what is wrong elsewhere.
func TestUnmountDead(t *testing.T) {
	needFUSE(t)
	dir := t.TempDir()
	server := serving(t, dir)
	_ = server.Process.Kill()
	_ = server.Wait()
	if err := Unmount(dir, false); err != nil {
		t.Error(err)
	}
	if err := Unmount(dir, false); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "nothing is mounted") {
		t.Errorf("nothing mounted: %v", err)
	}
	if err := Unmount("/proc", false); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "not of weightfs") {
		t.Errorf("another file system: %v", err)
	}
}

// TestBusyMount: a mount in use is not unmounted and goes on serving; detached, it serves its last user.
func TestBusyMount(t *testing.T) {
	needFUSE(t)
	f := newFS(t, testConfig())
	m, err := f.Mount(t.TempDir(), MountOptions{})
	if err != nil {
		t.Fatal(err)
	}
	user := childCommand(t.Context(), "hold", filepath.Join(m.Dir(), "big.bin"))
	in, _ := user.StdinPipe()
	out, _ := user.StdoutPipe()
	if err := user.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	user1 := fmt.Sprintf("(%d)", user.Process.Pid)
	for _, err := range []error{m.Unmount(), Unmount(m.Dir(), false)} {
		if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), user1) {
			t.Errorf("unmount of a mount that %s uses: %v", user1, err)
		}
	}
	child(t, "pread", m.Dir())
	if err := m.Detach(); err != nil {
		t.Error(err)
	}
	in.Close()
	if err := user.Wait(); err != nil {
		t.Errorf("the last user: %v", err)
	}
	m.Wait()
}

// TestLeaveOther: a mount that somebody else took away leaves alone what is mounted in its place since.
func TestLeaveOther(t *testing.T) {
	needFUSE(t)
	first, err := newFS(t, testConfig()).Mount(t.TempDir(), MountOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h := hold(t, first, "open")
	if err := Unmount(first.Dir(), true); err != nil {
		t.Fatal(err)
	}
	second, err := newFS(t, testConfig()).Mount(first.Dir(), MountOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Leave(); err != nil {
		t.Errorf("leave: %v", err)
	}
	if err := first.Detach(); err != nil {
		t.Errorf("detach: %v", err)
	}
	child(t, "pread", second.Dir())
	h.read()
	h.close()
	first.Wait()
	if err := second.Unmount(); err != nil {
		t.Error(err)
	}
}

// TestMountBelow: a mount that stands below is named by who cannot unmount because of it.
func TestMountBelow(t *testing.T) {
	_, m := mounted(t, testConfig())
	below := filepath.Join(m.Dir(), "sub/dir")
	if out, err := exec.Command("mount", "-t", "tmpfs", "none", below).CombinedOutput(); err != nil {
		t.Skipf("NOT RUN: mounting below a mount needs root: %s", out)
	}
	for _, err := range []error{m.Unmount(), Unmount(m.Dir(), false)} {
		if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), below+" is mounted below it") {
			t.Errorf("unmount: %v", err)
		}
	}
	if out, err := exec.Command("umount", below).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestRefusedPlaces: mount points that cannot be used are refused with a reason.
func TestRefusedPlaces(t *testing.T) {
	f := newFS(t, testConfig())
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, part := range map[string]string{
		"/proc": "already", filepath.Join(t.TempDir(), "none"): "mkdir", file: "not a directory", filepath.Join(t.TempDir(), "a/b"): "mount point",
	} {
		if _, err := f.Mount(dir, MountOptions{}); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("mount on %s: %v", dir, err)
		}
	}
}

// TestUserNamespace: a mount in a user and mount namespace of one's own, which needs no fusermount3.
func TestUserNamespace(t *testing.T) {
	needFUSE(t)
	if err := exec.Command("unshare", "-Urm", "true").Run(); err != nil {
		t.Skipf("needs unprivileged user namespaces: %v", err)
	}
	dir := t.TempDir()
	script := `"$0" "$1" & server=$!
for i in $(seq 100); do [ -e "$1/big.bin" ] && break; sleep 0.1; done
` + childEnv + `=pread "$0" "$1"; code=$?
umount "$1"; wait $server; exit $code`
	cmd := exec.CommandContext(t.Context(), "unshare", "-Urm", "sh", "-c", script, os.Args[0], dir)
	cmd.Env = append(os.Environ(), childEnv+"=serve")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestDeadlineClamp: the read deadline keeps under the kernel's limit.
func TestDeadlineClamp(t *testing.T) {
	for text, exp := range map[string]time.Duration{"0\n": time.Minute, "30\n": 27 * time.Second, "300\n": time.Minute, "x": time.Minute} {
		file := filepath.Join(t.TempDir(), "limit")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := clampDeadline(time.Minute, file); got != exp {
			t.Errorf("limit %s: %v, not %v", strconv.Quote(text), got, exp)
		}
	}
}

// TestHasKill reads the signal masks of a status file.
func TestHasKill(t *testing.T) {
	const head = "Name:\tx\nSigQ:\t0/1\n"
	for text, exp := range map[string]bool{
		head + "SigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n": true,
		head + "SigPnd:\t0000000000000000\nShdPnd:\t0000000000000300\n": true,
		head + "SigPnd:\t0000000000000200\nShdPnd:\t0000000000400000\n": false,
		head + "SigBlk:\t0000000000000100\n":                            false,
		"":                                                              false,
	} {
		if hasKill([]byte(text)) != exp {
			t.Errorf("%q: not %v", text, exp)
		}
	}
}

// TestUnprivilegedUser: a user who may not mount does so through fusermount3.
func TestUnprivilegedUser(t *testing.T) {
	needFUSE(t)
	if os.Geteuid() != 0 || findHelper() == "" {
		t.Skip("needs root, who can become somebody else, and fusermount3")
	}
	work, err := os.MkdirTemp("", "weightfs-user")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(work)
	// In a mount namespace of its own, /dev/fuse is everybody's. The test binary lies where others cannot reach it.
	script := `set -e
cd "$1"; chmod 755 .; cp "$0" binary; mknod fuse c 10 229; chmod 666 fuse; mount --bind fuse /dev/fuse
mkdir mnt; chown 65534:65534 mnt
` + childEnv + `=serve setpriv --reuid=65534 --regid=65534 --clear-groups ./binary "$1/mnt" & server=$!
as() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
for i in $(seq 100); do as test -e mnt/big.bin && break; sleep 0.1; done
code=0; ` + childEnv + `=pread as ./binary "$1/mnt" || code=$?
` + childEnv + `=unmount as ./binary "$1/mnt"; wait $server; exit $code`
	cmd := exec.CommandContext(t.Context(), "unshare", "-m", "sh", "-c", script, os.Args[0], work)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
