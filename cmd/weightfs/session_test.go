package main

import "testing"

// TestShare: a budget is shared out to the byte, most of it to cells.
func TestShare(t *testing.T) {
	for _, memory := range []int64{4 << 20, 8 << 20, 100_000_001, 2 << 30, 1 << 40} {
		b := share(memory)
		if b.cells+b.kept+b.plans+b.replies != memory || b.cells < memory*2/3 || b.plans > 64<<20 || b.replies > 64<<20 || b.plans <= 0 || b.replies <= 0 {
			t.Errorf("%d: %+v", memory, b)
		}
	}
}
