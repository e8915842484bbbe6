package fs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	iofs "io/fs"
	"slices"
	"strings"
	"time"

	"weightfs/fs/plan"
)

// place is a node with what it takes to serve it: its path below the root and its tree. Directories above the trees, in a mount of
// several sources, have no tree but branches.
type place struct {
	node plan.Node
	path string
	tree *Tree

	branches    []*place // sorted by name
	control     *place   // .weightfs, at the root only
	hideControl bool
}

const controlName = ".weightfs"

// joinTrees is the root of a mount: the only tree's, or directories that lead to each tree's.
func joinTrees(trees []*Tree) (*place, error) {
	root := &place{node: plan.Node{Name: "/"}}
	for _, t := range trees {
		if t.At == "" {
			if len(trees) > 1 {
				return nil, fmt.Errorf("%s cannot be the root: it is not the only source", t.Source)
			}
			return &place{node: plan.Folder("/", t.Root), tree: t}, nil
		}
		if err := root.graft(t, splitPath(t.At)); err != nil {
			return nil, err
		}
	}
	return root, nil
}

// graft puts a tree below p.
func (p *place) graft(t *Tree, parts []string) error {
	i, found := slices.BinarySearchFunc(p.branches, parts[0], func(b *place, name string) int { return cmp.Compare(b.node.Name, name) })
	last := len(parts) == 1
	if found && (last || p.branches[i].tree != nil) {
		return fmt.Errorf("two sources would stand at %s: mount them apart, or name their revisions", t.At)
	}
	if !found {
		b := &place{node: plan.Node{Name: parts[0]}, path: join(p.path, parts[0])}
		p.branches = slices.Insert(p.branches, i, b)
	}
	b := p.branches[i]
	if last {
		b.node, b.tree = plan.Folder(parts[0], t.Root), t
		return nil
	}
	return b.graft(t, parts[1:])
}

func splitPath(name string) []string {
	name = strings.Trim(name, "/")
	if name == "" {
		return nil
	}
	return strings.Split(name, "/")
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

func (p *place) isDir() bool { return p.node.Dir != nil || p.node.Open == nil && p.node.Live == nil }

// child is the place of an entry of p.
func (p *place) child(n plan.Node) *place {
	return &place{node: n, path: join(p.path, n.Name), tree: p.tree}
}

// lookup finds an entry. The error for a missing one is io/fs.ErrNotExist.
func (p *place) lookup(ctx context.Context, name string) (*place, error) {
	switch {
	case p.control != nil && name == controlName:
		return p.control, nil
	case !p.isDir():
		return nil, errNotDir
	case p.node.Dir == nil:
		for _, b := range p.branches {
			if b.node.Name == name {
				return b, nil
			}
		}
		return nil, iofs.ErrNotExist
	}
	n, err := p.node.Dir.Lookup(ctx, name)
	if err != nil {
		return nil, err
	}
	return p.child(n), nil
}

// list is the entries of a directory, sorted by name.
func (p *place) list(ctx context.Context) ([]*place, error) {
	if !p.isDir() {
		return nil, errNotDir
	}
	out := slices.Clone(p.branches)
	if p.node.Dir != nil {
		nodes, err := p.node.Dir.List(ctx)
		if err != nil {
			return nil, err
		}
		out = make([]*place, len(nodes), len(nodes)+1)
		for i, n := range nodes {
			out[i] = p.child(n)
		}
	}
	if p.control != nil && !p.hideControl {
		out = append(out, p.control)
		slices.SortFunc(out, func(a, b *place) int { return cmp.Compare(a.node.Name, b.node.Name) })
	}
	return out, nil
}

// control makes the directory .weightfs. It is a tree of its own, of files that need no source.
func (f *FS) control(extra []plan.Node) *place {
	nodes := append([]plan.Node{
		{Name: "status.json", Live: f.statusJSON},
		{Name: "log", Live: f.ring.Bytes, Private: true},
	}, extra...)
	t := &Tree{
		Root: plan.NewStatic(nodes...), Source: controlName, Complete: true,
		Reader: plan.NewReader(noStore{}, 1<<20), FileName: func(int) string { return "" },
	}
	for _, x := range f.trees {
		t.Revision += x.identity() + "\x00"
		t.Time = x.Time
	}
	return &place{node: plan.Folder(controlName, t.Root), path: controlName, tree: t}
}

// noStore is the store of files that need no source.
type noStore struct{}

func (noStore) MaxGather() int64 { return 0 }

func (noStore) Gather(context.Context, []plan.Read, []plan.Span) error { return iofs.ErrNotExist }

// ino is the place's inode number: 63 bits of SHA-256(identity, path); the root is 1.
func (p *place) ino() uint64 {
	if p.path == "" {
		return rootIno
	}
	h := sha256.New()
	if p.tree != nil {
		fmt.Fprintf(h, "%s\x00", p.tree.identity())
	}
	h.Write([]byte(p.path))
	n := binary.BigEndian.Uint64(h.Sum(nil)) >> 1
	return max(n, rootIno+1)
}

const rootIno = 1

// time is when the place's release was made; the zero time above the trees.
func (p *place) time() time.Time {
	if p.tree == nil {
		return time.Time{}
	}
	return p.tree.Time
}

// mode is the place's type and permissions.
func (p *place) mode() iofs.FileMode {
	switch {
	case p.isDir():
		return iofs.ModeDir | 0o555
	case p.node.Private:
		return 0o400
	}
	return 0o444
}
