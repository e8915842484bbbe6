package transform

import (
	"encoding/binary"
	"fmt"
	"testing"

	"weightfs/internal/testrel"
	"weightfs/sources/safetensors"
	"weightfs/transform/quant"
)

// TestRecognisedOnce checks that a module is recognised once for each combination of suffixes, dtypes and shapes, however many there are
// of it, and that all that is asked of the release stays with that.
func TestRecognisedOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second")
	}
	rel, err := fromRelease(testrel.Qwen38MaxFP8()).open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	in := newInput(rel)
	suffixes, distinct := quant.Suffixes(), map[string]bool{}
	for i, next := range in.next {
		if int(next) > i { // of each module the last tensor is enough
			continue
		}
		var text string
		m := in.siblings(int32(i))
		for _, s := range suffixes {
			if k, ok := m.members[s.Suffix]; ok {
				x := in.source(k)
				text += quant.TensorName("", s.Suffix) + " " + x.DTypeName + " " + fmt.Sprint(x.Shape) + "\n"
			}
		}
		distinct[text] = true
	}
	for _, v := range buildAll(in, Views()) {
		if v.err == nil && v.Name == "bf16" {
			if _, err := v.dir.List(t.Context()); err != nil {
				t.Fatalf("%s: %v", v.Name, err)
			}
		}
	}
	// Two processors may recognise the same kind at the same time.
	if n := in.known.count; n < len(distinct) || n > 2*len(distinct) || len(in.known.matches) != len(distinct) {
		t.Errorf("%d modules recognised, %d kinds kept; there are %d different ones among %d tensors", n, len(in.known.matches), len(distinct), rel.Len())
	}
}

// TestForms: dtypes that nobody knows may have any name, and do not make a form of two.
func TestForms(t *testing.T) {
	json := `{"a":{"dtype":"A","shape":[0,3],"data_offsets":[0,1]},"b":{"dtype":"A\u0000\u0002","shape":[],"data_offsets":[1,4]}}`
	h, err := safetensors.Parse(append(binary.LittleEndian.AppendUint64(nil, uint64(len(json))), json...), int64(8+len(json)+4))
	if err != nil {
		t.Fatal(err)
	}
	f := newFormer()
	f.begin(h)
	if a, b := f.of(0, ""), f.of(1, ""); a == b {
		t.Errorf("%+v and %+v are of one form", h.At(0), h.At(1))
	}
}
