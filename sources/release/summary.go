package release

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Summary is what the headers of a release say, for people and programs. It is inspect --json and .weightfs/summary.json. Names in it
// are as they stand in the release: hostile text until it is escaped.
type Summary struct {
	Name     string     `json:"name"`
	Revision string     `json:"revision,omitempty"`
	Time     *time.Time `json:"time,omitempty"` // of the commit, or of the newest file
	Index    string     `json:"index,omitempty"`
	Shards   int        `json:"shards"`
	Tensors  int        `json:"tensors"`
	// Bytes is the sum of all tensors; HeaderBytes of the shards' headers, 8+N each.
	Bytes       int64 `json:"bytes"`
	HeaderBytes int64 `json:"headerBytes"`
	// Parameters counts the elements of weights: packed codes singly, scales and other side tensors not at all. It is exact unless
	// NotCounted names a tensor whose packing the headers do not tell; such tensors are left out.
	Parameters int64        `json:"parameters"`
	NotCounted string       `json:"notCounted,omitempty"`
	DTypes     []DTypeCount `json:"dtypes"` // most bytes first

	Declared    DeclaredSummary `json:"declared"`
	Resident    Share           `json:"resident"`
	Experts     *ExpertSummary  `json:"experts,omitempty"`
	NoExperts   string          `json:"noExperts,omitempty"`
	MTP         *ExpertSummary  `json:"mtp,omitempty"`
	NoMTP       string          `json:"noMTP,omitempty"`
	LeftOut     []LeftOut       `json:"leftOut,omitempty"`
	HiddenFiles []LeftOut       `json:"hiddenFiles,omitempty"`
	Notes       []string        `json:"notes,omitempty"`
}

// Share is a part of a release.
type Share struct {
	Tensors int   `json:"tensors"`
	Bytes   int64 `json:"bytes"`
}

// DTypeCount is the share of one dtype.
type DTypeCount struct {
	DType string `json:"dtype"`
	Share
}

// DeclaredSummary is what the configuration says.
type DeclaredSummary struct {
	ModelType       string   `json:"modelType,omitempty"`
	DType           string   `json:"dtype,omitempty"`
	Hidden          int64    `json:"hiddenSize,omitempty"`
	Layers          int64    `json:"layers,omitempty"`
	Experts         int64    `json:"experts,omitempty"`
	Intermediate    int64    `json:"intermediateSize,omitempty"`
	MoEIntermediate int64    `json:"moeIntermediateSize,omitempty"`
	Quantization    []string `json:"quantization,omitempty"` // where one is described
}

// LeftOut is a file that is not part of the weight set, or not shown at all.
type LeftOut struct {
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes,omitempty"`
	Reason string `json:"reason"`
}

// ExpertSummary is the layout of one class of routed experts in the release's files.
type ExpertSummary struct {
	Share
	Family          string        `json:"family"`
	Prefix          string        `json:"prefix"`
	Layers          []int         `json:"layers"`
	PerLayer        int           `json:"expertsPerLayer"`
	Hidden          int64         `json:"hiddenSize,omitempty"`
	Intermediate    int64         `json:"intermediateSize,omitempty"`
	Fused           bool          `json:"fused"`
	Orientation     string        `json:"orientation"` // [out, in], [in, out], or both for DBRX
	GateUp          string        `json:"gateUp,omitempty"`
	BlockBytes      int64         `json:"blockBytes"`      // of one expert, without padding
	BlockByteLength int64         `json:"blockByteLength"` // of a native block: parts on multiples of 256, padded to one of 4096
	Parts           []PartSummary `json:"parts"`
	// Ranges counts experts by the number of byte ranges that hold them, touching ones joined.
	Ranges []Count `json:"ranges"`
	// Split is how many experts lie in more than one shard; ShardsPerLayer counts layers by the number of shards that hold their experts.
	Split          int       `json:"splitExperts"`
	ShardsPerLayer []Count   `json:"shardsPerLayer"`
	Alignment      Alignment `json:"alignment"`
}

// PartSummary is one part of an expert.
type PartSummary struct {
	Name   string  `json:"name"`
	Tensor string  `json:"tensor"`
	DType  string  `json:"dtype"`
	Shape  []int64 `json:"shape"`
	Bytes  int64   `json:"bytes"`
}

// Count says how often a number occurs.
type Count struct {
	Number int `json:"number"`
	Times  int `json:"times"`
}

// Alignment counts the places in the files where a part of an expert begins.
type Alignment struct {
	Starts int `json:"starts"`
	Odd    int `json:"odd"`
	By8    int `json:"multipleOf8"`
	By64   int `json:"multipleOf64"`
	By512  int `json:"multipleOf512"`
	By4096 int `json:"multipleOf4096"`
}

func (a *Alignment) add(at int64) {
	a.Starts++
	if at%2 == 1 {
		a.Odd++
	}
	if at%8 == 0 {
		a.By8++
	}
	if at%64 == 0 {
		a.By64++
	}
	if at%512 == 0 {
		a.By512++
	}
	if at%4096 == 0 {
		a.By4096++
	}
}

// Summarise computes the summary of a release from its headers.
func Summarise(rel *Release) Summary {
	l, d := rel.Listing, rel.Declared
	s := Summary{
		Name: l.Name, Revision: l.Revision, Index: rel.Index, Shards: len(rel.Shards), Tensors: rel.Len(), Bytes: rel.Bytes(),
		Declared: DeclaredSummary{ModelType: d.ModelType, DType: d.DType, Hidden: d.Hidden, Layers: d.Layers, Experts: d.Experts,
			Intermediate: d.Intermediate, MoEIntermediate: d.MoEIntermediate},
		NoExperts: rel.NoExperts, NoMTP: rel.NoMTP, Notes: append(slices.Clip(rel.Notes), Alike(l)...),
	}
	if !l.Time.IsZero() {
		s.Time = &l.Time
	}
	for _, sh := range rel.Shards {
		s.HeaderBytes += sh.Header.DataStart()
	}
	for _, q := range d.Quantization {
		s.Declared.Quantization = append(s.Declared.Quantization, q.Where)
	}
	for _, o := range rel.LeftOut {
		s.LeftOut = append(s.LeftOut, LeftOut{o.Path, l.Files[l.Find(o.Path)].Size, o.Reason})
	}
	for _, h := range l.Hidden {
		s.HiddenFiles = append(s.HiddenFiles, LeftOut{Path: h.Path, Reason: h.Reason})
	}
	s.countTensors(rel)
	s.Experts, s.MTP = rel.expertSummary(rel.Experts), rel.expertSummary(rel.MTP)
	return s
}

// countTensors fills the shares and the number of parameters.
func (s *Summary) countTensors(rel *Release) {
	byType := map[string]*DTypeCount{}
	count := parameterCounter{rel: rel, known: map[string]int64{}}
	for ref := range rel.All() {
		t := rel.Tensor(ref)
		c := byType[t.DTypeName]
		if c == nil {
			c = &DTypeCount{DType: t.DTypeName}
			byType[t.DTypeName] = c
		}
		c.Tensors++
		c.Bytes += t.End - t.Start
		if rel.Role(ref) == Resident {
			s.Resident.Tensors++
			s.Resident.Bytes += t.End - t.Start
		}
		s.Parameters += count.of(t)
	}
	s.NotCounted = count.unknown
	for _, c := range byType {
		s.DTypes = append(s.DTypes, *c)
	}
	slices.SortFunc(s.DTypes, func(a, b DTypeCount) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.DType, b.DType))
	})
}

func (rel *Release) expertSummary(x *Experts) *ExpertSummary {
	if x == nil {
		return nil
	}
	s := &ExpertSummary{
		Family: x.Family, Prefix: x.Prefix, Layers: x.Layers, PerLayer: x.PerLayer, Hidden: x.Hidden, Intermediate: x.Intermediate,
		Fused: x.Parts[0].Fused, Orientation: x.orientation(), GateUp: x.gateUp(), BlockBytes: x.BlockBytes(), BlockByteLength: x.paddedBytes(),
	}
	for i := range x.Parts {
		p := &x.Parts[i]
		s.Tensors += len(p.Refs)
		for _, ref := range p.Refs {
			t := rel.Tensor(ref)
			s.Bytes += t.End - t.Start
		}
		s.Parts = append(s.Parts, PartSummary{p.Projection + "." + p.Suffix, p.Tensor, p.DTypeName, p.Shape, p.Bytes})
	}
	rel.places(x, s)
	return s
}

// paddedBytes is the length of an expert's block with every part on a multiple of 256 and the block on one of 4096.
func (x *Experts) paddedBytes() int64 {
	var at int64
	for i := range x.Parts {
		at = (at+255)&^255 + x.Parts[i].Bytes
	}
	return (at + 4095) &^ 4095
}

func (x *Experts) orientation() string {
	first, last := x.Parts[0].Transposed, x.Parts[len(x.Parts)-1]
	for i := range x.Parts {
		if x.Parts[i].Projection == down && isData(x.Parts[i].Suffix) {
			last = x.Parts[i]
		}
	}
	switch {
	case first && last.Transposed:
		return "[in, out]"
	case last.Transposed:
		return "gate and up [out, in], down [in, out]"
	}
	return "[out, in]"
}

// gateUp is how the rows of a gate_up tensor lie, "" if there is none.
func (x *Experts) gateUp() string {
	p := &x.Parts[0]
	switch {
	case p.Projection != gateUp:
		return ""
	case p.Interleaved:
		return "rows alternate, gate first"
	case p.UpFirst:
		return "up half first"
	}
	return "gate half first"
}

// span is a byte range of one file.
type span struct {
	file       int
	start, end int64
}

// places fills what depends on where the experts lie in the files.
func (rel *Release) places(x *Experts, s *ExpertSummary) {
	ranges, perLayer := map[int]int{}, map[int]int{}
	spans := make([]span, 0, len(x.Parts))
	for i := range x.Layers {
		files := map[int]bool{}
		for e := range x.PerLayer {
			spans = spans[:0]
			for p := range x.Parts {
				ref, off := x.Parts[p].Ref(i, e, x.PerLayer)
				t := rel.Tensor(ref)
				spans = append(spans, span{t.File, t.Start + off, t.Start + off + x.Parts[p].Bytes})
				files[t.File] = true
				s.Alignment.add(t.Start + off)
			}
			n, shards := joined(spans)
			ranges[n]++
			if shards > 1 {
				s.Split++
			}
		}
		perLayer[len(files)]++
	}
	s.Ranges, s.ShardsPerLayer = counts(ranges), counts(perLayer)
}

// joined is the number of ranges that spans make when those that touch are joined, and the number of files. It sorts spans.
func joined(spans []span) (ranges, files int) {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.start, b.start)) })
	for i, s := range spans {
		switch {
		case i == 0 || spans[i-1].file != s.file:
			ranges++
			files++
		case spans[i-1].end != s.start:
			ranges++
		}
	}
	return ranges, files
}

func counts(m map[int]int) (out []Count) {
	for _, n := range slices.Sorted(maps.Keys(m)) {
		out = append(out, Count{n, m[n]})
	}
	return out
}
