package testrel

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weightfs/sources/safetensors"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// The releases are the same on every machine: names, sizes and digests stand in a golden file.
func TestSmallReleasesAreFixed(t *testing.T) {
	var b strings.Builder
	for _, r := range Small() {
		for i := range r.Files {
			f := &r.Files[i]
			h := sha256.Sum256(f.Bytes())
			fmt.Fprintf(&b, "%s %s %d %s\n", r.Name, f.Path, f.Size, hex.EncodeToString(h[:8]))
		}
	}
	golden := filepath.Join("testdata", "small.txt")
	if *update {
		os.WriteFile(golden, []byte(b.String()), 0o666)
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("releases changed (rewrite with -update if that is meant):\n%s", b.String())
	}
}

// Any read gives the bytes of a read of the whole file.
func TestReadAtAnyOffset(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	for _, r := range Small() {
		for i := range r.Files {
			f := &r.Files[i]
			whole := f.Bytes()
			for range 50 {
				off := rng.Int63n(f.Size + 3)
				p := make([]byte, rng.Intn(300))
				n, err := f.ReadAt(p, off)
				end := min(off+int64(len(p)), f.Size)
				if want := max(end-off, 0); int64(n) != want || (err != nil) != (off+int64(len(p)) > f.Size || off >= f.Size) {
					t.Fatalf("%s %s: read [%d, +%d) of %d: %d, %v", r.Name, f.Path, off, len(p), f.Size, n, err)
				}
				if off < f.Size && !bytes.Equal(p[:n], whole[off:end]) {
					t.Fatalf("%s %s: read [%d, +%d) differs", r.Name, f.Path, off, len(p))
				}
			}
		}
	}
}

// Every header parses as strictly as users' files must, and the index names exactly the shards' tensors.
func TestHeadersAndIndexes(t *testing.T) {
	for _, r := range Small() {
		tensors := map[string]string{}
		for i := range r.Files {
			f := &r.Files[i]
			if f.Tensors() == nil {
				continue
			}
			h, err := safetensors.Parse(f.Bytes()[:f.HeaderLen()], f.Size)
			if err != nil {
				t.Fatalf("%s %s: %v", r.Name, f.Path, err)
			}
			if h.Len() != len(f.Tensors()) {
				t.Errorf("%s %s: %d tensors in the header, %d in the release", r.Name, f.Path, h.Len(), len(f.Tensors()))
			}
			for i := range h.Len() {
				if !strings.HasPrefix(f.Path, "consolidated") {
					tensors[h.At(i).Name] = f.Path
				}
			}
		}
		index := r.File("model.safetensors.index.json")
		if index == nil {
			continue
		}
		var got struct {
			WeightMap map[string]string `json:"weight_map"`
		}
		if err := json.Unmarshal(index.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.WeightMap) != len(tensors) {
			t.Errorf("%s: index has %d tensors, shards %d", r.Name, len(got.WeightMap), len(tensors))
		}
		for name, path := range got.WeightMap {
			if tensors[name] != path {
				t.Errorf("%s: %s is in %q, the index says %q", r.Name, name, tensors[name], path)
			}
		}
	}
}

// The closed form, computed once by hand from its definition.
func TestFillIsAsDocumented(t *testing.T) {
	h := uint64(0xcbf29ce484222325)
	for _, c := range []byte("model.norm.weight") {
		h = (h ^ uint64(c)) * 0x100000001b3
	}
	z := h + 5 + 0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	z ^= z >> 31
	bits := uint16(z>>16)&0x83FF + 0x3A00 // word 5 has elements 20 to 23
	b := QwenFP8().Tensor("model.norm.weight").Bytes()
	if got := uint16(b[42]) | uint16(b[43])<<8; got != bits {
		t.Errorf("element 21 is %04X, want %04X", got, bits)
	}
}

// Witnesses of quantization: values computed by hand from the codes.
func TestTruthWitnesses(t *testing.T) {
	for _, x := range []struct {
		code  byte
		scale uint16
		want  uint16
	}{
		{0x38, 0x3F80, 0x3F80}, // 1 * 1
		{0x7E, 0x3F80, 0x43E0}, // 448
		{0x01, 0x3F80, 0x3B00}, // 2^-9
		{0x80, 0x3F80, 0x8000}, // -0
		{0x7F, 0x3F80, 0x7FC0}, // NaN
		{0xFF, 0x3F80, 0x7FC0},
		{0x39, 0x3F81, 0x3F91}, // 1.125 * 1.0078125 = 1.1337890625, between 3F91 and 3F92
	} {
		if got := toBF16(e4m3(x.code) * fromBF16(x.scale)); got != x.want {
			t.Errorf("E4M3 %02X * %04X = %04X, want %04X", x.code, x.scale, got, x.want)
		}
	}
	for code, want := range []uint16{0, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040, 0x4080, 0x40C0, 0x8000, 0xBF00, 0xBF80, 0xBFC0, 0xC000, 0xC040, 0xC080, 0xC0C0} {
		if got := toBF16(e2m1(byte(code))); got != want {
			t.Errorf("E2M1 %X = %04X, want %04X", code, got, want)
		}
	}
}

func TestTruthsNameTheView(t *testing.T) {
	for _, r := range Small() {
		for _, name := range r.Truths() {
			truth := r.Truth(name)
			if truth == nil {
				t.Fatalf("%s: no truth of %s", r.Name, name)
			}
			bits := int64(truth.DType.Bits())
			if got := int64(len(truth.Bytes())); got != count(truth.Shape)*bits/8 {
				t.Errorf("%s: %s has %d bytes, shape %v of %s", r.Name, name, got, truth.Shape, truth.DType)
			}
		}
	}
	quantized := 0
	q := QwenFP8()
	for _, name := range q.Truths() {
		if q.Truth(name).Quantized() {
			quantized++
		}
	}
	if want := 4*12*3 + 4*4; quantized != want {
		t.Errorf("qwen-fp8 has %d quantized tensors, want %d", quantized, want)
	}
}

// Scales are positive and finite, so that no block is lost.
func TestScalesAreHealthy(t *testing.T) {
	for _, r := range Small() {
		for name, x := range r.index() {
			if !r.isSide(name) {
				continue
			}
			for i, b := range x.Bytes() {
				if x.DType == safetensors.U8 && (b < 112 || b > 127) {
					t.Fatalf("%s: %s[%d] is %d", r.Name, name, i, b)
				}
				if x.DType == safetensors.BF16 && i%2 == 1 && (b < 0x39 || b > 0x3C) {
					t.Fatalf("%s: %s[%d] has the high byte %02X", r.Name, name, i/2, b)
				}
			}
		}
	}
}

// All six parts of an expert are adjacent, and experts come in text order.
func TestKimiExpertsAreOneRangeEach(t *testing.T) {
	r := KimiMXFP4()
	prefix := "language_model.model.layers.2.block_sparse_moe.experts."
	end := r.Tensor(prefix + "0.w1.weight_packed").Start
	for _, e := range []string{"0", "1", "10", "11", "2", "3"} {
		for _, p := range []string{"w1", "w2", "w3"} {
			for _, suffix := range []string{".weight_packed", ".weight_scale"} {
				x := r.Tensor(prefix + e + "." + p + suffix)
				if x.Start != end {
					t.Fatalf("%s starts at %d, want %d", x.Name, x.Start, end)
				}
				end = x.End
			}
		}
	}
}

func TestWriteDir(t *testing.T) {
	for _, r := range []*Release{KimiMXFP4(), DenseBF16()} {
		dir := t.TempDir()
		if err := WriteDir(dir, r); err != nil {
			t.Fatal(err)
		}
		n := 0
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			n++
			rel, _ := filepath.Rel(dir, path)
			got, err := os.ReadFile(path)
			if err == nil && !bytes.Equal(got, r.File(filepath.ToSlash(rel)).Bytes()) {
				t.Errorf("%s differs", rel)
			}
			return err
		})
		if err != nil || n != len(r.Files) {
			t.Errorf("%s: %d files written, want %d, %v", r.Name, n, len(r.Files), err)
		}
	}
}

// What is known of the release with the real shapes, to the byte.
func TestQwen38MaxFP8(t *testing.T) {
	r := Qwen38MaxFP8()
	f := r.File("model-00005-of-00213.safetensors")
	if len(f.Tensors()) != 2048 || f.HeaderLen() != 8+260328 || f.Size != 17182226672 {
		t.Errorf("file 5: %d tensors, header %d, %d bytes", len(f.Tensors()), f.HeaderLen()-8, f.Size)
	}
	gate := r.Tensor("model.layers.10.mlp.experts.0.gate_proj.weight")
	if gate.Path != f.Path || gate.Start-f.HeaderLen() != 2097152 || gate.End-f.HeaderLen() != 18874368 {
		t.Errorf("expert 0's gate: %s [%d, %d)", gate.Path, gate.Start-f.HeaderLen(), gate.End-f.HeaderLen())
	}
	if n, experts := tensorsOf(r); n != 287119 || experts != 285696 {
		t.Errorf("%d tensors, %d of experts", n, experts)
	}
}

// tensorsOf counts the tensors of a release, and those of routed experts.
func tensorsOf(r *Release) (n, experts int) {
	for i := range r.Files {
		for j := range r.Files[i].Tensors() {
			n++
			if strings.Contains(r.Files[i].Tensors()[j].Name, ".experts.") {
				experts++
			}
		}
	}
	return n, experts
}

func TestQwen38Max(t *testing.T) {
	r := Qwen38Max()
	if n, experts := tensorsOf(r); n != 1609 || experts != 186 {
		t.Errorf("%d tensors, %d of experts", n, experts)
	}
	x := r.Tensor("model.layers.10.mlp.experts.gate_up_proj")
	if x.End-x.Start != 34359738368 || len(r.File(x.Path).Tensors()) != 1 || len(x.Shape) != 3 || x.Shape[0] != 512 || x.Shape[1] != 4096 || x.Shape[2] != 8192 {
		t.Errorf("gate_up: %v, %d bytes in a file of %d tensors", x.Shape, x.End-x.Start, len(r.File(x.Path).Tensors()))
	}
}

func TestKimiK3(t *testing.T) {
	r := KimiK3()
	n, experts := tensorsOf(r)
	if n != 497220 || experts != 2*247296 {
		t.Errorf("%d tensors, %d of experts", n, experts)
	}
	var parameters int64
	for i := range r.Files {
		for _, x := range r.Files[i].Tensors() {
			switch {
			case strings.HasSuffix(x.Name, "_packed"):
				parameters += 2 * count(x.Shape)
			case !strings.HasSuffix(x.Name, "weight_scale"):
				parameters += count(x.Shape)
			}
		}
	}
	if parameters != 2779931837184 {
		t.Errorf("%d parameters, %d too many", parameters, parameters-2779931837184)
	}
	prefix := "language_model.model.layers.92.block_sparse_moe.experts."
	first, next := r.Tensor(prefix+"10.w1.weight_packed"), r.Tensor(prefix+"100.w1.weight_packed")
	if next.Start-first.Start != 17547264 || r.Tensor(prefix+"10.w3.weight_scale").End != next.Start {
		t.Errorf("expert 10 begins at %d, expert 100 at %d", first.Start, next.Start)
	}
}

func TestQwen3A3B(t *testing.T) {
	r := Qwen3A3B()
	if n, experts := tensorsOf(r); n != 18867 || experts != 48*128*3 {
		t.Errorf("%d tensors, %d of experts", n, experts)
	}
}

// A release at real shapes reaches the disk as headers and holes.
func TestWriteDirHeaderOnly(t *testing.T) {
	r := QwenFP8()
	r.HeaderOnly = true
	dir := t.TempDir()
	if err := WriteDir(dir, r); err != nil {
		t.Fatal(err)
	}
	for i := range r.Files {
		f := &r.Files[i]
		got, err := os.ReadFile(filepath.Join(dir, f.Path))
		if err != nil || int64(len(got)) != f.Size {
			t.Fatalf("%s: %d bytes, %v", f.Path, len(got), err)
		}
		if !bytes.Equal(got[:f.HeaderLen()], f.Bytes()[:f.HeaderLen()]) || len(bytes.Trim(got[f.HeaderLen():], "\x00")) != 0 {
			t.Errorf("%s: not a header and a hole", f.Path)
		}
	}
}

func BenchmarkFill(b *testing.B) {
	p := make([]byte, 1<<20)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		raw.read(p, 1, 3)
	}
}
