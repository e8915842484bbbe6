package fs

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	iofs "io/fs"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weightfs/fs/plan"
	"weightfs/sources"
)

// The test binary is its own child: with childEnv set it runs one of the operations instead of the tests. Mounts are read by
// children only, as the process that serves a mount must not fault on it.
const childEnv = "WEIGHTFS_TEST_CHILD"

func TestMain(m *testing.M) {
	if op := os.Getenv(childEnv); op != "" {
		if err := operations()[op](os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// childCommand is the command that runs an operation.
func childCommand(ctx context.Context, op string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), childEnv+"="+op)
	return cmd
}

// child runs an operation to its end and returns what it printed; its failure is the test's.
func child(t *testing.T, op string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	cmd := childCommand(ctx, op, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", op, args, err, stderr.String())
	}
	return string(out)
}

// fileByte is the content of source file number file: any shift, mix or zero shows.
func fileByte(file int, off int64) byte {
	x := uint64(off)/8*0x9E3779B97F4A7C15 + uint64(file)*0xD1B54A32D192ED03
	x ^= x >> 29
	x *= 0xBF58476D1CE4E5B9
	return byte(x >> (8 * (uint64(off) % 8)))
}

// fill writes the content of a source file from off.
func fill(dst []byte, file int, off int64) {
	for len(dst) > 0 && off%8 != 0 {
		dst[0] = fileByte(file, off)
		dst, off = dst[1:], off+1
	}
	for ; len(dst) >= 8; dst, off = dst[8:], off+8 {
		x := uint64(off)/8*0x9E3779B97F4A7C15 + uint64(file)*0xD1B54A32D192ED03
		x ^= x >> 29
		binary.LittleEndian.PutUint64(dst, x*0xBF58476D1CE4E5B9)
	}
	for i := range dst {
		dst[i] = fileByte(file, off+int64(i))
	}
}

// Source files that fail, each in its way.
const (
	fileTemporary = 100 + iota
	fileChanged
	fileDenied
	filePanics
	fileHangs // until its context ends
	fileSlow  // answers after slowness, with the bytes of its number
)

// testStore has files of any length made by fileByte, and the failing ones.
type testStore struct{ waiting, dropped, ahead atomic.Int64 }

// Drop counts what nobody is about to read.
func (s *testStore) Drop(spans []plan.Span) {
	for _, x := range spans {
		s.dropped.Add(x.Len())
	}
}

func (*testStore) MaxGather() int64 { return 64 << 20 }

// Gather remembers the furthest offset that was asked for ahead.
func (s *testStore) Gather(ctx context.Context, reads []plan.Read, ahead []plan.Span) error {
	for _, x := range ahead {
		s.ahead.Store(max(s.ahead.Load(), x.End))
	}
	for _, r := range reads {
		switch r.Span.File {
		case fileTemporary:
			return &sources.Error{Op: "read", Path: "t.bin", Off: r.Span.Start, Len: r.Span.Len(), Err: sources.ErrTemporary}
		case fileChanged:
			return &sources.Error{Op: "read", Path: "c.bin", Err: sources.ErrChanged}
		case fileDenied:
			return &sources.Error{Op: "read", Path: "d.bin", Err: sources.ErrDenied}
		case filePanics:
			panic("a store that panics")
		case fileHangs:
			s.waiting.Add(1)
			<-ctx.Done()
			s.waiting.Add(-1)
			return fmt.Errorf("waited: %w", context.Cause(ctx))
		case fileSlow:
			time.Sleep(slowness)
		}
		fill(r.Dst, r.Span.File, r.Span.Start)
	}
	return nil
}

// slowness is what a slow file takes for every read.
const slowness = 60 * time.Millisecond

const (
	bigSize   = 40<<20 + 12345
	mixSize   = 3000 + 5000 + 1<<20
	blocks    = 82_432
	blockSize = 8192
)

// copyOf is a file that is source file number file.
func copyOf(name string, file int, size int64) plan.Node {
	return plan.File(name, plan.New(plan.Copy{Span: plan.Span{File: file, Start: 0, End: size}}))
}

func block(i int) plan.Node {
	return plan.Node{Name: fmt.Sprintf("E%05d.bin", i), Size: blockSize, Open: func(context.Context) (*plan.Plan, error) {
		start := int64(i) * blockSize
		return plan.NewBlock(plan.Copy{Span: plan.Span{File: 2, Start: start, End: start + blockSize}}), nil
	}}
}

// testRoot is the tree of the tests.
func testRoot() plan.Dir {
	mix := plan.New(
		plan.Literal{Name: "header", Size: 3000, Render: func() []byte { return bytes.Repeat([]byte("abc"), 1000) }},
		plan.Zero{Size: 5000},
		plan.Copy{Span: plan.Span{File: 1, Start: 77, End: 77 + 1<<20}},
	)
	wrong := copyOf("wrong-size.bin", 1, 100)
	wrong.Size = 101
	lying := plan.Node{Name: "refuses.bin", Size: 5, Open: func(context.Context) (*plan.Plan, error) { return nil, iofs.ErrPermission }}
	failing := plan.NewStatic(
		copyOf("temporary.bin", fileTemporary, 1<<20), copyOf("changed.bin", fileChanged, 1<<20), copyOf("denied.bin", fileDenied, 1<<20),
		copyOf("panics.bin", filePanics, 1<<20), copyOf("hangs.bin", fileHangs, 1<<20),
		copyOf("slow.bin", fileSlow, 8<<20), wrong, lying,
	)
	all := plan.Indexed{N: blocks, At: block, Find: func(name string) (plan.Node, bool) {
		var i int
		if _, err := fmt.Sscanf(name, "E%05d.bin", &i); err != nil || i < 0 || i >= blocks || block(i).Name != name {
			return plan.Node{}, false
		}
		return block(i), true
	}}
	late := plan.Lazy{Load: func(context.Context) (plan.Dir, error) { return nil, sources.ErrTemporary }}
	return plan.NewStatic(
		copyOf("big.bin", 0, bigSize),
		plan.File("mix.bin", mix),
		plan.File("empty", plan.New()),
		plan.File("config.json", plan.New(plan.Literal{Name: "config.json", Size: 3, Bytes: []byte("{}\n")})),
		plan.Folder("blocks", all), plan.Folder("failing", failing), plan.Folder("late", late),
		plan.Folder("sub", plan.NewStatic(plan.File("a", plan.New(plan.Zero{Size: 1})), plan.Folder("dir", plan.NewStatic()))),
	)
}

// released is when the test release was made.
func released() time.Time { return time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC) }

func testTree(at string) *Tree {
	return &Tree{
		At: at, Root: testRoot(), Reader: plan.NewReader(&testStore{}, 1<<20), Source: "hf://org/" + at, Revision: "0123abcd",
		Time: released(), Bytes: 123 << 20, Files: 77, Complete: true, FileName: func(i int) string { return fmt.Sprintf("f%d.bin", i) },
	}
}

func testConfig(trees ...*Tree) Config {
	if len(trees) == 0 {
		trees = []*Tree{testTree("")}
	}
	return Config{Trees: trees, Log: NewLog(nil, slog.LevelDebug, 0), Counters: func() Counters { return Counters{Fetched: 11, Cached: 22} }}
}

func newFS(t testing.TB, c Config) *FS {
	t.Helper()
	f, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// needFUSE skips where the machine has no FUSE.
func needFUSE(t testing.TB) {
	t.Helper()
	if f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil {
		t.Skipf("needs /dev/fuse: %v", err)
	} else {
		f.Close()
	}
}

// mounted mounts an FS for the time of the test.
func mounted(t *testing.T, c Config) (*FS, *Mount) {
	t.Helper()
	needFUSE(t)
	f := newFS(t, c)
	m, err := f.Mount(t.TempDir(), MountOptions{Name: "hf:org/test@0123abcd"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Unmount(); err != nil {
			t.Errorf("unmount: %v", err)
			_ = m.Detach()
		}
	})
	return f, m
}

// want is the content of [off, off+n) of a file of the tree.
func want(name string, off, n int64) ([]byte, error) {
	out := make([]byte, n)
	switch {
	case name == "big.bin":
		fill(out, 0, off)
	case name == "slow.bin":
		fill(out, fileSlow, off)
	case name == "mix.bin":
		all := append(bytes.Repeat([]byte("abc"), 1000), make([]byte, 5000+1<<20)...)
		fill(all[8000:], 1, 77)
		copy(out, all[off:])
	case strings.HasPrefix(name, "blocks/E"):
		var i int64
		if _, err := fmt.Sscanf(name, "blocks/E%05d.bin", &i); err != nil {
			return nil, err
		}
		fill(out, 2, i*blockSize+off)
	default:
		return nil, errors.New("nobody knows what is in " + name)
	}
	return out, nil
}
