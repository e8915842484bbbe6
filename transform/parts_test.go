package transform

import (
	"testing"

	"weightfs/internal/testrel"
	"weightfs/sources/release"
	"weightfs/sources/safetensors"
)

// TestParts: every byte of a shard's data is in the part that is its tensor, or its expert of a tensor that is too large to be fetched at a
// touch; parts of a tensor tile it.
func TestParts(t *testing.T) {
	m := fromRelease(testrel.QwenFused())
	r, err := m.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	experts := stacked(r)
	if len(experts) == 0 {
		t.Fatal("no stacked experts")
	}
	for s := range r.Shards {
		h := r.Shards[s].Header
		parts := partsOf(int32(s), h, experts)
		for i := range h.Len() {
			x := h.At(i)
			start, end := h.DataStart()+x.Begin, h.DataStart()+x.End
			for _, off := range []int64{start, (start + end) / 2, end - 1} {
				if a, b := parts(off); a != start || b != end {
					t.Errorf("%s: byte %d is in [%d, %d), not [%d, %d)", x.Name, off, a, b, start, end)
				}
			}
		}
		if a, b := parts(5); a != b {
			t.Errorf("the header is in part [%d, %d)", a, b)
		}
	}
}

// TestPartsOfStacks: a tensor of 40 MiB that holds four experts has them as parts, one of 8 MiB is one.
func TestPartsOfStacks(t *testing.T) {
	const mib = 1 << 20
	text := `{"big":{"dtype":"U8","shape":[4,10485760],"data_offsets":[0,41943040]},"small":{"dtype":"U8","shape":[4,2097152],"data_offsets":[41943040,50331648]}}`
	head := append(binaryLength(len(text)), text...)
	h, err := safetensors.Parse(head, int64(len(head))+48*mib)
	if err != nil {
		t.Fatal(err)
	}
	parts := partsOf(3, h, map[release.Ref]int64{{Shard: 3, Index: 0}: 10 * mib, {Shard: 3, Index: 1}: 2 * mib})
	at := h.DataStart()
	for _, c := range [][3]int64{{0, 0, 10}, {10*mib - 1, 0, 10}, {10 * mib, 10, 20}, {39 * mib, 30, 40}, {40 * mib, 40, 48}, {48*mib - 1, 40, 48}} {
		if a, b := parts(at + c[0]); a != at+c[1]*mib || b != at+c[2]*mib {
			t.Errorf("byte %d of the data is in [%d, %d)", c[0], a-at, b-at)
		}
	}
}

func binaryLength(n int) []byte { return []byte{byte(n), byte(n >> 8), 0, 0, 0, 0, 0, 0} }
