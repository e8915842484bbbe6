package transform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weightfs/fs/plan"
	"weightfs/internal/testrel"
)

// dumbFamily is a family's release as the dumb writer sees it: tensors by shard, and which of them are of routed experts.
type dumbFamily struct {
	testrel.Family
	shows map[string][]dumbTensor
}

func newDumbFamily(f testrel.Family) dumbFamily {
	d := dumbFamily{f, map[string][]dumbTensor{}}
	for i := range f.Files {
		for j := range f.Files[i].Tensors() {
			if t := &f.Files[i].Tensors()[j]; !strings.HasPrefix(t.Path, "original/") {
				d.shows[t.Path] = append(d.shows[t.Path], asIs(t))
			}
		}
	}
	return d
}

func (d dumbFamily) routed(name string) bool { return !slices.Contains(d.Resident, name) }

var expertNumber = regexp.MustCompile(`\.(?:experts|moe)\.([0-9]+)\.`)

// cut is the part of a routed expert's tensor that belongs to these experts, if any; numbered says that the tensor is one expert's own.
func (d dumbFamily) cut(t dumbTensor, first, end int) (out dumbTensor, numbered, ok bool) {
	if m := expertNumber.FindStringSubmatch(t.name); m != nil {
		n := atoi(m[1])
		return t, true, n >= first && n < end
	}
	each, rows := len(t.data)/5, t.shape[0]/5
	t.shape = append([]int64{int64(end-first) * rows}, t.shape[1:]...)
	t.data = t.data[first*each : end*each]
	return t, false, true
}

// besides are the names of tensors that are no part of a text model.
var besides = regexp.MustCompile(`^(mtp|vision_tower|model\.visual|model\.mtp|model\.mtp_block)\.|^model\.layers\.4\.`)

// TestEveryFamily: what is gathered from a release in every naming form, byte for byte by the dumb writer.
func TestEveryFamily(t *testing.T) {
	for _, f := range testrel.Families() {
		t.Run(f.Name, func(t *testing.T) {
			d := newDumbFamily(f)
			dir, m := open(f.Release)
			resident := only(d.shows, func(name string) bool { return !d.routed(name) })
			d.checkDir(t, dir, m, "resident", resident)
			d.checkDir(t, dir, m, "resident-text", only(resident, func(name string) bool { return !besides.MatchString(name) }))
			for r, run := range [][2]int{{0, 3}, {3, 5}} {
				d.checkDir(t, dir, m, fmt.Sprintf("ranks/2/%d", r), d.rank(run[0], run[1]))
			}
			checkFiles(t, dir, m, "layers", d.layers())
			d.checkExpertFiles(t, dir, m)
			d.checkRelease(t, dir, m)
		})
	}
}

func (d dumbFamily) checkDir(t *testing.T, dir plan.Dir, m *memory, view string, shows map[string][]dumbTensor) {
	t.Helper()
	checkFiles(t, dir, m, view, dumbDir(shows))
}

// checkFiles compares the weight files of a view, and their index, with those wanted.
func checkFiles(t *testing.T, dir plan.Dir, m *memory, view string, want map[string][]byte) {
	t.Helper()
	for _, f := range files(t, dir, view) {
		path := strings.TrimPrefix(f.path, view+"/")
		expected, ok := want[path]
		if !ok {
			if src := m.file(path); !bytes.Equal(content(t, m, f), src.bytes()) {
				t.Errorf("%s differs", f.path)
			}
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

// rank is the resident tensors and those of experts [first, end).
func (d dumbFamily) rank(first, end int) map[string][]dumbTensor {
	out := map[string][]dumbTensor{}
	for path, ts := range d.shows {
		for _, t := range ts {
			keep := true
			if d.routed(t.name) {
				t, _, keep = d.cut(t, first, end)
			}
			if keep {
				out[path] = append(out[path], t)
			}
		}
	}
	return out
}

var moduleName = regexp.MustCompile(`^(.*?\.[0-9]+)\.`)

// layers is the files of layers/: one for each layer, and for each module outside of them.
func (d dumbFamily) layers() map[string][]byte {
	want, weightMap, total := map[string][]byte{}, map[string]string{}, 0
	modules := map[string][]dumbTensor{}
	for _, ts := range d.shows {
		for _, x := range ts {
			module := x.name[:strings.LastIndexByte(x.name, '.')]
			if m := moduleName.FindStringSubmatch(x.name); m != nil {
				module = m[1]
			}
			modules[module] = append(modules[module], x)
			weightMap[x.name] = "splitted_model/" + module + ".safetensors"
			total += len(x.data)
		}
	}
	for module, ts := range modules {
		want["splitted_model/"+module+".safetensors"] = dumbShard(ts)
		want["splitted_model/"+module+".safetensors.done"] = []byte{}
	}
	index, err := json.MarshalIndent(map[string]any{"metadata": map[string]any{"total_size": total}, "weight_map": weightMap}, "", "  ")
	if err != nil {
		panic(err)
	}
	want["model.safetensors.index.json"] = append(index, '\n')
	return want
}

// projectionName is the end of a stack's name, from the projection on.
var projectionName = regexp.MustCompile(`([^.]*(\.(weight|scales|biases|blocks))?)$`)

// checkExpertFiles: the tensors of an expert, in a file of its own; those cut out of a stack get the expert's number before the projection.
func (d dumbFamily) checkExpertFiles(t *testing.T, dir plan.Dir, m *memory) {
	for _, layer := range []int{1, 3} {
		for e := range 5 {
			var ts []dumbTensor
			for _, all := range d.shows {
				for _, x := range all {
					module := moduleName.FindStringSubmatch(x.name)
					if !d.routed(x.name) || besides.MatchString(x.name) || !strings.HasSuffix(module[1], fmt.Sprint(".", layer)) {
						continue
					}
					part, numbered, ok := d.cut(x, e, e+1)
					if !ok {
						continue
					}
					if !numbered {
						part.name = projectionName.ReplaceAllString(x.name, fmt.Sprintf("%d.$1", e))
						if len(part.shape) > 1 && part.shape[0] == 1 {
							part.shape = part.shape[1:]
						}
					}
					ts = append(ts, part)
				}
			}
			path := fmt.Sprintf("experts/files/L%03d/E%03d.safetensors", layer, e)
			if got, want := at(t, dir, m, path), dumbShard(ts); !bytes.Equal(got, want) {
				t.Errorf("%s: %d bytes, want %d; first difference at %d", path, len(got), len(want), firstDiff(got, want))
			}
		}
	}
}

// checkRelease: release/ is the files, tensors/ every tensor as a NumPy file.
func (d dumbFamily) checkRelease(t *testing.T, dir plan.Dir, m *memory) {
	for i := range m.files {
		if got := at(t, dir, m, "release/"+m.files[i].path); !bytes.Equal(got, m.files[i].bytes()) {
			t.Errorf("release/%s differs", m.files[i].path)
		}
	}
	checkTensors(t, dir, m, dumbNpys(d.shows))
}

// TestQ4EveryFamily: the 4-bit blocks of an expert in every naming form are what the quantizer makes of its BF16 block, or of the release's own F32
// numbers.
func TestQ4EveryFamily(t *testing.T) {
	for _, f := range testrel.Families() {
		dir, m := open(f.Release)
		const block = "/blocks/L003/E004.bin"
		_, _, plain := readManifest(t, dir, m, "experts/bf16")
		whole := at(t, dir, m, "experts/bf16"+block)
		_, _, native := readManifest(t, dir, m, "experts/native")
		singles := map[string][]byte{}
		for _, p := range native {
			if p.DType == "F32" {
				singles[p.Name] = at(t, dir, m, "experts/native"+block)[p.Offset : p.Offset+p.ByteLength]
			}
		}
		for _, symmetric := range []bool{true, false} {
			for _, size := range []int{16, 32, 64} {
				view := fmt.Sprintf("experts/q4-%s-%d", map[bool]string{true: "sym", false: "asym"}[symmetric], size)
				var parts []dumbPart
				for _, p := range plain {
					data := whole[p.Offset : p.Offset+p.ByteLength]
					if exact := singles[p.Name]; len(p.Shape) == 2 && len(exact) == 2*len(data) {
						data = exact
					}
					if strings.HasSuffix(p.Name, ".bias") {
						parts = append(parts, dumbPart{data: data})
						continue
					}
					q, s, z := ortQuantize(data, p.Shape[0], p.Shape[1], size, symmetric)
					parts = append(parts, dumbPart{data: q}, dumbPart{data: s})
					if z != nil {
						parts = append(parts, dumbPart{data: z})
					}
				}
				want, _ := dumbBlock(parts)
				if got := at(t, dir, m, view+block); !bytes.Equal(got, want) {
					t.Errorf("%s: %s: %d bytes, want %d; first difference at %d", f.Name, view, len(got), len(want), firstDiff(got, want))
				}
			}
		}
	}
}
