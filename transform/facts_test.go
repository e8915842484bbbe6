package transform

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"weightfs/fs/plan"
)

// zeros is a file of a header and zeros.
type zeros string

func (z zeros) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	if off < int64(len(z)) {
		copy(p, z[off:])
	}
	return len(p), nil
}

// TestFactsAreBounded: listing the root reads the small tensors that shapes depend on and nothing else; where they are too large nothing is read, and
// the view that would need them is absent by name.
func TestFactsAreBounded(t *testing.T) {
	for _, c := range []struct {
		fact, reads int64
		absent      string
	}{
		{fact: 100, reads: 100},
		{fact: maxFacts, reads: maxFacts},
		{fact: maxFacts + 1, absent: "a.comfy_quant"},
	} {
		head := fmt.Sprintf(`{"a.comfy_quant":{"dtype":"U8","shape":[%d],"data_offsets":[0,%[1]d]},"a.weight":{"dtype":"F8_E4M3","shape":[256,256],"data_offsets":[%[1]d,%d]}}`, c.fact, c.fact+65536)
		head = string(binary.LittleEndian.AppendUint64(nil, uint64(len(head)))) + head
		m := &memory{name: "facts", files: []memoryFile{{"model.safetensors", int64(len(head)) + c.fact + 65536, zeros(head)}}}
		dir := m.tree()
		if _, err := dir.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		if m.reads != c.reads {
			t.Errorf("a fact of %d bytes: %d bytes were read to list the root, want %d", c.fact, m.reads, c.reads)
		}
		var a *Absent
		if _, err := plan.Walk(t.Context(), dir, "bf16/config.json"); c.absent != "" && (!errors.As(err, &a) || a.Tensor != c.absent) {
			t.Errorf("bf16 with a fact of %d bytes: %v", c.fact, err)
		}
	}
}
