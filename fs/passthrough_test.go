package fs

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weightfs/fs/plan"
)

// localFiles are the backings of the test tree: files on disk with the same bytes, that are there or not.
type localFiles struct {
	files map[int]*os.File
	there atomic.Bool
	more  bool // what is not there may come
	lent  atomic.Int64
}

func (l *localFiles) Lend(_ context.Context, file int) (Backing, bool) {
	f := l.files[file]
	if f == nil || !l.there.Load() {
		return Backing{}, false
	}
	info, err := f.Stat()
	if err != nil {
		return Backing{}, false
	}
	l.lent.Add(1)
	return Backing{f.Fd(), info.Size(), sync.OnceFunc(func() { l.lent.Add(-1) })}, true
}

func (l *localFiles) Completes(int) bool { return l.more }

// local is backings with the content of big.bin.
func local(t *testing.T) *localFiles {
	t.Helper()
	name := filepath.Join(t.TempDir(), "big")
	data := make([]byte, bigSize)
	fill(data, 0, 0)
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &localFiles{files: map[int]*os.File{0: f}}
}

// passing mounts the test tree with backings, and skips where the kernel has no passthrough.
func passing(t *testing.T, l *localFiles) (*FS, *Mount) {
	t.Helper()
	tree := testTree("")
	tree.Backings = l
	f, m := mounted(t, testConfig(tree))
	if s := f.Status().Mount.Passthrough; !s.On {
		t.Skipf("needs passthrough: %s", s.Why)
	}
	t.Cleanup(func() {
		if n := l.lent.Load(); n != 0 {
			t.Errorf("%d backings are still lent", n)
		}
	})
	return f, m
}

// TestPassthrough: the kernel reads the whole file by itself, in every way, and the bytes are the same; other files go on as they did.
func TestPassthrough(t *testing.T) {
	l := local(t)
	l.there.Store(true)
	f, m := passing(t, l)
	for _, op := range []string{"mmap", "parallel"} {
		child(t, op, m.Dir())
	}
	child(t, "copy", filepath.Join(m.Dir(), "big.bin"))
	s := f.Status()
	if s.Reads != 0 || s.Mount.Passthrough.Opens < 3 || s.Mount.Passthrough.Failed != 0 {
		t.Errorf("%d reads reached the process: %+v", s.Reads, s.Mount.Passthrough)
	}
	for _, op := range []string{"direct", "pread", "sendfile", "eof", "write"} {
		child(t, op, m.Dir())
	}
	if s := f.Status(); s.Reads == 0 || s.Errors != 0 {
		t.Errorf("after reading other files: %+v\n%s", s, f.ring.Bytes())
	}
}

// holder is a child that has big.bin open or mapped.
type holder struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	ino string // inode number
}

func hold(t *testing.T, m *Mount, how string) *holder {
	t.Helper()
	h := &holder{t: t, cmd: childCommand(t.Context(), "keep", filepath.Join(m.Dir(), "big.bin"), how)}
	h.cmd.Stderr = os.Stderr
	var err error
	if h.in, err = h.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h.out = bufio.NewReader(out)
	h.ino = h.line()
	return h
}

func (h *holder) line() string {
	h.t.Helper()
	s, err := h.out.ReadString('\n')
	if err != nil {
		h.t.Fatalf("the child that holds the file: %v, %v", err, h.cmd.Wait())
	}
	return s
}

// read has the child read and compare.
func (h *holder) read() {
	h.t.Helper()
	fmt.Fprintln(h.in, "read")
	h.line()
}

func (h *holder) close() {
	h.t.Helper()
	h.in.Close()
	if err := h.cmd.Wait(); err != nil {
		h.t.Fatal(err)
	}
}

// TestCompletion: a file that becomes complete while others have it open and mapped is read by passthrough by those who come then, under the
// same inode number; the others read on. The way back is as quiet.
func TestCompletion(t *testing.T) {
	l := local(t)
	l.more = true
	f, m := passing(t, l)
	opens := func() int64 { return f.Status().Mount.Passthrough.Opens }
	open, mapped := hold(t, m, "fd"), hold(t, m, "map")
	open.read()
	mapped.read()
	if opens() != 0 {
		t.Fatal("passthrough of a file that is not complete")
	}
	l.there.Store(true)
	later := hold(t, m, "fd")
	for deadline := time.Now().Add(20 * completeWithin); opens() == 0; later = hold(t, m, "fd") {
		later.close() // its look at the name was answered from the kernel's memory, which lasts for completeWithin
		if time.Now().After(deadline) {
			t.Fatal("the file is never offered for passthrough")
		}
	}
	reads := f.Status().Reads
	later.read()
	if f.Status().Reads != reads {
		t.Error("reads of the completed file reach the process")
	}
	also := hold(t, m, "map")
	also.read()
	open.read()
	mapped.read()
	if later.ino != open.ino || also.ino != open.ino {
		t.Errorf("inode numbers %q, %q, %q", open.ino, later.ino, also.ino)
	}
	l.there.Store(false)
	still := hold(t, m, "fd") // as those who have it open
	still.read()
	for _, h := range []*holder{open, later, still} {
		h.close()
	}
	also.read()
	mapped.read()
	also.close()
	gone := hold(t, m, "map")
	gone.read()
	gone.close()
	mapped.read()
	mapped.close()
	if s := f.Status(); s.Errors != 0 || s.Mount.Passthrough.Failed != 0 {
		t.Errorf("%+v\n%s", s, f.ring.Bytes())
	}
}

// TestModesNeverMix: readers that come and go while the file is complete at times and at times not never see an error.
func TestModesNeverMix(t *testing.T) {
	l := local(t)
	l.more = true
	f, m := passing(t, l)
	stop := make(chan struct{})
	var flips sync.WaitGroup
	flips.Go(func() {
		rnd := rand.New(rand.NewPCG(3, 4))
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(rnd.IntN(20)) * time.Millisecond):
				l.there.Store(!l.there.Load())
			}
		}
	})
	for deadline := time.Now().Add(60 * completeWithin); f.Status().Mount.Passthrough.Opens == 0 && time.Now().Before(deadline); {
		child(t, "comeandgo", filepath.Join(m.Dir(), "big.bin"))
	}
	child(t, "comeandgo", filepath.Join(m.Dir(), "big.bin"))
	close(stop)
	flips.Wait()
	if s := f.Status(); s.Errors != 0 || s.Mount.Passthrough.Opens == 0 || s.Mount.Passthrough.Failed != 0 {
		t.Errorf("%+v\n%s", s, f.ring.Bytes())
	}
}

// TestPassthroughRefused: a backing that the kernel does not take is told, and the file is read through the process.
func TestPassthroughRefused(t *testing.T) {
	l := local(t)
	l.there.Store(true)
	_, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	l.files[0].Close()
	tree := testTree("")
	tree.Backings = refusing{w.Fd()}
	f, m := mounted(t, testConfig(tree))
	if s := f.Status().Mount.Passthrough; !s.On {
		t.Skipf("needs passthrough: %s", s.Why)
	}
	h := hold(t, m, "fd")
	h.read()
	h.close()
	s := f.Status()
	if s.Mount.Passthrough.Failed != 1 || s.Mount.Passthrough.Opens != 0 || s.Reads == 0 || s.Errors != 0 {
		t.Errorf("%+v", s)
	}
	if log := string(f.ring.Bytes()); !strings.Contains(log, "passthrough of big.bin: ") {
		t.Errorf("the log says nothing:\n%s", log)
	}
}

// refusing lends what is no regular file.
type refusing struct{ fd uintptr }

func (r refusing) Lend(context.Context, int) (Backing, bool) {
	return Backing{r.fd, bigSize, func() {}}, true
}

func (refusing) Completes(int) bool { return false }

// TestPassthroughOff: a mount that does not want it has none, and says so.
func TestPassthroughOff(t *testing.T) {
	needFUSE(t)
	l := local(t)
	l.there.Store(true)
	tree := testTree("")
	tree.Backings = l
	f := newFS(t, testConfig(tree))
	m, err := f.Mount(t.TempDir(), MountOptions{NoPassthrough: true})
	if err != nil {
		t.Fatal(err)
	}
	child(t, "copy", filepath.Join(m.Dir(), "big.bin"))
	s := f.Status()
	if p := s.Mount.Passthrough; p.On || p.Why != "turned off" || p.Opens != 0 || s.Reads == 0 {
		t.Errorf("%+v", s)
	}
	if err := m.Unmount(); err != nil {
		t.Fatal(err)
	}
}

// TestWhole: a plan of one copy that begins at 0 may be read by passthrough, no other.
func TestWhole(t *testing.T) {
	c := func(start, end int64) plan.Piece { return plan.Copy{Span: plan.Span{File: 7, Start: start, End: end}} }
	for _, x := range []struct {
		p  *plan.Plan
		ok bool
	}{
		{plan.New(c(0, 10)), true}, {plan.New(c(1, 10)), false}, {plan.New(c(0, 10), plan.Zero{Size: 1}), false}, {plan.New(), false}, {nil, false},
		{plan.New(plan.Rows{First: plan.Span{File: 7, End: 5}, Stride: 5, Count: 2}), false},
	} {
		if file, ok := whole(x.p); ok != x.ok || ok && file != 7 {
			t.Errorf("%+v: %d, %v", x.p, file, ok)
		}
	}
}

// childKeep holds a file open ("fd") or mapped without a descriptor ("map"). It prints the inode number; for each line it is sent, it reads somewhere else.
func childKeep(args []string) error {
	f, err := os.Open(args[0])
	if err != nil {
		return err
	}
	read := func(p []byte, off int64) error { _, err := f.ReadAt(p, off); return err }
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if args[1] == "map" {
		m, err := unix.Mmap(int(f.Fd()), 0, bigSize, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		f.Close()
		read = func(p []byte, off int64) error { copy(p, m[off:]); return nil }
	}
	fmt.Println(st.Ino)
	rnd := rand.New(rand.NewPCG(uint64(os.Getpid()), 1))
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		p, off := make([]byte, 3<<20), rnd.Int64N(bigSize-3<<20)
		if err := read(p, off); err != nil {
			return err
		}
		if err := compare("big.bin", p, off); err != nil {
			return err
		}
		fmt.Println("ok")
	}
	return nil
}

// childComeAndGo has 8 readers that open, map, read and close a file, 60 times each.
func childComeAndGo(args []string) error {
	errs := make(chan error, 8)
	for g := range uint64(8) {
		go func() {
			rnd := rand.New(rand.NewPCG(uint64(os.Getpid()), g))
			for range 60 {
				if err := comeAndGo(args[0], rnd); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

func comeAndGo(name string, rnd *rand.Rand) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	p, off := make([]byte, 70_000), rnd.Int64N(bigSize-70_000)
	if _, err := f.ReadAt(p, off); err != nil {
		return err
	}
	if err := compare("big.bin", p, off); err != nil || rnd.IntN(2) == 0 {
		return err
	}
	m, err := unix.Mmap(int(f.Fd()), 0, bigSize, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer unix.Munmap(m)
	f.Close()
	return compare("big.bin", m[off:off+70_000], off)
}
