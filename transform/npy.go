package transform

import (
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"weightfs/fs/plan"
	"weightfs/sources/release"
	"weightfs/sources/safetensors"
)

// npyTypes are NumPy's type strings of the dtypes that NumPy has; the others are shown as the integer of their width, packed ones
// (less than a byte an element) as bytes.
var npyTypes = map[safetensors.DType]string{
	safetensors.BOOL: "|b1", safetensors.U8: "|u1", safetensors.I8: "|i1", safetensors.I16: "<i2", safetensors.U16: "<u2",
	safetensors.F16: "<f2", safetensors.I32: "<i4", safetensors.U32: "<u4", safetensors.F32: "<f4", safetensors.C64: "<c8",
	safetensors.F64: "<f8", safetensors.I64: "<i8", safetensors.U64: "<u8",
}

// npyFile is a tensor as a NumPy file of version 1.0 (2.0 if the header is long): magic, header, the tensor's bytes.
func npyFile(t release.Tensor) []byte {
	descr, shape := npyTypes[t.DType], t.Shape
	switch {
	case descr != "":
	case t.DType.Bits() == 16:
		descr = "<u2"
	case t.DType.Bits() == 8:
		descr = "|u1"
	default:
		descr, shape = "|u1", []int64{bytesOf(t)}
	}
	dims := make([]string, len(shape))
	for i, d := range shape {
		dims[i] = fmt.Sprint(d)
	}
	tuple := strings.Join(dims, ", ")
	if len(dims) == 1 {
		tuple += ","
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, tuple)
	return npyHeader(text)
}

// npyHeader frames a header so that the data begins on a multiple of 64, as NumPy itself does.
func npyHeader(text string) []byte {
	head := []byte("\x93NUMPY\x01\x00")
	n := roundUp(int64(len(head)+2+len(text)+1), 64) - int64(len(head)+2)
	if n <= 0xFFFF {
		head = binary.LittleEndian.AppendUint16(head, uint16(n))
	} else {
		head[6] = 2
		n = roundUp(int64(len(head)+4+len(text)+1), 64) - int64(len(head)+4)
		head = binary.LittleEndian.AppendUint32(head, uint32(n))
	}
	head = append(head, text...)
	head = append(head, strings.Repeat(" ", int(n)-len(text)-1)...)
	return append(head, '\n')
}

// names is every tensor whose name may stand in a path, sorted by name, so that those with a common beginning are neighbours.
type names struct {
	in    *input
	order func() []int32
}

const aboutTensors = "Every tensor as a NumPy file: dots become directories, the last two components one name. A dtype that NumPy lacks stands as the integer of its width."

// tensorsDir is tensors/.
func tensorsDir(in *input) (plan.Dir, cost, error) {
	n := &names{in: in}
	n.order = sync.OnceValue(n.sort)
	sum := total(in.sums().native)
	return plus{npyDir{n, ""}, readmeFile("tensors", aboutTensors)}, cost{sum, sum}, nil
}

func (n *names) name(i int32) string {
	r := n.in.ref(i)
	return n.in.Shards[r.Shard].Header.Name(int(r.Index))
}

func (n *names) sort() []int32 {
	type row struct {
		name string
		i    int32
	}
	var rows []row
	for i := range n.in.base[len(n.in.Shards)] {
		if name := n.name(i); safePath(name) {
			rows = append(rows, row{name, i})
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.name, b.name) })
	out := make([]int32, len(rows))
	for k, r := range rows {
		out[k] = r.i
	}
	return out
}

// below is the tensors whose names begin with prefix.
func (n *names) below(prefix string) []int32 {
	order := n.order()
	compare := func(i int32, text string) int { return strings.Compare(n.name(i), text) }
	lo, _ := slices.BinarySearchFunc(order, prefix, compare)
	end := prefix[:max(0, len(prefix)-1)] + "/" // the character after the dot
	hi, _ := slices.BinarySearchFunc(order, end, compare)
	if prefix == "" {
		hi = len(order)
	}
	return order[lo:hi]
}

// npyDir is the directory of the tensors whose names begin with prefix, which is empty or ends with a dot. A tensor lies in it if two
// components of its name follow, or one that is all of the name.
type npyDir struct {
	names  *names
	prefix string
}

// entry is where in the directory a tensor goes: a file's name, or that of a directory; "" if it lies in the directory above.
func (d npyDir) entry(name string) (text string, nested bool) {
	rest := strings.TrimPrefix(name, d.prefix)
	first, more, two := strings.Cut(rest, ".")
	switch {
	case strings.Contains(more, "."):
		return first, true
	case !two && d.prefix != "":
		return "", false
	}
	return rest + ".npy", false
}

func (d npyDir) List(context.Context) ([]plan.Node, error) {
	var out []plan.Node
	last := "" // the directory that was added last; "" is no component's name
	for _, i := range d.names.below(d.prefix) {
		text, nested := d.entry(d.names.name(i))
		switch {
		case text == "":
		case !nested:
			out = append(out, d.file(i, text))
		case text != last:
			out = append(out, d.sub(text))
			last = text
		}
	}
	return plan.NewStatic(out...), nil
}

func (d npyDir) Lookup(_ context.Context, text string) (plan.Node, error) {
	if name, ok := strings.CutSuffix(text, ".npy"); ok && safePath(name) {
		ref, ok := d.names.in.Lookup(d.prefix + name)
		if entry, nested := d.entry(d.prefix + name); ok && !nested && entry == text {
			return d.file(d.names.in.number(ref), text), nil
		}
	}
	for _, i := range d.names.below(d.prefix + text + ".") {
		if entry, nested := d.entry(d.names.name(i)); nested && entry == text {
			return d.sub(text), nil
		}
	}
	return plan.Node{}, fs.ErrNotExist
}

func (d npyDir) sub(text string) plan.Node {
	return plan.Folder(text, npyDir{d.names, d.prefix + text + "."})
}

func (d npyDir) file(i int32, text string) plan.Node {
	head := npyFile(d.names.in.source(i))
	return plan.Node{Name: text, Size: int64(len(head)) + bytesOf(d.names.in.source(i)), Open: func(context.Context) (*plan.Plan, error) {
		t := d.names.in.source(i)
		head := npyFile(t)
		return plan.New(plan.Literal{Name: "header", Size: int64(len(head)), Bytes: head}, plan.Copy{Span: span(t)}), nil
	}}
}
