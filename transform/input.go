package transform

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"weightfs/fs/plan"
	"weightfs/internal/nametable"
	"weightfs/sources/release"
	"weightfs/sources/safetensors"
	"weightfs/transform/quant"
)

// class says what a tensor is for: resident, or a routed expert's of the main or the multi-token-prediction layers.
type class uint8

const (
	resident class = iota
	routed
	mtp
	classes
)

// input is a release with what all views derive from it. A tensor is named by its number: tensors are counted over the shards in
// order. It holds 20 bytes a tensor, and does not change once facts are fetched; kinds, sums and matrices are computed when they are first
// asked for.
type input struct {
	*release.Release
	base  []int32  // base[s] is the number of the first tensor of shard s; one more entry at the end
	next  []int32  // next[i] is the tensor after i of the same module; the last one's is the first
	where []place  // where[i] is the expert part that tensor i holds
	form  []uint32 // form[i] is the form of tensor i, in forms
	forms []tensorForm
	kinds func() []uint32 // the kind of every tensor's module, once facts are known

	unsafe      int    // tensors whose names cannot stand in a path
	unsafeFirst string // the first of them

	quantConfig quant.Config
	quantErr    error               // nothing can be recognised: the declaration is malformed, or facts are too large
	metadata    []map[string]string // by shard, nil where it says no more than the framework
	anyMetadata bool                // some is not nil
	factual     []int32             // tensors whose suffix says that their content may be needed
	facts       map[int32][]byte    // that content
	known       recognised
	sums        func() *sums
	matrices    [classes]func() ([]blockPart, error) // the experts of a class as BF16 matrices
}

// place is a position in the layout of a class of experts: part number, and index into the part's Refs.
type place struct {
	class class
	part  uint8
	ref   int32
}

// newInput indexes a release.
func newInput(r *release.Release) *input {
	in := &input{Release: r, base: make([]int32, len(r.Shards)+1), metadata: make([]map[string]string, len(r.Shards))}
	in.known.matches = map[uint32]*quant.Match{}
	for s := range r.Shards {
		in.base[s+1] = in.base[s] + int32(r.Shards[s].Header.Len())
	}
	in.next = in.rings()
	in.where = make([]place, len(in.next))
	in.locate(routed, r.Experts)
	in.locate(mtp, r.MTP)
	in.kinds = sync.OnceValue(in.sortModules)
	in.sums = sync.OnceValue(in.sum)
	for _, c := range []class{routed, mtp} {
		in.matrices[c] = sync.OnceValues(func() ([]blockPart, error) { return in.bf16Parts(in.experts(c)) })
	}
	for s := range r.Shards {
		if md := r.Shards[s].Header.Metadata(); len(md) > 1 || len(md) == 1 && md["format"] == "" {
			in.metadata[s], in.anyMetadata = md, true
		}
	}
	in.quantConfig, in.quantErr = quant.FindConfig(in.Files)
	in.quantConfig.ScaledF8 = in.scaledF8()
	return in
}

// scaledF8 says whether some F8 tensor has a scale beside it.
func (in *input) scaledF8() bool {
	for i := range in.next {
		k := int32(i)
		if in.next[k] == k || !strings.HasPrefix(in.source(k).DTypeName, "F8_E") {
			continue
		}
		for k = in.next[k]; k != int32(i); k = in.next[k] {
			if strings.Contains(in.forms[in.form[k]].suffix, "scale") {
				return true
			}
		}
	}
	return false
}

// rings links the tensors of each module, sorts them by form, and notes those whose content recognition may need.
func (in *input) rings() []int32 {
	next := make([]int32, in.base[len(in.Shards)])
	in.form = make([]uint32, len(next))
	forms := newFormer()
	modules := nametable.New(len(next)) // to their last tensors
	var before string
	var last nametable.Slot
	for s := range in.Shards {
		h := in.Shards[s].Header
		forms.begin(h)
		for k := range h.Len() {
			i := in.base[s] + int32(k)
			name := h.Name(k)
			if !safePath(name) {
				in.noteUnsafe(name)
			}
			module, suffix := quant.Split(name)
			in.form[i] = forms.of(k, suffix)
			if i == 0 || module != before { // most often the tensors of a module stand together
				before, last = module, modules.Slot(module, in.isModule(module))
			}
			if prev, ok := last.Number(); ok {
				next[i], next[prev] = next[prev], i
			} else {
				next[i] = i
			}
			last.Set(int(i))
			in.forms = forms.list
			if in.forms[in.form[i]].fact {
				in.factual = append(in.factual, i)
			}
		}
	}
	return next
}

// isModule says whether a tensor is of that module.
func (in *input) isModule(module string) func(i int) bool {
	return func(i int) bool {
		m, _ := in.cutName(int32(i))
		return m == module
	}
}

// cutName is the module and the suffix of tensor i, as [quant.Split] has them.
func (in *input) cutName(i int32) (module, suffix string) {
	r, f := in.ref(i), in.forms[in.form[i]]
	name := in.Shards[r.Shard].Header.Name(int(r.Index))
	return name[:max(0, len(name)-f.cut)], f.suffix
}

func (in *input) noteUnsafe(name string) {
	if in.unsafe++; in.unsafe == 1 {
		in.unsafeFirst = name
	}
}

// locate notes where the tensors of a class of experts stand.
func (in *input) locate(c class, x *release.Experts) {
	if x == nil {
		return
	}
	for p := range x.Parts {
		for k, r := range x.Parts[p].Refs {
			in.where[in.number(r)] = place{class: c, part: uint8(p), ref: int32(k)}
		}
	}
}

func (in *input) number(r release.Ref) int32 { return in.base[r.Shard] + r.Index }

// ref is the inverse of number.
func (in *input) ref(i int32) release.Ref {
	lo, hi := 0, len(in.Shards)
	for hi-lo > 1 {
		if m := (lo + hi) / 2; in.base[m] <= i {
			lo = m
		} else {
			hi = m
		}
	}
	return release.Ref{Shard: int32(lo), Index: i - in.base[lo]}
}

// source is the tensor of that number.
func (in *input) source(i int32) release.Tensor { return in.Tensor(in.ref(i)) }

// experts is the layout of a class.
func (in *input) experts(c class) *release.Experts {
	if c == mtp {
		return in.MTP
	}
	return in.Experts
}

func span(t release.Tensor) plan.Span { return plan.Span{File: t.File, Start: t.Start, End: t.End} }

func bytesOf(t release.Tensor) int64 { return t.End - t.Start }

// copied is the tensor as it stands in the release.
func copied(t release.Tensor) tensor {
	at := span(t)
	return tensor{
		Tensor: safetensors.Tensor{Name: t.Name, DType: t.DType, DTypeName: t.DTypeName, Shape: t.Shape},
		size:   bytesOf(t),
		pieces: func() []plan.Piece { return []plan.Piece{plan.Copy{Span: at}} },
	}
}

// count is the number of elements of a shape whose product is known to fit: a validated header's.
func count(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// Absent is the error of a view that does not exist for a release, and of every path in it. It also is fs.ErrNotExist.
type Absent struct {
	View   string // bf16, experts/native
	Tensor string // the tensor that is to blame, "" if none is
	Reason string
	Err    error // the verdict on the release that leaves no view, nil if the reason is the view's own
}

func (a *Absent) Error() string {
	if a.Tensor == "" {
		return fmt.Sprintf("%s is absent: %s", a.View, printable(a.Reason))
	}
	return fmt.Sprintf("%s is absent: tensor %s: %s", a.View, printable(a.Tensor), printable(a.Reason))
}

// Is makes an absent view not exist where only that matters.
func (a *Absent) Is(target error) bool { return target == fs.ErrNotExist }

func (a *Absent) Unwrap() error { return a.Err }

// absent makes the error of a view from a tensor's name and the reason.
func absent(tensor, format string, args ...any) error {
	return &Absent{Tensor: tensor, Reason: fmt.Sprintf(format, args...)}
}

// printable is hostile text as one line that Markdown shows as it is, in backticks or not: what is not printable, and what begins or ends
// code, HTML, or the address of a link or image, stands as its escape.
func printable(s string) string {
	var b strings.Builder
	before := rune(0)
	for _, r := range s {
		switch {
		case r == '`' || r == '<' || r == '(' && before == ']':
			fmt.Fprintf(&b, `\x%02x`, r)
		case unicode.IsPrint(r) && r != utf8.RuneError:
			b.WriteRune(r)
		default:
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
		before = r
	}
	return b.String()
}
