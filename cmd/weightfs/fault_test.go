package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weightfs/fs"
	"weightfs/internal/hubtest"
	"weightfs/internal/testrel"
)

// faultMount is a mount by a process of its own, of a release of a stand-in hub that fails.
type faultMount struct {
	t      *testing.T
	hub    *hubtest.Hub
	cfg    hubtest.Config
	plan   *hubtest.Plan
	ledger hubtest.Ledger
	home   string
	dir    string
}

// newFaultMount starts a hub under the plan testdata/faults/PLAN.txt, "" for none. Nothing is mounted yet.
func newFaultMount(t *testing.T, plan string) *faultMount {
	t.Helper()
	if why := noFUSE(); why != "" {
		t.Skip(why)
	}
	m := &faultMount{t: t, home: t.TempDir()}
	m.dir = filepath.Join(m.home, "m")
	if err := os.Mkdir(m.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if plan != "" {
		var err error
		if m.plan, err = hubtest.ReadPlan("../../testdata/faults/" + plan + ".txt"); err != nil {
			t.Fatal(err)
		}
	}
	m.startHub()
	t.Cleanup(func() { m.hub.Close() })
	return m
}

// faultHub is a loopback address of its own: no connection takes the hub's port while the hub is away.
const faultHub = "127.84.84.84:0"

// startHub starts the hub, or starts it again at its address.
func (m *faultMount) startHub() {
	m.t.Helper()
	cfg := hubtest.Config{Make: demoRelease, Log: m.ledger.Add, Plan: m.plan, Latency: m.cfg.Latency, Rate: m.cfg.Rate}
	cfg.Addr = faultHub
	if m.hub != nil {
		cfg.Addr = strings.TrimPrefix(m.hub.URL, "http://")
	}
	h, err := hubtest.Start(cfg)
	if err != nil {
		m.t.Fatal(err)
	}
	m.hub = h
}

// weightfs is the program with an environment that knows only the hub.
func (m *faultMount) weightfs(wrap func(args ...string) []string, args ...string) *exec.Cmd {
	args = wrap(append([]string{"weightfs"}, args...)...)
	c := exec.Command(args[0], args[1:]...)
	c.Env = append(os.Environ(), "HF_ENDPOINT="+m.hub.URL, "HF_HUB_OFFLINE=0", "HF_HOME="+filepath.Join(m.home, "hf"), "XDG_CACHE_HOME="+filepath.Join(m.home, "cache"))
	return c
}

func plainly(args ...string) []string { return args }

// mount mounts, and unmounts when the test ends: by then nothing may be in use.
func (m *faultMount) mount(wrap func(args ...string) []string, args ...string) {
	m.t.Helper()
	said, err := os.Create(filepath.Join(m.home, "said"))
	if err != nil {
		m.t.Fatal(err)
	}
	defer said.Close()
	c := m.weightfs(wrap, append([]string{"mount", "--daemon"}, append(args, m.dir)...)...)
	c.Stderr = said
	if err := c.Run(); err != nil {
		text, _ := os.ReadFile(said.Name())
		m.t.Fatalf("mount: %v: %s", err, text)
	}
	pid := m.status().PID
	m.t.Cleanup(func() {
		if m.t.Failed() {
			log, _ := exec.Command("cat", filepath.Join(m.dir, ".weightfs/log")).Output()
			m.t.Logf("the log:\n%s", log)
		}
		fs.Unmount(m.dir, true)
		unix.Kill(pid, unix.SIGKILL)
	})
}

func (m *faultMount) status() mountStatus {
	m.t.Helper()
	s, err := readStatus(m.dir)
	if err != nil {
		m.t.Fatal(err)
	}
	return s
}

// unmount checks that a mount at rest holds nothing, unmounts it, and that its process ends.
func (m *faultMount) unmount() {
	m.t.Helper()
	s := m.status()
	if waiting := filepath.Join(m.connections(), fmt.Sprint(s.Mount.Connection), "waiting"); os.Geteuid() == 0 {
		m.until("no request that waits", func() bool {
			b, err := os.ReadFile(waiting)
			if err != nil {
				m.t.Fatal(err)
			}
			return strings.TrimSpace(string(b)) == "0"
		})
	}
	if out, err := m.weightfs(plainly, "umount", m.dir).CombinedOutput(); err != nil {
		m.t.Fatalf("umount: %v: %s", err, out)
	}
	m.until("a daemon that ends", func() bool { return unix.Kill(s.PID, 0) == unix.ESRCH || zombie(s.PID) })
}

// connections is where the kernel's FUSE connections can be seen; it is mounted there if it is nowhere yet.
func (m *faultMount) connections() string {
	m.t.Helper()
	const usual = "/sys/fs/fuse/connections"
	if all, err := os.ReadDir(usual); err == nil && len(all) > 0 {
		return usual
	}
	dir := filepath.Join(m.home, "connections")
	if err := os.Mkdir(dir, 0o777); os.IsExist(err) {
		return dir
	}
	if err := unix.Mount("fusectl", dir, "fusectl", 0, ""); err != nil {
		m.t.Skipf("NOT RUN: no fusectl: %v", err)
	}
	m.t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// zombie says whether a process has ended, though its parent has not asked yet.
func zombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := bytes.Cut(b, []byte(") "))
	return err != nil || bytes.HasPrefix(rest, []byte("Z"))
}

// until polls for at most half a minute.
func (m *faultMount) until(what string, ok func() bool) {
	m.t.Helper()
	for began := time.Now(); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			m.t.Fatalf("not in time: %s", what)
		}
	}
}

// reader is a fault-reader.
func (m *faultMount) reader(way, release, path string, files ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(m.t.Context(), 2*time.Minute)
	m.t.Cleanup(cancel)
	for i := range files {
		files[i] = filepath.Join(m.dir, files[i])
	}
	return exec.CommandContext(ctx, "fault-reader", append([]string{way, release, path}, files...)...)
}

// read runs a fault-reader on release/PATH and returns the last word of what it said.
func (m *faultMount) read(way, release, path string) string {
	m.t.Helper()
	out, err := m.reader(way, release, path, path).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

// TestFaultOutage (T5): a network that is away for a moment is not noticed; one that is away for longer than the deadline is EIO and SIGBUS,
// and from when it is back everything is right, with no new mount.
func TestFaultOutage(t *testing.T) {
	const shard, other = "model-00001-of-00006.safetensors", "model-00003-of-00006.safetensors"
	m := newFaultMount(t, "")
	m.mount(plainly, "--view=release", "--on-error=soft:4s", "hf://demo/kimi-mxfp4")
	m.hub.Close()
	said := make(chan string, 1)
	go func() { said <- m.read("mmap", "kimi-mxfp4", shard) }()
	time.Sleep(time.Second) // of the four that a read waits
	m.startHub()
	if got := <-said; got != "right" {
		t.Errorf("the network was away for a second: %s", got)
	}
	m.hub.Close()
	if got := m.read("pread", "kimi-mxfp4", other); got != "EIO" {
		t.Errorf("pread with no network: %s", got)
	}
	if got := m.read("mmap", "kimi-mxfp4", other); got != "SIGBUS" {
		t.Errorf("mmap with no network: %s", got)
	}
	if got := m.read("mmap", "kimi-mxfp4", shard); got != "right" {
		t.Errorf("what was read before: %s", got)
	}
	m.startHub()
	m.until("reads that are right again", func() bool { return m.read("pread", "kimi-mxfp4", other) == "right" })
	if got := m.read("mmap", "kimi-mxfp4", other); got != "right" {
		t.Errorf("mmap after the network is back: %s", got)
	}
	m.unmount()
}

// TestFaultKilledDaemon (T1): when the daemon is killed, readers that wait for it end at once, with an error. The next mount on the
// same place works and has what the first one fetched.
func TestFaultKilledDaemon(t *testing.T) {
	const hung, fetched = "model-00001-of-00006.safetensors", "model-00002-of-00006.safetensors"
	m := newFaultMount(t, "outage")
	m.mount(plainly, "--view=release", "hf://demo/kimi-mxfp4")
	if got := m.read("pread", "kimi-mxfp4", fetched); got != "right" {
		t.Fatal(got)
	}
	m.until("bytes on disk", func() bool { // what is written behind
		n, err := diskBytes(filepath.Join(m.home, "cache"))
		return err == nil && n >= testrel.KimiMXFP4().File(fetched).Size
	})
	mapped, stopped := m.reader("mmap", "kimi-mxfp4", hung, hung), m.reader("pread", "kimi-mxfp4", hung, hung)
	out := waitFirstLine(t, mapped)
	var errs bytes.Buffer
	stopped.Stdout = &errs
	if err := stopped.Start(); err != nil {
		t.Fatal(err)
	}
	m.until("a request that hangs", func() bool {
		for _, e := range m.ledger.Take() {
			if e.Kind == "data" && e.Path == hung {
				return true
			}
		}
		return false
	})
	if err := unix.Kill(m.status().PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	rest, _ := io.ReadAll(out)
	if err := errors.Join(mapped.Wait(), stopped.Wait()); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(killed); d > 20*time.Second {
		t.Errorf("the readers of a killed daemon waited for %v", d)
	}
	if got := strings.TrimSpace(string(rest)); got != "SIGBUS" {
		t.Errorf("a mapping of a killed daemon: %q", got)
	}
	if got := strings.TrimSpace(errs.String()); got != "ENOTCONN" && got != "ECONNABORTED" {
		t.Errorf("a read of a killed daemon: %q", got)
	}
	m.mount(plainly, "--view=release", "hf://demo/kimi-mxfp4")
	m.ledger.Take()
	if got := m.read("pread", "kimi-mxfp4", fetched); got != "right" {
		t.Error(got)
	}
	if data := hubtest.Of("data", m.ledger.Take()); len(data) > 0 {
		t.Errorf("what was on disk is fetched again: %+v", data)
	}
	m.unmount()
}

// TestFaultKilledMounting (T1): a daemon that is killed at any moment of its beginning ends, and its place can be mounted again.
func TestFaultKilledMounting(t *testing.T) {
	m := newFaultMount(t, "")
	model := filepath.Join(m.home, "model")
	if err := testrel.WriteDir(model, testrel.DenseBF16()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(m.dir, unix.MNT_DETACH) })
	rnd := rand.New(rand.NewPCG(3, 8))
	for range 30 {
		c := m.weightfs(plainly, "mount", "--cache-dir=none", model, m.dir)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { c.Wait(); close(ended) }()
		for began := time.Now(); ; {
			mounts, err := os.ReadFile("/proc/self/mounts")
			if err != nil || time.Since(began) > 30*time.Second {
				t.Fatalf("no mount: %v", err)
			}
			if strings.Contains(string(mounts), " "+m.dir+" ") {
				break // at once: it is about the milliseconds after it
			}
		}
		time.Sleep(time.Duration(rnd.Int64N(int64(4 * time.Millisecond))))
		c.Process.Kill()
		m.until("a killed daemon that ends", func() bool {
			select {
			case <-ended:
				return true
			default:
				return false
			}
		})
		if err := unix.Unmount(m.dir, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
	}
	m.mount(plainly, "--view=release", "hf://demo/dense-bf16")
	if got := m.read("pread", "dense-bf16", "model.safetensors"); got != "right" {
		t.Error(got)
	}
	m.unmount()
}

// waitFirstLine starts a command and waits until it has said something; the rest can be read.
func waitFirstLine(t *testing.T, c *exec.Cmd) io.Reader {
	t.Helper()
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	if _, err := r.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return r
}

// diskBytes is the room that the files below a directory take.
func diskBytes(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && d.Type().IsRegular() {
			err = unix.Lstat(p, &st)
			n += st.Blocks * 512
		}
		return err
	})
	return n, err
}

// TestFaultAborted (T36): the last rescue of hung readers, the connection's abort file, ends them and the daemon, and leaves nothing behind.
func TestFaultAborted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT RUN: aborting a connection needs root")
	}
	const hung = "model-00001-of-00006.safetensors"
	m := newFaultMount(t, "outage")
	m.mount(plainly, "--view=release", "hf://demo/kimi-mxfp4")
	s := m.status()
	reader := m.reader("mmap", "kimi-mxfp4", hung, hung)
	out := waitFirstLine(t, reader)
	if err := os.WriteFile(filepath.Join(m.connections(), fmt.Sprint(s.Mount.Connection), "abort"), []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(out)
	if err := reader.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(rest)); got != "SIGBUS" {
		t.Errorf("a mapping of an aborted mount: %q", got)
	}
	m.until("a daemon that ends", func() bool { return unix.Kill(s.PID, 0) == unix.ESRCH || zombie(s.PID) })
	m.mount(plainly, "--view=release", "hf://demo/dense-bf16")
	if got := m.read("pread", "dense-bf16", "model.safetensors"); got != "right" {
		t.Error(got)
	}
	m.unmount()
}

// TestFaultNamespace (T36): another mount namespace has a copy of the mount. After a signal the mount is out of the way here and that copy is
// served; a second signal ends the daemon.
func TestFaultNamespace(t *testing.T) {
	const shard, other = "model-00001-of-00006.safetensors", "model-00003-of-00006.safetensors"
	m := newFaultMount(t, "")
	m.mount(plainly, "--view=release", "--passthrough=off", "hf://demo/kimi-mxfp4")
	pid := m.status().PID
	script := `echo there; read x; [ "$(cat "$1" | wc -c)" = "$2" ] && echo right; read x`
	size := strconv.FormatInt(testrel.KimiMXFP4().File(other).Size, 10)
	space := exec.Command("unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", filepath.Join(m.dir, other), size)
	in, err := space.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := space.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := space.Start(); err != nil {
		t.Fatal(err)
	}
	defer space.Wait()
	defer in.Close()
	said := bufio.NewScanner(out)
	if !said.Scan() {
		t.Skip("NOT RUN: a copy of the mount in another namespace: unshare -m is not permitted")
	}
	if err := unix.Kill(pid, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	m.until("a mount that is gone", func() bool { _, err := os.Stat(filepath.Join(m.dir, shard)); return os.IsNotExist(err) })
	fmt.Fprintln(in, "read")
	if said.Scan(); said.Text() != "right" {
		t.Errorf("the copy says %q", said.Text())
	}
	if zombie(pid) {
		t.Error("the daemon has ended under a copy of its mount")
	}
	if err := unix.Kill(pid, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	m.until("a daemon that ends", func() bool { return unix.Kill(pid, 0) == unix.ESRCH || zombie(pid) })
}

// TestFaultBranchMoves (T21): a mount shows the commit it was mounted at, also when the branch has moved and nothing had been read.
func TestFaultBranchMoves(t *testing.T) {
	m := newFaultMount(t, "")
	dense := testrel.DenseBF16()
	m.hub.Add(hubtest.Repo{Name: "org/moves", Files: hubtest.FilesOf(dense)})
	m.mount(plainly, "--view=release", "hf://org/moves")
	m.hub.Add(hubtest.Repo{Name: "org/moves", Files: hubtest.FilesOf(testrel.TwinBF16()), Date: time.Date(2026, 5, 5, 5, 5, 5, 0, time.UTC)})
	for _, path := range []string{"model.safetensors", "config.json"} {
		if got := m.read("pread", "dense-bf16", path); got != "right" {
			t.Errorf("%s: %s", path, got)
		}
	}
	m.unmount()
}

// TestFaultConfusedCDN (T16): a CDN that was right and then refuses what the hub permits, twice and more in a row, is not noticed by who maps the
// file; one that goes on refusing is EACCES.
func TestFaultConfusedCDN(t *testing.T) {
	m := newFaultMount(t, "confused")
	m.mount(plainly, "--view=release", "hf://demo/kimi-mxfp4")
	for i, want := range []string{"right", "right", "EACCES"} {
		if got := m.read(map[bool]string{true: "mmap", false: "pread"}[i == 1], "kimi-mxfp4", fmt.Sprintf("model-0000%d-of-00006.safetensors", i+1)); got != want {
			t.Errorf("shard %d: %s, want %s", i+1, got, want)
		}
	}
	if n := len(hubtest.Of("resolve", m.ledger.Take())); n > 40 {
		t.Errorf("the hub was asked for %d addresses", n)
	}
	m.unmount()
}

// TestFaultCrowd (T26): 2,000 readers of 4 KiB each, of a hub a fifth of whose replies fail, in 8 MiB of memory: no error, and
// hardly more bytes are fetched than the file has.
func TestFaultCrowd(t *testing.T) {
	const shard = "model-00001-of-00010.safetensors"
	m := newFaultMount(t, "flaky")
	m.mount(plainly, "--view=release", "--memory=8MiB", "hf://demo/qwen-fp8")
	if got := m.read("crowd", "qwen-fp8", shard); got != "right" {
		t.Error(got)
	}
	if got := m.read("odd", "qwen-fp8", shard); got != "right" {
		t.Error(got)
	}
	s, size := m.status(), testrel.QwenFP8().File(shard).Size
	if s.Errors != 0 || s.Memory.Cache > 8<<20 {
		t.Errorf("%d errors, %d bytes of memory", s.Errors, s.Memory.Cache)
	}
	if fetched := hubtest.BytesOf(hubtest.Of("data", m.ledger.Take())); fetched > 3*size {
		t.Errorf("%d bytes were fetched for a file of %d", fetched, size)
	}
	m.unmount()
}

// TestFaultFewDescriptors (T28): with 64 descriptors every file is right all the same.
func TestFaultFewDescriptors(t *testing.T) {
	m := newFaultMount(t, "flaky")
	m.mount(func(args ...string) []string { return limits(64, "", args...) }, "--view=release", "hf://demo/qwen-fp8")
	r := testrel.QwenFP8()
	err := together(len(r.Files), func(i int) error {
		if got := m.read("pread", "qwen-fp8", r.Files[i].Path); got != "right" {
			return fmt.Errorf("%s: %s", r.Files[i].Path, got)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	m.unmount()
}

// TestFaultManyShards (T28): all 213 shards of a release open at once with 256 descriptors, also after every connection is lost.
func TestFaultManyShards(t *testing.T) {
	const release = "qwen3.8-max-fp8"
	m := newFaultMount(t, "")
	m.mount(func(args ...string) []string { return limits(256, "", args...) }, "--view=release", "hf://demo/"+release)
	var shards []*testrel.File
	var open []*os.File
	files := testrel.ByName(release)[0].Files
	for i, f := range files {
		if !strings.HasSuffix(f.Path, ".safetensors") {
			continue
		}
		file, err := os.Open(filepath.Join(m.dir, f.Path))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		shards, open = append(shards, &files[i]), append(open, file)
	}
	for round := range int64(2) {
		err := together(len(shards), func(i int) error {
			p, off := make([]byte, 4096), shards[i].Size/4*(round+1)
			if _, err := open[i].ReadAt(p, off); err != nil {
				return err
			}
			return same(p, shards[i], off)
		})
		if err != nil {
			t.Error(err)
		}
		if round == 0 {
			m.hub.Close()
			m.startHub()
		}
	}
	if s := m.status(); len(shards) != 213 || s.Errors != 0 {
		t.Errorf("%d shards, %d errors", len(shards), s.Errors)
	}
	for _, f := range open {
		f.Close()
	}
	m.unmount()
}

// TestFaultSmallCgroup (T27): 64 streams of a slow server in a memory cgroup of 256 MiB: nobody is killed.
func TestFaultSmallCgroup(t *testing.T) {
	m := newFaultMount(t, "")
	group := memoryCgroup(t, 256<<20)
	m.hub.Close()
	m.cfg.Latency, m.cfg.Rate = 20*time.Millisecond, 20<<20
	m.startHub()
	m.mount(func(args ...string) []string { return limits(0, group, args...) }, "--view=release", "hf://demo/qwen3-30b-a3b")
	pid := m.status().PID
	if got := m.read("streams", "qwen3-30b-a3b", "model-00002-of-00016.safetensors"); got != "right" {
		t.Error(got)
	}
	s := m.status()
	if s.PID != pid || s.Errors != 0 {
		t.Errorf("process %d, then %d; %d errors", pid, s.PID, s.Errors)
	}
	procs, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	if err != nil || !strings.Contains(string(procs), strconv.Itoa(pid)) {
		t.Errorf("the daemon is not in its cgroup: %q, %v", procs, err)
	}
	m.unmount()
}

// memoryCgroup makes a cgroup with so much memory.
func memoryCgroup(t *testing.T, limit int64) string {
	t.Helper()
	root, file := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		root, file = "/sys/fs/cgroup", "memory.max"
	}
	group := filepath.Join(root, fmt.Sprintf("weightfs-test-%d", os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skipf("NOT RUN: no memory cgroup: %v", err)
	}
	t.Cleanup(func() {
		for range 100 {
			if os.Remove(group) == nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	if err := os.WriteFile(filepath.Join(group, file), []byte(strconv.FormatInt(limit, 10)), 0); err != nil {
		t.Skipf("NOT RUN: no memory cgroup: %v", err)
	}
	return group
}
