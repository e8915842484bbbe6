package transform

import (
	"runtime"
	"testing"

	"weightfs/internal/testrel"
)

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
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
