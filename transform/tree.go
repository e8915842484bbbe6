package transform

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"weightfs/fs/plan"
	"weightfs/sources/release"
)

// Tree is the root of a mount of one release: release/, the views that are not absent, README.md and the extra nodes. release/ and the
// extra nodes need the listing only; all else waits for open, which is called until it has succeeded once, or has said that the release is
// bad: then every view is absent. Looking up an absent view fails with [*Absent].
func Tree(l *release.Listing, open func(context.Context) (*release.Release, error), extra ...plan.Node) plan.Dir {
	return TreeOf(Views(), l, open, extra...)
}

// TreeOf is [Tree] with a list of views of one's own: [Views] and what [ParsePreset] made.
func TreeOf(views []View, l *release.Listing, open func(context.Context) (*release.Release, error), extra ...plan.Node) plan.Dir {
	dir, hidden := releaseDir(l)
	t := &tree{views: views, listing: l, open: open, early: append([]plan.Node{plan.Folder("release", dir)}, extra...), hidden: hidden}
	t.gate = make(chan struct{}, 1)
	return t
}

// tree is the root directory.
type tree struct {
	views   []View
	listing *release.Listing
	open    func(context.Context) (*release.Release, error)
	early   []plan.Node // entries that need no headers
	hidden  int         // files of the listing that release/ cannot show

	gate chan struct{} // held by the one that opens
	mu   sync.Mutex
	done *root // guarded by mu; nil until the release is known, good or bad
}

// root is what is known once the release is open, or known to be bad.
type root struct {
	nodes  plan.Static // all entries
	absent branches    // of views: what a lookup of an absent one says
}

// branches maps the path of a directory of the root to the views that are absent there, by name.
type branches map[string]error

// releaseDir is release/: the repository, byte for byte.
func releaseDir(l *release.Listing) (plan.Dir, int) {
	files := make([]entry, len(l.Files))
	for i := range l.Files {
		files[i] = sourceFile(l, i)
	}
	return folder(files)
}

func (t *tree) List(ctx context.Context) ([]plan.Node, error) {
	r, err := t.load(ctx)
	if err != nil {
		return nil, err
	}
	return r.nodes, nil
}

func (t *tree) Lookup(ctx context.Context, name string) (plan.Node, error) {
	for _, n := range t.early {
		if n.Name == name {
			return n, nil
		}
	}
	r, err := t.load(ctx)
	if err != nil {
		return plan.Node{}, err
	}
	if err := r.absent[name]; err != nil {
		return plan.Node{}, err
	}
	return r.nodes.Lookup(ctx, name)
}

// load opens the release once. A failure to get its bytes is not remembered, a verdict on them is; a caller whose context ends stops
// waiting.
func (t *tree) load(ctx context.Context) (*root, error) {
	if r := t.opened(); r != nil {
		return r, nil
	}
	select {
	case t.gate <- struct{}{}:
		defer func() { <-t.gate }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if r := t.opened(); r != nil {
		return r, nil
	}
	r, err := t.make(ctx)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done = r
	return r, nil
}

func (t *tree) make(ctx context.Context) (*root, error) {
	rel, err := t.open(ctx)
	if errors.Is(err, release.ErrBadRelease) {
		return t.bare(err), nil
	}
	if err != nil {
		return nil, err
	}
	in := newInput(rel)
	if err := in.fetchFacts(ctx); err != nil {
		return nil, err
	}
	return t.root(in, buildAll(in, t.views)), nil
}

func (t *tree) opened() *root {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.done
}

// root puts the views into directories. A view's path has one or two elements.
func (t *tree) root(in *input, views []built) *root {
	r := &root{absent: branches{}}
	subs := map[string]*viewDir{}
	nodes := slices.Clone(t.early)
	for _, v := range views {
		top, rest, nested := strings.Cut(v.Name, "/")
		switch {
		case !nested && v.err != nil:
			r.absent[top] = v.err
		case !nested:
			nodes = append(nodes, plan.Folder(top, v.dir))
		default:
			d := subs[top]
			if d == nil {
				d = &viewDir{in: in, absent: branches{}, variants: map[string]plan.Node{}}
				subs[top] = d
			}
			d.add(rest, v)
		}
	}
	for top, d := range subs {
		if len(d.nodes) > 0 {
			d.nodes = plan.NewStatic(append(d.nodes, readmeFile(top, viewLines(d.views)))...)
			nodes = append(nodes, plan.Folder(top, d))
		} else {
			r.absent[top] = d.first
		}
	}
	readme := readmeText(in, views, t.hidden)
	nodes = append(nodes, plan.File("README.md", literal("README.md", []byte(readme))))
	r.nodes = plan.NewStatic(nodes...)
	return r
}

// viewDir is a directory of views, experts/. It also opens variants of its views by name.
type viewDir struct {
	in     *input
	nodes  plan.Static
	absent branches
	first  error // of the absent ones
	views  []built

	mu       sync.Mutex
	variants map[string]plan.Node // guarded by mu: those that were opened
}

func (d *viewDir) add(name string, v built) {
	d.views = append(d.views, v)
	if v.err == nil {
		d.nodes = plan.NewStatic(append(d.nodes, plan.Folder(name, v.dir))...)
		return
	}
	d.absent[name] = v.err
	if d.first == nil {
		d.first = v.err
	}
}

func (d *viewDir) List(ctx context.Context) ([]plan.Node, error) { return d.nodes.List(ctx) }

func (d *viewDir) Lookup(ctx context.Context, name string) (plan.Node, error) {
	if err := d.absent[name]; err != nil {
		return plan.Node{}, err
	}
	if n, err := d.nodes.Lookup(ctx, name); err == nil {
		return n, nil
	}
	return d.variant(name)
}

// variant opens <encoding>-16k, -64k and -2m: blocks that begin on other boundaries.
func (d *viewDir) variant(name string) (plan.Node, error) {
	p := genericVariant(name)
	if p == nil {
		return plan.Node{}, fs.ErrNotExist
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if n, ok := d.variants[name]; ok {
		return n, nil
	}
	dir, _, err := p.build(d.in)
	if err != nil {
		return plan.Node{}, named("experts/"+name, err)
	}
	d.variants[name] = plan.Folder(name, dir)
	return d.variants[name], nil
}
