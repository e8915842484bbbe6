package transform

import (
	"encoding/binary"
	"testing"

	"weightfs/sources/safetensors"
)

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
