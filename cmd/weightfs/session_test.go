package main

import (
	"runtime/debug"
	"testing"
)

// TestShare: a budget is shared out to the byte, most of it to cells.
func TestShare(t *testing.T) {
	for _, memory := range []int64{4 << 20, 8 << 20, 100_000_001, 2 << 30, 1 << 40} {
		b := share(memory)
		if b.cells+b.kept+b.plans+b.replies != memory || b.cells < memory*2/3 || b.plans > 64<<20 || b.replies > 64<<20 || b.plans <= 0 || b.replies <= 0 {
			t.Errorf("%d: %+v", memory, b)
		}
	}
}

// TestHeapLimit: the collector keeps to what of a budget is not cells, and to GOMEMLIMIT where that is set.
func TestHeapLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	b := share(1 << 30)
	t.Setenv("GOMEMLIMIT", "123MiB")
	b.limitHeap()
	if got := debug.SetMemoryLimit(-1); got != before {
		t.Errorf("with GOMEMLIMIT the limit is %d, it was %d", got, before)
	}
	t.Setenv("GOMEMLIMIT", "")
	b.limitHeap()
	if got := debug.SetMemoryLimit(-1); got != 1<<30-b.cells+heapSlack {
		t.Errorf("the limit is %d of a budget of which %d are cells", got, b.cells)
	}
}
