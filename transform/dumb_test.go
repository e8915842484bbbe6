package transform

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"

	"weightfs/fs/plan"
	"weightfs/internal/testrel"
)

// The dumb writer makes the files of views from whole tensors in memory, with nothing of this package: tensors from testrel, which
// dequantizes element by element, headers with fmt.

type dumbTensor struct {
	name, dtype string
	shape       []int64
	data        []byte
}

var widths = map[string]int{"BF16": 2, "F16": 2, "F32": 4, "F64": 8, "I64": 8, "I32": 4, "U32": 4, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E8M0": 1, "BOOL": 1, "F9_E9": 3}

// dumbShard is a safetensors file of the tensors as DESIGN's rules for written files want it.
func dumbShard(ts []dumbTensor) []byte {
	ts = append([]dumbTensor(nil), ts...)
	sort.Slice(ts, func(i, j int) bool { return ts[i].name < ts[j].name })
	sort.SliceStable(ts, func(i, j int) bool { return widths[ts[i].dtype] > widths[ts[j].dtype] })
	sort.SliceStable(ts, func(i, j int) bool { return len(ts[i].data)%4096 == 0 && len(ts[j].data)%4096 != 0 })
	header := []byte(`{"__metadata__":{"format":"pt"}`)
	var data []byte
	for _, t := range ts {
		shape := strings.ReplaceAll(strings.Trim(fmt.Sprint(t.shape), "[]"), " ", ",")
		header = fmt.Appendf(header, `,%q:{"dtype":%q,"shape":[%s],"data_offsets":[%d,%d]}`, t.name, t.dtype, shape, len(data), len(data)+len(t.data))
		data = append(data, t.data...)
	}
	header = append(header, '}')
	for (len(header)+8)%4096 != 0 {
		header = append(header, ' ')
	}
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), data...)
}

// dumbDir is the generated files of a model directory: shows are the tensors by the source shard that they belong to.
func dumbDir(shows map[string][]dumbTensor) map[string][]byte {
	var sources []string
	for path := range shows {
		sources = append(sources, path)
	}
	sort.Strings(sources)
	out := map[string][]byte{}
	weightMap := map[string]string{}
	total := 0
	for k, path := range sources {
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", k+1, len(sources))
		out[name] = dumbShard(shows[path])
		for _, t := range shows[path] {
			weightMap[t.name] = name
			total += len(t.data)
		}
	}
	index := map[string]any{"metadata": map[string]any{"total_size": total}, "weight_map": weightMap}
	text, err := json.MarshalIndent(index, "", "  ")
	if err != nil {
		panic(err)
	}
	out["model.safetensors.index.json"] = append(text, '\n')
	return out
}

var expertName = regexp.MustCompile(`\.experts\.([0-9]+\.|gate_up_proj|down_proj)`)

// weightFiles are the release's own set of shards.
func inSet(t *testrel.Tensor) bool { return !strings.HasPrefix(t.Path, "consolidated") }

func asIs(t *testrel.Tensor) dumbTensor {
	return dumbTensor{t.Name, t.DType.String(), t.Shape, t.Bytes()}
}

// dumbResident is resident/.
func dumbResident(r *testrel.Release) map[string][]dumbTensor {
	return only(dumbAll(r), func(name string) bool { return !expertName.MatchString(name) })
}

// only keeps the tensors that keep lets through.
func only(shows map[string][]dumbTensor, keep func(name string) bool) map[string][]dumbTensor {
	out := map[string][]dumbTensor{}
	for path, ts := range shows {
		for _, t := range ts {
			if keep(t.name) {
				out[path] = append(out[path], t)
			}
		}
	}
	return out
}

// dumbAll is every tensor of the release's set.
func dumbAll(r *testrel.Release) map[string][]dumbTensor {
	out := map[string][]dumbTensor{}
	for i := range r.Files {
		for j := range r.Files[i].Tensors() {
			if t := &r.Files[i].Tensors()[j]; inSet(t) {
				out[t.Path] = append(out[t.Path], asIs(t))
			}
		}
	}
	return out
}

// dumbBF16 is bf16/.
func dumbBF16(r *testrel.Release) map[string][]dumbTensor {
	out := map[string][]dumbTensor{}
	for _, name := range r.Truths() {
		data := r.Tensor(name)
		if data == nil {
			data = r.Tensor(name + "_packed")
		}
		if !inSet(data) {
			continue
		}
		out[data.Path] = append(out[data.Path], truthOf(r, name))
	}
	return out
}

// truths remembers what testrel computed, which takes a while.
var truths sync.Map

func truthOf(r *testrel.Release, name string) dumbTensor {
	key := r.Name + "/" + name
	if d, ok := truths.Load(key); ok {
		return d.(dumbTensor)
	}
	v := r.Truth(name)
	d := dumbTensor{name, v.DType.String(), v.Shape, v.Bytes()}
	truths.Store(key, d)
	return d
}

// allBF16 narrows what is F32.
func allBF16(shows map[string][]dumbTensor) map[string][]dumbTensor {
	out := map[string][]dumbTensor{}
	for path, ts := range shows {
		for _, d := range ts {
			if d.dtype == "F32" {
				d.dtype, d.data = "BF16", roundF32(d.data)
			}
			out[path] = append(out[path], d)
		}
	}
	return out
}

// dumbConfig is config.json without its quantization_config, which is not the last member.
func dumbConfig(in []byte) []byte {
	s := string(in)
	begin := strings.Index(s, `"quantization_config"`)
	if begin < 0 {
		return in
	}
	end, depth := begin+strings.IndexByte(s[begin:], '{')+1, 1
	for ; depth > 0; end++ {
		depth += strings.Count(s[end:end+1], "{") - strings.Count(s[end:end+1], "}")
	}
	return []byte(strings.TrimRight(s[:begin], " \n") + s[end+1:])
}

// roundF32 rounds binary32 to BF16, ties to even; the demo releases have no NaN there.
func roundF32(in []byte) []byte {
	var out []byte
	for i := 0; i < len(in); i += 4 {
		u := uint64(binary.LittleEndian.Uint32(in[i:]))
		low := u & 0xFFFF
		u >>= 16
		if low > 0x8000 || low == 0x8000 && u&1 == 1 {
			u++
		}
		out = binary.LittleEndian.AppendUint16(out, uint16(u))
	}
	return out
}

// checkDir compares a model directory with what the dumb writer makes of the same tensors.
func checkDir(t *testing.T, dir plan.Dir, m *memory, view string, want map[string][]byte) {
	t.Helper()
	for i := range m.files {
		path := m.files[i].path
		if !regexp.MustCompile(`\.safetensors$|\.index\.json$|^metal/`).MatchString(path) && want[path] == nil {
			want[path] = m.files[i].bytes()
		}
	}
	for _, f := range files(t, dir, view) {
		path := strings.TrimPrefix(f.path, view+"/")
		expected, ok := want[path]
		if !ok {
			t.Errorf("%s should not be there", f.path)
			continue
		}
		if got := content(t, m, f); !bytes.Equal(got, expected) {
			t.Errorf("%s differs: %d bytes, want %d; first at %d", f.path, len(got), len(expected), firstDiff(got, expected))
		}
		delete(want, path)
	}
	for path := range want {
		t.Errorf("%s/%s is missing", view, path)
	}
}

func firstDiff(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

func TestModelDirectories(t *testing.T) {
	for _, r := range testrel.Small() {
		t.Run(r.Name, func(t *testing.T) {
			dir, m := open(r)
			checkDir(t, dir, m, "resident", dumbDir(dumbResident(r)))
			checkDir(t, dir, m, "resident-text", dumbDir(only(dumbResident(r), func(name string) bool {
				return !regexp.MustCompile(`^(mtp|vision_tower|mm_projector|model\.visual)\.`).MatchString(name)
			})))
			truth := dumbBF16(r)
			for _, view := range []string{"bf16", "bf16-all"} {
				want := dumbDir(truth)
				want["config.json"] = dumbConfig(m.file("config.json").bytes())
				checkDir(t, dir, m, view, want)
				truth = allBF16(truth)
			}
			want := dumbDir(only(dumbBF16(r), func(name string) bool { return !expertName.MatchString(name) }))
			want["config.json"] = dumbConfig(m.file("config.json").bytes())
			checkDir(t, dir, m, "resident-bf16", want)
		})
	}
}

func TestReleaseIsItself(t *testing.T) {
	for _, r := range testrel.Small() {
		dir, m := open(r)
		got := files(t, dir, "release")
		if len(got) != len(r.Files) {
			t.Fatalf("%d files, want %d", len(got), len(r.Files))
		}
		for _, f := range got {
			if !bytes.Equal(content(t, m, f), r.File(strings.TrimPrefix(f.path, "release/")).Bytes()) {
				t.Errorf("%s differs", f.path)
			}
		}
	}
}

func TestRanks(t *testing.T) {
	for _, x := range smallExperts {
		r := byName(t, x.release)
		dir, m := open(r)
		for _, n := range []int{1, 5} {
			for rank := range n {
				for _, nomtp := range []bool{false, true} {
					view := fmt.Sprintf("ranks/%d/%d", n, rank)
					if nomtp {
						view = fmt.Sprintf("ranks/%d-nomtp/%d", n, rank)
					}
					checkDir(t, dir, m, view, dumbDir(x.rank(r, rank, n, nomtp)))
				}
			}
		}
		for _, path := range []string{"ranks/0", "ranks/02", "ranks/5/5", "ranks/5/-1", "ranks/13", "ranks/2-nomtp-nomtp"} {
			if _, err := plan.Walk(t.Context(), dir, path); err == nil {
				t.Errorf("%s: %s exists", r.Name, path)
			}
		}
	}
}

// rank is what rank r of n shows: experts dealt out one by one into runs.
func (x *expertNames) rank(r *testrel.Release, rank, n int, nomtp bool) map[string][]dumbTensor {
	var mine []int
	for e, at := 0, 0; at < n; at++ {
		size := x.experts / n
		if at < x.experts%n {
			size++
		}
		for ; size > 0; size, e = size-1, e+1 {
			if at == rank {
				mine = append(mine, e)
			}
		}
	}
	out := map[string][]dumbTensor{}
	for path, ts := range dumbAll(r) {
		for _, d := range ts {
			m := expertName.FindStringSubmatch(d.name)
			if m != nil && nomtp && strings.HasPrefix(d.name, "mtp.") {
				continue
			}
			if m != nil && !x.fused && !slices.Contains(mine, atoi(strings.TrimSuffix(m[1], "."))) {
				continue
			}
			if m != nil && x.fused {
				each := len(d.data) / x.experts
				d.shape = append([]int64{int64(len(mine))}, d.shape[1:]...)
				d.data = d.data[mine[0]*each : (mine[len(mine)-1]+1)*each]
			}
			out[path] = append(out[path], d)
		}
	}
	return out
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

func TestLayers(t *testing.T) {
	for _, r := range testrel.Small() {
		dir, m := open(r)
		want, weightMap, total := map[string][]byte{}, map[string]string{}, 0
		modules := map[string][]dumbTensor{}
		for _, ts := range dumbAll(r) {
			for _, d := range ts {
				module := regexp.MustCompile(`^(.*?\.[0-9]+)\.`).FindStringSubmatch(d.name + ".")
				if module == nil || module[1] == d.name {
					module = []string{"", d.name[:strings.LastIndexByte(d.name, '.')]}
				}
				modules[module[1]] = append(modules[module[1]], d)
				weightMap[d.name] = "splitted_model/" + module[1] + ".safetensors"
				total += len(d.data)
			}
		}
		for module, ts := range modules {
			want["splitted_model/"+module+".safetensors"] = dumbShard(ts)
			want["splitted_model/"+module+".safetensors.done"] = []byte{}
		}
		index, _ := json.MarshalIndent(map[string]any{"metadata": map[string]any{"total_size": total}, "weight_map": weightMap}, "", "  ")
		want["model.safetensors.index.json"] = append(index, '\n')
		checkDir(t, dir, m, "layers", want)
	}
}

// npyTypesOf are NumPy's types of the dtypes that the releases have.
var npyTypesOf = map[string]string{
	"BF16": "<u2", "F16": "<f2", "F32": "<f4", "I64": "<i8", "I32": "<i4", "U32": "<u4", "U8": "|u1", "I8": "|i1", "F8_E4M3": "|u1", "F8_E8M0": "|u1",
}

// dumbNpys are the files of tensors/.
func dumbNpys(shows map[string][]dumbTensor) map[string][]byte {
	out := map[string][]byte{}
	for _, ts := range shows {
		for _, d := range ts {
			parts := strings.Split(d.name, ".")
			k := max(0, len(parts)-2)
			path := strings.Join(append(parts[:k:k], strings.Join(parts[k:], ".")), "/") + ".npy"
			shape := strings.ReplaceAll(strings.Trim(fmt.Sprint(d.shape), "[]"), " ", ", ")
			if len(d.shape) == 1 {
				shape += ","
			}
			header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", npyTypesOf[d.dtype], shape)
			for (10+len(header)+1)%64 != 0 {
				header += " "
			}
			header += "\n"
			out["tensors/"+path] = slices.Concat([]byte("\x93NUMPY\x01\x00"), []byte{byte(len(header)), byte(len(header) >> 8)}, []byte(header), d.data)
		}
	}
	return out
}

// checkTensors compares tensors/ with what the dumb writer makes of the same tensors.
func checkTensors(t *testing.T, dir plan.Dir, m *memory, want map[string][]byte) {
	t.Helper()
	for _, f := range files(t, dir, "tensors") {
		if f.path == "tensors/README.md" {
			continue
		}
		if got := content(t, m, f); !bytes.Equal(got, want[f.path]) {
			t.Errorf("%s differs: %d bytes, want %d; first at %d", f.path, len(got), len(want[f.path]), firstDiff(got, want[f.path]))
		}
		delete(want, f.path)
	}
	for path := range want {
		t.Errorf("%s is missing", path)
	}
}

func TestTensors(t *testing.T) {
	for _, r := range testrel.Small() {
		t.Run(r.Name, func(t *testing.T) {
			dir, m := open(r)
			checkTensors(t, dir, m, dumbNpys(dumbAll(r)))
		})
	}
}
