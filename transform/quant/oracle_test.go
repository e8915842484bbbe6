package quant

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weightfs/fs/plan"
)

// oracles is where vectors lie that other libraries made. Each folder has the script and the versions.
const oracles = "../../testdata/oracles"

// readSafetensors is a reader as short as the format.
func readSafetensors(t *testing.T, path string) (map[string]file, map[string]string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint64(raw)
	var header map[string]json.RawMessage
	if err := json.Unmarshal(raw[8:8+n], &header); err != nil {
		t.Fatal(err)
	}
	files, metadata := map[string]file{}, map[string]string{}
	for name, entry := range header {
		if name == "__metadata__" {
			json.Unmarshal(entry, &metadata)
			continue
		}
		var e struct {
			DType   string   `json:"dtype"`
			Shape   []int64  `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		}
		if err := json.Unmarshal(entry, &e); err != nil {
			t.Fatal(err)
		}
		files[name] = file{e.DType, e.Shape, raw[8+n:][e.Offsets[0]:e.Offsets[1]]}
	}
	return files, metadata
}

// releaseGroups splits a release's tensors into groups, with the facts that they need.
func releaseGroups(t *testing.T, dir string) (map[string]Group, map[string]file) {
	t.Helper()
	files, metadata := readSafetensors(t, filepath.Join(dir, "model.safetensors"))
	small := map[string][]byte{}
	for _, name := range []string{"config.json", "quantize_config.json", "quant_config.json", "hf_quant_config.json"} {
		if content, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			small[name] = content
		}
	}
	config, err := FindConfig(small)
	if err != nil {
		t.Fatal(err)
	}
	groups := map[string]Group{}
	for name, f := range files {
		module, suffix := Split(name)
		g, ok := groups[module]
		if !ok {
			g = Group{Module: module, Tensors: map[string]Tensor{}, Config: config, Metadata: metadata}
			groups[module] = g
		}
		g.Tensors[suffix] = Tensor{Name: name, DType: f.dtype, Shape: f.shape}
	}
	for _, g := range groups {
		for _, s := range Facts(g) {
			tensor := g.Tensors[s]
			tensor.Data = files[tensor.Name].data
			g.Tensors[s] = tensor
		}
	}
	return groups, files
}

// TestOracles dequantizes every release that a library made and compares it with what the library makes of it.
func TestOracles(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join(oracles, "*", "release"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no oracles: %v", err)
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(filepath.Dir(dir)), func(t *testing.T) {
			groups, files := releaseGroups(t, dir)
			expected, about := readSafetensors(t, filepath.Join(dir, "..", "expected.safetensors"))
			var loose map[string]int
			if ulps := about["ulps"]; ulps != "" && json.Unmarshal([]byte(ulps), &loose) != nil {
				t.Fatalf("ulps: %q", ulps)
			}
			made := 0
			for module, g := range groups {
				m, err := Recognise(g)
				if plain := plainTensors(g, m, err, files, expected); plain > 0 {
					made += plain
					continue
				}
				if err != nil || m == nil || m.Codec == nil {
					t.Errorf("%s: match %v, error %v", module, m, err)
					continue
				}
				in := make([][]byte, len(m.Inputs))
				for i, s := range m.Inputs {
					in[i] = files[g.Tensors[s].Name].data
				}
				want, ok := expected[m.Name]
				if !ok || !slices.Equal(want.shape, m.Shape) {
					t.Errorf("%s: made %s%v, expected %v", module, m.Name, m.Shape, want.shape)
					continue
				}
				made++
				got, ulps := whole(t, m.Codec, in), loose[m.Name]
				if ulps > 0 && differences(got, want.data, ulps-1) == "" {
					t.Errorf("%s is listed as up to %d ulps away, but is nearer", m.Name, ulps)
				}
				if diff := differences(got, want.data, ulps); diff != "" {
					t.Errorf("%s (%s): %s", m.Name, m.How, diff)
				}
				if !t.Failed() {
					checkWindows(t, m.Codec, in)
				}
			}
			if made != len(expected) {
				t.Errorf("%d tensors made, %d expected", made, len(expected))
			}
		})
	}
}

// plainTensors is the number of tensors of a group that is not quantized, if the library has all of them as they stand.
func plainTensors(g Group, m *Match, err error, files, expected map[string]file) int {
	for _, tensor := range g.Tensors {
		if got, want := files[tensor.Name], expected[tensor.Name]; m != nil || err != nil || got.dtype != want.dtype || !bytes.Equal(got.data, want.data) {
			return 0
		}
	}
	return len(g.Tensors)
}

// differences describes BF16 elements that are more than so many units in the last place apart; zeros are compared by value, NaNs as such.
func differences(got, want []byte, ulps int) string {
	if len(got) != len(want) {
		return fmt.Sprintf("%d bytes, expected %d", len(got), len(want))
	}
	same := func(a, b uint16) bool {
		x, y := bf16Value(a), bf16Value(b)
		if x != x || y != y {
			return x != x && y != y
		}
		return max(order(a), order(b))-min(order(a), order(b)) <= ulps
	}
	count, first := 0, ""
	for i := 0; i < len(got); i += 2 {
		g, w := binary.LittleEndian.Uint16(got[i:]), binary.LittleEndian.Uint16(want[i:])
		if same(g, w) {
			continue
		}
		if count++; count == 1 {
			first = fmt.Sprintf("element %d is %04X, expected %04X", i/2, g, w)
		}
	}
	if count == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d elements differ; %s", count, len(got)/2, first)
}

// order numbers BF16 values: neighbours are one apart, both zeros are 0.
func order(a uint16) int {
	if a&0x8000 != 0 {
		return -int(a & 0x7FFF)
	}
	return int(a)
}

// TestONNXRuntimeBlocks encodes matrices as ONNX Runtime's own quantizer did: BF16 ones, and F16 ones as they are and as F32.
func TestONNXRuntimeBlocks(t *testing.T) {
	compared := 0
	for _, name := range []string{"blocks.safetensors", "halves.safetensors"} {
		files, metadata := readSafetensors(t, filepath.Join(oracles, "onnxruntime", name))
		t.Log(name, metadata["made with"])
		for name, w := range files {
			kind, ok := strings.CutSuffix(name, ".weight")
			if !ok {
				continue
			}
			compared += compareBlocks(t, files, kind, w)
			wide := make([]float32, len(w.data)/2)
			numbers[w.dtype].read(wide, w.data)
			compared += compareBlocks(t, files, kind, file{"F32", w.shape, each(len(wide), func() []byte {
				v := wide[0]
				wide = wide[1:]
				return le32(math.Float32bits(v))
			})})
		}
	}
	if compared < 900 {
		t.Errorf("only %d tensors compared", compared)
	}
}

// compareBlocks encodes w and compares it with the files of its kind.
func compareBlocks(t *testing.T, files map[string]file, kind string, w file) (compared int) {
	t.Helper()
	rule := RuleORT
	if strings.HasSuffix(kind, ".sym") {
		rule = RuleORTSymmetric
	}
	data := files[kind+".data"]
	e, err := Encode4(rawBF16(len(w.data)), w.dtype, w.shape[0], w.shape[1], 2*data.shape[2], rule)
	if err != nil {
		t.Fatal(err)
	}
	for suffix, c := range map[string]plan.Codec{"data": e.Data, "scales": e.Scales, "zeros": e.Zeros} {
		if c == nil {
			continue
		}
		got, want := whole(t, c, [][]byte{w.data}), files[kind+"."+suffix].data
		switch suffix {
		case "data":
			want = clearTails(want, w.shape[1], 2*data.shape[2])
		case "zeros":
			want = clearTails(want, data.shape[1], 2)
		}
		if !bytes.Equal(got, want) {
			i := 0
			for got[i] == want[i] {
				i++
			}
			t.Errorf("%s.%s of %s: byte %d of %d is %02x, expected %02x", kind, suffix, w.dtype, i, len(got), got[i], want[i])
		}
		compared++
	}
	return compared
}

// clearTails clears nibbles past the end of a row of cols, padded to whole blocks. What stands there means nothing: the library leaves codes as they
// happen to be and sets zero points to 8, Encode4 clears both.
func clearTails(data []byte, cols, block int64) []byte {
	out := bytes.Clone(data)
	padded := ceilDiv(cols, block) * block
	for i := range int64(len(out)) * 2 {
		if i%padded >= cols {
			out[i/2] &= 0x0F << (4 * (1 - i%2))
		}
	}
	return out
}
