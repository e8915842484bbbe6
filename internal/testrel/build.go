package testrel

import (
	"fmt"
	"sort"
	"strings"

	"weightfs/sources/safetensors"
)

// shard collects the tensors of one safetensors file.
type shard struct {
	path     string
	metadata map[string]string
	tensors  []Tensor
}

func newShard(path string) *shard { return &shard{path: path} }

// numbered makes n empty shards with the usual names.
func numbered(n int) []*shard {
	out := make([]*shard, n)
	for i := range out {
		out[i] = newShard(fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, n))
	}
	return out
}

func (s *shard) add(name string, d safetensors.DType, fill Fill, shape ...int64) {
	s.tensors = append(s.tensors, Tensor{Name: name, DType: d, Shape: shape, Fill: fill, Path: s.path})
}

// weight adds a tensor of numbers.
func (s *shard) weight(name string, d safetensors.DType, shape ...int64) {
	f, ok := values[d]
	if !ok {
		f = raw
	}
	s.add(name, d, f, shape...)
}

// bf16 adds a BF16 tensor.
func (s *shard) bf16(name string, shape ...int64) { s.weight(name, safetensors.BF16, shape...) }

// fp8 adds name, F8_E4M3 [out, in], and name_scale_inv, BF16 with one element for each 128x128 block, the last ones shorter. Weights of
// routed experts have no NaN codes, all others have every code.
func (s *shard) fp8(name string, out, in int64) {
	fill := raw
	if strings.Contains(name, ".experts.") {
		fill = finite
	}
	s.add(name, safetensors.F8_E4M3, fill, out, in)
	s.scale(name+"_scale_inv", safetensors.BF16, ceil(out, 128), ceil(in, 128))
}

// mxfp4 adds name_packed, two E2M1 codes a byte, and name_scale, one exponent for 32 columns: both U8, as compressed-tensors has them.
func (s *shard) mxfp4(name string, out, in int64) {
	s.add(name+"_packed", safetensors.U8, raw, out, in/2)
	s.scale(name+"_scale", safetensors.U8, out, in/32)
}

func (s *shard) scale(name string, d safetensors.DType, shape ...int64) {
	s.add(name, d, scales[d], shape...)
}

func ceil(a, b int64) int64 { return (a + b - 1) / b }

// file lays the tensors out as the format's reference writer does: by dtype, largest first, then by name; header padded to 8.
func (s *shard) file() File {
	sort.Slice(s.tensors, func(i, j int) bool {
		a, b := &s.tensors[i], &s.tensors[j]
		if a.DType != b.DType {
			return a.DType > b.DType
		}
		return a.Name < b.Name
	})
	header := make([]safetensors.Tensor, len(s.tensors))
	var end int64
	for i := range s.tensors {
		t := &s.tensors[i]
		n, err := safetensors.Bytes(t.Shape, t.DType)
		if err != nil {
			panic(fmt.Sprintf("testrel: %s: %v", t.Name, err))
		}
		t.Start, t.End, end = end, end+n, end+n
		header[i] = safetensors.Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape, Begin: t.Start, End: t.End}
	}
	head, err := safetensors.Encode(header, s.metadata, 8)
	if err != nil {
		panic(fmt.Sprintf("testrel: %s: %v", s.path, err))
	}
	for i := range s.tensors {
		s.tensors[i].Start += int64(len(head))
		s.tensors[i].End += int64(len(head))
	}
	return File{Path: s.path, Size: int64(len(head)) + end, head: head, tensors: s.tensors}
}

// text is a plain file.
func text(path, content string) File {
	return File{Path: path, Size: int64(len(content)), head: []byte(content)}
}

// sharded is a release of shards with an index, and its other files.
func sharded(name string, shards []*shard, others ...File) *Release {
	var total int64
	var tensors []*Tensor
	for _, s := range shards {
		f := s.file()
		for i := range f.tensors {
			tensors = append(tensors, &f.tensors[i])
		}
		total += f.Size - f.HeaderLen()
		others = append(others, f)
	}
	sort.Slice(tensors, func(i, j int) bool { return tensors[i].Name < tensors[j].Name })
	return newRelease(name, append(others, text("model.safetensors.index.json", indexText(total, tensors)))...)
}

// indexText is the index as transformers writes it. Half a million names: no map, no reflection.
func indexText(total int64, tensors []*Tensor) string {
	var b strings.Builder
	fmt.Fprintf(&b, "{\n  \"metadata\": {\n    \"total_size\": %d\n  },\n  \"weight_map\": {", total)
	for i, t := range tensors {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n    \"" + t.Name + "\": \"" + t.Path + "\"") // names and paths here have nothing to escape
	}
	b.WriteString("\n  }\n}\n")
	return b.String()
}
