package quant

import (
	"strings"
	"testing"
)

// bulk is one vector: a group filled from a stream, and the SHA-256 of its BF16 output. Hashes, parameters and draw order were made
// independently of this package, in plain Python and checked with NumPy.
type bulk struct {
	name      string
	format    string
	make      func(s *stream) (files map[string]file, order []string)
	config    Config
	metadata  map[string]string
	inputHash string // first 16 digits over the tensors in order
	hash      string
	stream    string // if not name
	rows      bool   // the vector is of Match.Rows
}

func fp8Bulk(rows, cols, bm, bn int64, dtype, side, scaleType string) func(*stream) (map[string]file, []string) {
	return func(s *stream) (map[string]file, []string) {
		w := s.take(int(rows * cols))
		shape := []int64{ceilDiv(rows, bm), ceilDiv(cols, bn)}
		n := int(shape[0] * shape[1])
		draw := map[string]func(int) []byte{"F32": s.f32s, "BF16": s.bf16s, "F8_E8M0": s.e8m0s, "U8": s.e8m0s}[scaleType]
		return map[string]file{
			"weight": {dtype, []int64{rows, cols}, w},
			side:     {scaleType, shape, draw(n)},
		}, []string{"weight", side}
	}
}

func bulks() []bulk {
	return []bulk{
		{name: "fp8blk-f32", format: "fp8", make: fp8Bulk(200, 300, 128, 128, "F8_E4M3", "weight_scale_inv", "F32"), inputHash: "73d846f29a01b031",
			hash: "825e6d1236e6fe405950823db7be4690414d8141d9ccf3f429ab9d5986c8b257"},
		{name: "fp8blk-bf16", format: "fp8", make: fp8Bulk(200, 300, 128, 128, "F8_E4M3", "weight_scale_inv", "BF16"), inputHash: "a4db6f4ff1b66bf6",
			hash: "f4c36fc1c1a9dd9c8424597783c461d3b3c5acb396e18bf1c17e9a3336b4a899"},
		{name: "fp8blk-e8m0-32", format: "fp8", make: fp8Bulk(70, 100, 32, 32, "F8_E4M3", "scale", "F8_E8M0"), inputHash: "0dcc16b2f1ef7a2a",
			hash: "bc7dcafa021997ac82e5baee881e1326e6934f813f3afe7aea4c4d0a7e24085c"},
		{name: "fp8channel-f32", format: "fp8", make: fp8Bulk(64, 48, 1, 48, "F8_E4M3", "weight_scale", "F32"), inputHash: "f42934c3b5b9a14c",
			hash: "893ad8cacbc6e207d1648520aea804a9d01db2b9f0da9c88cb02ed8ee59791d8"},
		{name: "fp8tensor-f32", format: "fp8", make: fp8Bulk(16, 48, 16, 48, "F8_E4M3", "weight_scale", "F32"), inputHash: "a9665d95217c3986",
			hash: "dead5a567818ca89acb7019237172f3e270797a2138ab0ed76db4290f04815e8"},
		{name: "f8e5m2-tensor-f32", format: "fp8", make: fp8Bulk(16, 32, 16, 32, "F8_E5M2", "weight_scale", "F32"), inputHash: "f852ad4d52c63399",
			hash: "8d405656683b3d3fe4d2cf20822c3f33b3b3ba548beab80e45bc3deaa2bb2566"},
		{name: "mxfp8", format: "fp8", make: fp8Bulk(40, 96, 1, 32, "F8_E4M3", "weight_scale_inv", "U8"), inputHash: "7aef8e8f6047367c",
			hash: "67dd891b39287c6dbff7d25b2ab7458b501cef8a6c526e7c00ce71c485c25901"},
		{name: "mxfp4-pack", format: "mxfp4", inputHash: "2097eb35e51ea74e", hash: "d459949d40cd53625408d18b763003f936fa943e0e421a07f7af2ad9f01ba5a3",
			make: func(s *stream) (map[string]file, []string) {
				return map[string]file{
					"weight_packed": {"U8", []int64{48, 48}, s.take(48 * 48)},
					"weight_scale":  {"U8", []int64{48, 3}, s.e8m0s(48 * 3)},
				}, []string{"weight_packed", "weight_scale"}
			}},
	}
}

func TestBulkVectors(t *testing.T) {
	for _, b := range bulks() {
		t.Run(b.name, func(t *testing.T) {
			name := b.name
			if b.stream != "" {
				name = b.stream
			}
			files, order := b.make(&stream{name: name})
			var all []byte
			for _, s := range order {
				all = append(all, files[s].data...)
			}
			if got := hash(all); !strings.HasPrefix(got, b.inputHash) {
				t.Fatalf("the input is another one: %s", got)
			}
			m, in := recognise(t, files, b.config, b.metadata)
			if m.Format != b.format {
				t.Errorf("format %q, want %q", m.Format, b.format)
			}
			codec := m.Codec
			if b.rows {
				codec = m.Rows
			}
			if got := hash(whole(t, codec, in)); got != b.hash {
				t.Errorf("output hash %s, want %s", got, b.hash)
			}
			checkWindows(t, codec, in)
		})
	}
}
