package transform

import (
	"encoding/binary"
	"strings"
	"sync"

	"weightfs/sources/safetensors"
	"weightfs/transform/quant"
)

// Modules are of one kind if their tensors have the same suffixes, dtypes and shapes: what recognition says of one it says of all, but for
// their names. A release of hundreds of thousands of tensors has a few dozen kinds, and what can be said of a kind is found once.

// single is the kind of modules that are recognised one by one, because facts, metadata or settings of their own matter.
const single = 0

// maxKinds bounds what is remembered of a hostile release's kinds.
const maxKinds = 1 << 12

// recognised remembers the matches of kinds. In Match.Name it keeps what follows the module's name.
type recognised struct {
	mu      sync.Mutex
	matches map[uint32]*quant.Match // guarded by mu; a nil match is a kind that is not quantized
	count   int                     // guarded by mu: modules that went through quant.Recognise
}

func (r *recognised) get(kind uint32) (m *quant.Match, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, ok = r.matches[kind]
	return m, ok
}

// add remembers a match of quant.Recognise.
func (r *recognised) add(kind uint32, m *quant.Match) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	if kind != single && len(r.matches) < maxKinds {
		r.matches[kind] = m
	}
}

// tensorForm is what tensors of the same suffix, dtype, shape and length have in common.
type tensorForm struct {
	suffix string
	cut    int  // bytes that the suffix takes at the end of a name, with its dot
	fact   bool // their content may be needed for recognition
}

// former numbers forms.
type former struct {
	list   []tensorForm
	facts  map[string]bool     // suffixes of facts
	all    map[string]uint32   // by the form as text
	header *safetensors.Header // of the shard whose tensors are numbered
	shard  map[formKey]uint32  // of that shard
	recent [16]formKey         // some of them, each at its place
	number [16]uint32          // their numbers
	text   []byte
}

type formKey struct {
	kind   uint32 // in the header: dtype and shape
	suffix string
	bytes  int64
}

func newFormer() *former {
	f := &former{facts: map[string]bool{}, all: map[string]uint32{}, shard: map[formKey]uint32{}}
	for _, s := range quant.Suffixes() {
		f.facts[s.Suffix] = s.Fact
	}
	return f
}

// begin turns to another shard.
func (f *former) begin(h *safetensors.Header) {
	f.header = h
	clear(f.shard)
	clear(f.recent[:])
}

// of is the number of the form of tensor k, which has the suffix.
func (f *former) of(k int, suffix string) uint32 {
	key := formKey{f.header.Kind(k), suffix, f.header.Bytes(k)}
	at := (key.kind + uint32(len(suffix))) % uint32(len(f.recent))
	if f.recent[at] != key || key == (formKey{}) {
		n, ok := f.shard[key]
		if !ok {
			n = f.find(k, key)
			f.shard[key] = n
		}
		f.recent[at], f.number[at] = key, n
	}
	return f.number[at]
}

// find is the number of a form that the shard had not yet.
func (f *former) find(k int, key formKey) uint32 {
	t := f.header.At(k)
	f.text = append(append(f.text[:0], key.suffix...), 0)
	f.text = append(binary.AppendUvarint(f.text, uint64(len(t.DTypeName))), t.DTypeName...)
	f.text = binary.AppendVarint(f.text, key.bytes)
	for _, d := range t.Shape {
		f.text = binary.AppendVarint(f.text, d)
	}
	n, ok := f.all[string(f.text)]
	if !ok {
		n = uint32(len(f.list))
		f.all[string(f.text)] = n
		f.list = append(f.list, tensorForm{key.suffix, len(quant.TensorName("x", key.suffix)) - 1, f.facts[key.suffix]})
	}
	return n
}

// sortModules is the kind of every tensor's module. The kind is where the forms of the tensors lead from the root of a tree.
func (in *input) sortModules() []uint32 {
	of := make([]uint32, len(in.next))
	if in.quantConfig.ByModule() {
		return of
	}
	type step struct{ at, form uint32 }
	steps := map[step]uint32{}
	seen := make([]bool, len(of))
	for i := range in.next {
		if seen[i] {
			continue
		}
		kind, shared := uint32(0), true
		for k := int32(i); !seen[k]; k = in.next[k] {
			seen[k] = true
			shared = shared && !in.isSingle(k)
			next, ok := steps[step{kind, in.form[k]}]
			if !ok {
				next = uint32(len(steps)) + 1
				steps[step{kind, in.form[k]}] = next
			}
			kind = next
		}
		if !shared {
			kind = single
		}
		of[i] = kind
		for k := in.next[i]; k != int32(i); k = in.next[k] {
			of[k] = kind
		}
	}
	return of
}

// isSingle says whether recognition of tensor i's module may depend on more than forms.
func (in *input) isSingle(i int32) bool {
	if _, fact := in.facts[i]; fact {
		return true
	}
	return in.anyMetadata && in.metadata[in.ref(i).Shard] != nil
}

// standsAlone says that a tensor named by a module's name and rel can be of that module only: no longer suffix ends with rel, so that
// quant.Split finds the module in it.
func standsAlone(rel string) bool {
	if rel == "" || rel[0] != '.' {
		return false
	}
	known := false
	for _, s := range quant.Suffixes() {
		joined := quant.TensorName("x", s.Suffix)[1:]
		known = known || joined == rel
		if joined != rel && strings.HasSuffix(joined, rel) {
			return false
		}
	}
	return known
}

// contribution is what a tensor adds to the sums of a release, or the refusal of its module.
type contribution struct {
	bf16, all int64
	err       error
}

// contributions finds what tensors add, once for those of one form in modules of one kind.
type contributions struct {
	in    *input
	show  mapping
	known map[[2]uint32]contribution // by kind and form
}

func (c *contributions) of(i int32) contribution {
	key := [2]uint32{c.in.kinds()[i], c.in.form[i]}
	if x, ok := c.known[key]; ok {
		return x
	}
	var x, refused contribution
	t := c.in.source(i)
	err := c.show(i, func(out tensor) {
		x.bf16 += out.size
		switch {
		case out.Name != t.Name && c.in.taken(i, out.Name):
			refused.err = absent(t.Name, "dequantizes to %s, which the release also has", out.Name)
		case out.Name == t.Name && out.DType == t.DType:
			out = narrowed(t, true)
		}
		x.all += out.size
	})
	if err != nil {
		refused.err = err
	}
	if refused.err != nil {
		x = refused
	}
	if key[0] != single && c.in.alike(i) {
		c.known[key] = x
	}
	return x
}

// alike says whether what holds for tensor i holds for all of its form and its module's kind.
func (in *input) alike(i int32) bool {
	m, ok := in.known.get(in.kinds()[i])
	return ok && (m == nil || m.Codec == nil || standsAlone(m.Name))
}

// matchOf is what quant makes of the module of tensor i.
func (in *input) matchOf(i int32) (*quant.Match, error) {
	if in.quantErr == nil {
		if kind := in.kinds()[i]; kind != single {
			if m, ok := in.known.get(kind); ok {
				return m, nil
			}
		}
	}
	m, err := in.module(i)
	if err != nil {
		return nil, err
	}
	return m.match, nil
}

// taken says whether the release has a tensor of that name beside those that a BF16 view leaves out of the module of tensor i.
func (in *input) taken(i int32, name string) bool {
	other, ok := in.Lookup(name)
	if !ok {
		return false
	}
	m, err := in.module(i)
	return err != nil || m.match == nil || !in.dropped(m, in.number(other))
}
