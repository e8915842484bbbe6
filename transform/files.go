package transform

import (
	"context"
	"path"
	"slices"
	"sort"
	"strings"

	"weightfs/fs/plan"
	"weightfs/sources/release"
)

// weightExts are the extensions of files that hold weights, of any framework.
var weightExts = map[string]bool{
	".safetensors": true, ".bin": true, ".pt": true, ".pth": true, ".gguf": true, ".onnx": true, ".onnx_data": true, ".h5": true,
	".msgpack": true,
}

// sideFiles are the files beside config.json that describe a quantization: ModelOpt's, old GPTQ's, old AWQ's.
var sideFiles = map[string]bool{"hf_quant_config.json": true, "quantize_config.json": true, "quant_config.json": true}

// kept says whether a model directory holds the release's file of that path: whether it is neither a weight file nor an index nor a
// quantization side file.
func kept(p string) bool {
	base := strings.ToLower(path.Base(p))
	return !weightExts[path.Ext(base)] && !strings.HasSuffix(base, ".index.json") && !sideFiles[base]
}

// sourceFile is file number i of the listing, as it is.
func sourceFile(l *release.Listing, i int) entry {
	size := l.Files[i].Size
	p := plan.New(plan.Copy{Span: plan.Span{File: i, End: size}})
	return entry{path: l.Files[i].Path, node: plan.File(path.Base(l.Files[i].Path), p)}
}

// entry is a file, or a directory that is complete, and where it goes.
type entry struct {
	path string
	node plan.Node // its name is that of the path's last element, whatever it says
}

// folder makes a directory of files by their paths. Of two that cannot stand beside each other (one path twice, or below a file) the
// earlier stays; hidden counts the others and the paths that are no clean relative paths.
func folder(files []entry) (dir plan.Static, hidden int) {
	root := branch{}
	for _, f := range files {
		if !root.add(strings.Split(f.path, "/"), f.node) {
			hidden++
		}
	}
	return root.dir(), hidden
}

// plus is a directory with one more entry, whose name no other has.
type plus struct {
	plan.Dir
	more plan.Node
}

func (d plus) List(ctx context.Context) ([]plan.Node, error) {
	nodes, err := d.Dir.List(ctx)
	if err != nil {
		return nil, err
	}
	return plan.NewStatic(append(slices.Clone(nodes), d.more)...), nil
}

func (d plus) Lookup(ctx context.Context, name string) (plan.Node, error) {
	if name == d.more.Name {
		return d.more, nil
	}
	return d.Dir.Lookup(ctx, name)
}

// branch is a directory while it is made: a name has a file, or a branch.
type branch map[string]leaf

type leaf struct {
	node plan.Node
	sub  branch
}

func (b branch) add(parts []string, n plan.Node) bool {
	name := parts[0]
	if name == "" || name == "." || name == ".." || strings.Contains(name, "\x00") {
		return false
	}
	old, taken := b[name]
	if len(parts) == 1 {
		if taken {
			return false
		}
		n.Name = name
		b[name] = leaf{node: n}
		return true
	}
	if taken && old.sub == nil {
		return false
	}
	sub := old.sub
	if !taken {
		sub = branch{}
	}
	if !sub.add(parts[1:], n) {
		return false
	}
	b[name] = leaf{sub: sub}
	return true
}

func (b branch) dir() plan.Static {
	out := make(plan.Static, 0, len(b))
	for name, l := range b {
		if l.sub != nil {
			l.node = plan.Folder(name, l.sub.dir())
		}
		out = append(out, l.node)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}
