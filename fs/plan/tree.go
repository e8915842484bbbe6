package plan

import (
	"context"
	"io/fs"
	"sort"
	"strings"
)

// Node is one entry of a directory: a directory if Dir is set, else a file. A listing holds names and sizes only; the plan is
// made by Open and belongs to the caller.
type Node struct {
	Name string
	Dir  Dir
	Size int64
	// Open makes the plan of a file. It is pure and cheap enough to call again.
	Open func(ctx context.Context) (*Plan, error)
	// Plan is what Open returns, if it is already made.
	Plan *Plan
	// Live, if set, makes the present content of a file that changes (.weightfs/status.json); Size and Open are then unused.
	Live func() []byte
	// Private files may be read by the owner only.
	Private bool
}

// Dir is a directory of a tree. Both methods may wait (for headers) and fail; failures are not remembered.
type Dir interface {
	// List is the entries sorted by name.
	List(ctx context.Context) ([]Node, error)
	// Lookup finds an entry; names that List leaves out may be found. The error for a missing one is fs.ErrNotExist.
	Lookup(ctx context.Context, name string) (Node, error)
}

// Static is a directory whose entries are known.
type Static []Node

// NewStatic sorts the nodes by name.
func NewStatic(nodes ...Node) Static {
	sort.Slice(nodes, func(i, j int) bool { return nodes[i].Name < nodes[j].Name })
	return nodes
}

func (d Static) List(context.Context) ([]Node, error) { return d, nil }

func (d Static) Lookup(_ context.Context, name string) (Node, error) {
	i := sort.Search(len(d), func(i int) bool { return d[i].Name >= name })
	if i < len(d) && d[i].Name == name {
		return d[i], nil
	}
	return Node{}, fs.ErrNotExist
}

// Lazy is a directory made when it is first needed. Load waits for what it needs; it should remember its own success.
type Lazy struct {
	Load func(ctx context.Context) (Dir, error)
}

func (d Lazy) List(ctx context.Context) ([]Node, error) {
	in, err := d.Load(ctx)
	if err != nil {
		return nil, err
	}
	return in.List(ctx)
}

func (d Lazy) Lookup(ctx context.Context, name string) (Node, error) {
	in, err := d.Load(ctx)
	if err != nil {
		return Node{}, err
	}
	return in.Lookup(ctx, name)
}

// Indexed is a directory of N entries computed from their index, for directories too large to hold. At must give names in
// ascending order. Find, the inverse of the name, may know names beyond N entries (values of a parameter that are valid but not listed).
type Indexed struct {
	N    int
	At   func(i int) Node
	Find func(name string) (Node, bool)
}

func (d Indexed) List(context.Context) ([]Node, error) {
	out := make([]Node, d.N)
	for i := range out {
		out[i] = d.At(i)
	}
	return out, nil
}

func (d Indexed) Lookup(_ context.Context, name string) (Node, error) {
	if n, ok := d.Find(name); ok {
		return n, nil
	}
	return Node{}, fs.ErrNotExist
}

// Walk finds the node at a slash-separated path below d; "" and "." are d itself.
func Walk(ctx context.Context, d Dir, path string) (Node, error) {
	n := Node{Name: ".", Dir: d}
	for _, name := range strings.Split(path, "/") {
		if name == "" || name == "." {
			continue
		}
		if n.Dir == nil {
			return Node{}, fs.ErrNotExist
		}
		next, err := n.Dir.Lookup(ctx, name)
		if err != nil {
			return Node{}, err
		}
		n = next
	}
	return n, nil
}

// File is a node for a plan that is already made.
func File(name string, p *Plan) Node {
	return Node{Name: name, Size: p.Size, Plan: p, Open: func(context.Context) (*Plan, error) { return p, nil }}
}

// Folder is a node for a directory.
func Folder(name string, d Dir) Node { return Node{Name: name, Dir: d} }
