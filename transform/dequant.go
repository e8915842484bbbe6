package transform

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"weightfs/fs/plan"
	"weightfs/sources/release"
	"weightfs/sources/safetensors"
	"weightfs/transform/quant"
)

// module is the tensors of one module and what quant makes of them.
type module struct {
	name    string
	members map[string]int32 // suffix to tensor number
	match   *quant.Match     // nil: not quantized. Match.Name is that of another module; the name here is output's
}

// output is the name of the dequantized tensor.
func (m *module) output() string { return m.name + m.match.Name }

// inputs are the spans of the codec's inputs.
func (in *input) inputs(m *module) []plan.Span {
	out := make([]plan.Span, len(m.match.Inputs))
	for k, suffix := range m.match.Inputs {
		out[k] = span(in.source(m.members[suffix]))
	}
	return out
}

// siblings is the module of tensor i.
func (in *input) siblings(i int32) *module {
	m := &module{members: make(map[string]int32, 4)}
	for k := i; ; {
		var suffix string
		m.name, suffix = in.cutName(k)
		m.members[suffix] = k
		if k = in.next[k]; k == i {
			return m
		}
	}
}

// module finds the module of tensor i and recognises it.
func (in *input) module(i int32) (*module, error) {
	if in.quantErr != nil {
		return nil, refusal(in.quantErr)
	}
	m := in.siblings(i)
	kind := in.kinds()[i]
	if match, ok := in.known.get(kind); ok {
		m.match = match
		return m, nil
	}
	match, err := quant.Recognise(in.groupOf(m))
	if err != nil {
		return nil, refusal(err)
	}
	if match != nil && match.Codec != nil {
		rel, ok := strings.CutPrefix(match.Name, m.name)
		if !ok {
			return nil, absent(match.Name, "is made from the tensors of module %s, whose name it does not begin with", m.name)
		}
		match.Name = rel
	}
	m.match = match
	in.known.add(kind, match)
	return m, nil
}

// refusal makes an error of quant one of a view.
func refusal(err error) error {
	var r *quant.Refused
	if errors.As(err, &r) {
		return absent(r.Tensor, "%s: %s", r.Format, r.Reason)
	}
	var a *Absent
	if errors.As(err, &a) {
		return a
	}
	return &Absent{Reason: err.Error()}
}

// maxFacts bounds the bytes of the tensors that are read before shapes are known.
const maxFacts = 32 << 20

// fetchFacts gets the content of the small tensors that recognition needs. An error is one of reading; too many of them are a reason
// for views to be absent.
func (in *input) fetchFacts(ctx context.Context) error {
	var refs []release.Ref
	var sum int64
	seen := map[int32]bool{}
	for _, i := range in.factual {
		m := in.siblings(i)
		for _, suffix := range quant.Facts(in.groupOf(m)) {
			k := m.members[suffix]
			if seen[k] {
				continue
			}
			seen[k] = true
			refs = append(refs, in.ref(k))
			sum += bytesOf(in.source(k))
			if sum > maxFacts {
				in.quantErr = absent(in.source(k).Name, "side tensors that must be read before shapes are known exceed %d bytes", maxFacts)
				return nil
			}
		}
	}
	if len(refs) == 0 {
		return nil
	}
	content, err := in.Facts(ctx, refs)
	if err != nil {
		return err
	}
	in.facts = make(map[int32][]byte, len(content))
	for ref, b := range content {
		in.facts[in.number(ref)] = b
	}
	return nil
}

// groupOf is m as quant wants it.
func (in *input) groupOf(m *module) quant.Group {
	g := quant.Group{Module: m.name, Tensors: make(map[string]quant.Tensor, len(m.members)), Config: in.quantConfig}
	for _, s := range slices.Sorted(maps.Keys(m.members)) {
		i := m.members[s]
		t := in.source(i)
		g.Tensors[s] = quant.Tensor{Name: t.Name, DType: t.DTypeName, Shape: t.Shape, Data: in.facts[i]}
		if g.Metadata == nil {
			g.Metadata = in.metadata[in.ref(i).Shard]
		}
	}
	return g
}

// bf16 is the mapping of bf16/: quantized tensors dequantized under the names that the unquantized checkpoint has, their side tensors
// gone, all others untouched. With all, plain floating tensors are narrowed to BF16 too. That no other tensor has a dequantized one's name
// is for sums to say.
func (in *input) bf16(all bool) mapping {
	return func(i int32, emit func(tensor)) error {
		t := in.source(i)
		match, err := in.matchOf(i)
		if err != nil {
			return err
		}
		module, suffix := in.cutName(i)
		switch {
		case match == nil || !slices.Contains(match.Drop, suffix):
			emit(narrowed(t, all))
		case match.Codec != nil && suffix == match.Inputs[0]:
			emit(in.dequantized(i, renamed(t.Name, module, match.Name), match))
		}
		return nil
	}
}

// dropped says whether tensor i is one of m that a BF16 view leaves out.
func (in *input) dropped(m *module, i int32) bool {
	for _, s := range m.match.Drop {
		if k, ok := m.members[s]; ok && k == i {
			return true
		}
	}
	return false
}

// renamed is module + rel, which most often is the name itself.
func renamed(name, module, rel string) string {
	if len(name) == len(module)+len(rel) && name[len(module):] == rel {
		return name
	}
	return module + rel
}

// narrowed is t as it is, or with all its floating elements rounded to BF16.
func narrowed(t release.Tensor, all bool) tensor {
	if !all {
		return copied(t)
	}
	codec := castOf(t)
	if codec == nil {
		return copied(t)
	}
	at := span(t)
	return tensor{
		Tensor: safetensors.Tensor{Name: t.Name, DType: safetensors.BF16, Shape: t.Shape},
		size:   codec.Len(),
		pieces: func() []plan.Piece {
			return []plan.Piece{plan.Decode{Codec: codec, Inputs: []plan.Span{at}, Size: codec.Len()}}
		},
	}
}

// castOf is the codec that rounds t to BF16; nil if t has another dtype than a floating one, or has BF16 already.
func castOf(t release.Tensor) plan.Codec {
	if t.DType == safetensors.Opaque {
		return nil
	}
	return quant.Cast(t.DTypeName, t.Shape)
}

// dequantized is the tensor that match makes of the module of tensor i.
func (in *input) dequantized(i int32, name string, match *quant.Match) tensor {
	return tensor{
		Tensor: safetensors.Tensor{Name: name, DType: safetensors.BF16, Shape: match.Shape},
		size:   match.Codec.Len(),
		pieces: func() []plan.Piece {
			m := in.siblings(i)
			m.match = match
			codec := quant.Named(match.Codec, m.output)
			return []plan.Piece{plan.Decode{Codec: codec, Inputs: in.inputs(m), Size: codec.Len()}}
		},
	}
}

// sums are the bytes of a release's tensors by class, as they are and as BF16, and what keeps classes from being dequantized.
type sums struct {
	native, bf16, all [classes]int64
	bad               [classes]error // the first refusal of each class
	// orphan is the first tensor of a routed expert whose class has no layout, so that it can be shown as it is only; "" if there is none.
	orphan string
}

// sum goes over every tensor once, a part of them on each processor.
func (in *input) sum() *sums {
	parts := make([]sums, runtime.GOMAXPROCS(0))
	all := int64(in.base[len(in.Shards)])
	var work sync.WaitGroup
	for k := range parts {
		from, to := all*int64(k)/int64(len(parts)), all*int64(k+1)/int64(len(parts))
		work.Go(func() { in.sumOf(&parts[k], int32(from), int32(to)) })
	}
	work.Wait()
	s := &parts[0]
	for k := range parts[1:] {
		s.add(&parts[k+1])
	}
	return s
}

// add takes in the sums of the tensors that follow.
func (s *sums) add(x *sums) {
	for c := range classes {
		s.native[c] += x.native[c]
		s.bf16[c] += x.bf16[c]
		s.all[c] += x.all[c]
		if s.bad[c] == nil {
			s.bad[c] = x.bad[c]
		}
	}
	if s.orphan == "" {
		s.orphan = x.orphan
	}
}

// sumOf goes over the tensors [from, to).
func (in *input) sumOf(s *sums, from, to int32) {
	each := contributions{in, in.bf16(false), map[[2]uint32]contribution{}}
	for i := from; i < to; i++ {
		ref := in.ref(i)
		c := class(in.Role(ref))
		s.native[c] += in.Shards[ref.Shard].Header.Bytes(int(ref.Index))
		if c != resident && in.where[i].class == resident && s.orphan == "" {
			s.orphan = in.Tensor(ref).Name
		}
		x := each.of(i)
		s.bf16[c] += x.bf16
		s.all[c] += x.all
		if x.err != nil && s.bad[c] == nil {
			s.bad[c] = x.err
		}
	}
}

// laidOut refuses views that take experts apart if some experts have no layout.
func (in *input) laidOut() error {
	if in.Experts == nil {
		return absent("", "%s", in.NoExperts)
	}
	if orphan := in.sums().orphan; orphan != "" {
		return absent(orphan, "has no place among the experts: %s", in.NoMTP)
	}
	return nil
}

// total is the sum over classes.
func total(n [classes]int64) int64 { return n[resident] + n[routed] + n[mtp] }

// exact is the first refusal among classes, nil if all can be dequantized.
func (s *sums) exact(of ...class) error {
	for _, c := range of {
		if s.bad[c] != nil {
			return s.bad[c]
		}
	}
	return nil
}
