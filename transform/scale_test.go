package transform

import (
	"context"
	"runtime"
	"testing"

	"weightfs/fs/plan"
	"weightfs/internal/testrel"
	"weightfs/sources/release"
)

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// made is the bytes that do makes, and in how many pieces.
func made(do func()) (bytes, pieces int64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc), int64(after.Mallocs - before.Mallocs)
}

// TestLargeRelease lists views of Qwen3.8-Max FP8, 287,119 tensors in 213 shards: what stays in memory is a few bytes a tensor, what
// the views hold does not grow with them.
func TestLargeRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	m := fromRelease(testrel.Qwen38MaxFP8())
	rel, err := m.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	made, pieces := made(func() {
		dir := TreeOf(Views(), m.listing(), func(context.Context) (*release.Release, error) { return rel, nil })
		if len(files(t, dir, "bf16")) == 0 {
			t.Error("bf16 is empty")
		}
	})
	if n := int64(rel.Len()); made > 100*n || pieces > n {
		t.Errorf("the tree and a listing of bf16 made %d bytes a tensor in %d pieces", made/n, pieces)
	}
	before := heap()
	dir := TreeOf(Views(), m.listing(), m.open)
	if _, err := dir.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	listed := heap()
	if each := (listed - before) / int64(rel.Len()); each > 150 {
		t.Errorf("the tree holds %d bytes a tensor", each)
	}
	for view, want := range map[string]int{
		"resident": 0, "bf16": 0, "ranks/16/3": 0, "layers": 0, "experts/native": 92*512 + 3, "experts/q4-asym-32": 92*512 + 3,
	} {
		got := files(t, dir, view)
		if want > 0 && len(got) != want || len(got) == 0 {
			t.Errorf("%s has %d files, want %d", view, len(got), want)
		}
	}
	if after := heap(); after-listed > 8<<20 {
		t.Errorf("listing left %d bytes", after-listed)
	}
	blocks := files(t, dir, "experts/native/expert_blocks.bin")
	if blocks[0].node.Size != 2_371_207_823_360 {
		t.Errorf("expert_blocks.bin has %d bytes", blocks[0].node.Size)
	}
	if m.reads != 0 {
		t.Errorf("listing read %d bytes of weights", m.reads)
	}
	share, err := Rank(rel, 3, 16)
	if err != nil || len(share.ExpertFiles) != 186 || len(share.Files) != 213 || len(share.ReleaseFiles) != 213 {
		t.Errorf("rank 3 of 16: %d files with experts, %d of %d, %v", len(share.ExpertFiles), len(share.Files), len(share.ReleaseFiles), err)
	}
}

// TestRealShapes has sizes of published releases, from their headers alone.
func TestRealShapes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	for _, c := range []struct {
		release *testrel.Release
		sizes   map[string]int64
		ranks   [3]int // of rank 3 of 16: files with experts, files, files of the release
	}{
		{testrel.KimiK3(), map[string]int64{"experts/native/expert_blocks.bin": 1_446_456_066_048, "experts/native/blocks/L010/E895.bin": 17_547_264}, [3]int{92, 96, 96}},
		{testrel.Qwen38Max(), map[string]int64{"experts/native/blocks/L010/E003.bin": 100_663_296}, [3]int{186, 213, 213}},
		{testrel.Qwen3A3B(), map[string]int64{"experts/webai/expert_blocks.bin": 16_760_438_784, "experts/webai/blocks/L047/E127.bin": 2_727_936}, [3]int{16, 16, 16}},
	} {
		m := fromRelease(c.release)
		dir := m.tree()
		for path, want := range c.sizes {
			if n, err := plan.Walk(t.Context(), dir, path); err != nil || n.Size != want {
				t.Errorf("%s: %s has %d bytes, want %d (%v)", m.name, path, n.Size, want, err)
			}
		}
		rel, err := m.open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		x, err := Rank(rel, 3, 16)
		if got := [3]int{len(x.ExpertFiles), len(x.Files), len(x.ReleaseFiles)}; err != nil || got != c.ranks {
			t.Errorf("%s: rank 3 of 16 reads %v, want %v (%v)", m.name, got, c.ranks, err)
		}
	}
}
