package fs

import (
	"path/filepath"
	"testing"
	"time"

	"weightfs/fs/plan"
)

// TestRequests: replies fit what they may take, and small budgets still have a few in flight.
func TestRequests(t *testing.T) {
	for _, x := range []struct {
		replies          int64
		size, background int
	}{{0, 1 << 20, 64}, {64 << 20, 1 << 20, 64}, {1 << 40, 1 << 20, 64}, {32 << 20, 512 << 10, 64}, {10 << 20, 128 << 10, 64}, {4 << 20, 128 << 10, 32}, {512 << 10, 128 << 10, 4}, {1, 128 << 10, 4}} {
		if size, n := requests(x.replies); size != x.size || n != x.background {
			t.Errorf("%d bytes of replies: %d requests of %d bytes", x.replies, n, size)
		}
	}
}

// TestSmallReplies: a mount with little memory for replies gives the same bytes, and gives all of it back.
func TestSmallReplies(t *testing.T) {
	needFUSE(t)
	f := newFS(t, testConfig())
	m, err := f.Mount(t.TempDir(), MountOptions{Replies: 512 << 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range []string{"pread", "mmap", "direct", "parallel"} {
		child(t, op, m.Dir())
	}
	if err := m.Unmount(); err != nil {
		t.Fatal(err)
	}
	if s := f.Status(); s.Memory.Replies != 0 || s.Errors != 0 {
		t.Errorf("%+v", s)
	}
}

// TestCloseGivesUp: what is asked for ahead of a reader is given up when it has closed the file.
func TestCloseGivesUp(t *testing.T) {
	needFUSE(t)
	tree := testTree("")
	store := tree.Reader.Store.(*testStore)
	m, err := newFS(t, testConfig(tree)).Mount(t.TempDir(), MountOptions{})
	if err != nil {
		t.Fatal(err)
	}
	child(t, "head", filepath.Join(m.Dir(), "big.bin"))
	for end := time.Now().Add(10 * time.Second); store.dropped.Load() == 0 && time.Now().Before(end); { // the kernel tells a moment after
		time.Sleep(time.Millisecond)
	}
	if n := store.dropped.Load(); n < 8<<20 || n > bigSize-4<<20 {
		t.Errorf("%d bytes ahead were given up, of %d that are left", n, bigSize-4<<20)
	}
	if err := m.Unmount(); err != nil {
		t.Fatal(err)
	}
}

// TestBlockAlone: of a block among others an O_DIRECT reader makes nothing else be asked for, and one through the page cache no more than the kernel reads
// ahead.
func TestBlockAlone(t *testing.T) {
	needFUSE(t)
	const mib = 1 << 20
	for how, most := range map[string]int64{"direct": 3 * mib, "": 4 * mib} {
		tree := testTree("")
		store := tree.Reader.Store.(*testStore)
		tree.Root = plan.NewStatic(plan.File("experts.bin", plan.New(plan.Repeat{Name: "expert", N: 8, Stride: mib, At: func(i int64) *plan.Plan {
			return plan.NewBlock(plan.Copy{Span: plan.Span{File: 3, Start: i * mib, End: (i + 1) * mib}})
		}})))
		m, err := newFS(t, testConfig(tree)).Mount(t.TempDir(), MountOptions{})
		if err != nil {
			t.Fatal(err)
		}
		child(t, "block", filepath.Join(m.Dir(), "experts.bin"), how)
		if n := store.ahead.Load(); n < 3*mib || n > most || how == "" && n == 3*mib {
			t.Errorf("%q: asked for up to %d", how, n)
		}
		if err := m.Unmount(); err != nil {
			t.Fatal(err)
		}
	}
}
