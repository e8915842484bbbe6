package transform

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"

	"weightfs/fs/plan"
	"weightfs/transform/quant"
)

// layers is layers/: the kept files of the release, splitted_model/<module>.safetensors with <module>.safetensors.done beside each,
// and an index of them. AirLLM takes such a directory as split already.
type layers struct {
	in      *input
	modules func() []layerModule
}

// layerModule is one file: the tensors of a module, by number.
type layerModule struct {
	name    string
	tensors []int32
}

// layersDir is layers/.
func layersDir(in *input) (plan.Dir, cost, error) {
	if in.unsafe > 0 {
		return nil, cost{}, absent(in.unsafeFirst, "its name cannot stand in a path")
	}
	d := &layers{in: in}
	d.modules = sync.OnceValue(d.group)
	n := total(in.sums().native)
	return plan.Lazy{Load: once(d.list)}, cost{n, n}, nil
}

// moduleOf is the name of the file that a tensor goes to: its name up to the first number, else its module.
func moduleOf(name string) string {
	parts := strings.Split(name, ".")
	for k, p := range parts {
		if _, err := strconv.Atoi(p); err == nil && k+1 < len(parts) {
			return strings.Join(parts[:k+1], ".")
		}
	}
	if module, suffix := quant.Split(name); suffix != "" && suffix[0] != '_' {
		return module
	}
	if k := strings.LastIndexByte(name, '.'); k > 0 {
		return name[:k]
	}
	return name
}

func (d *layers) group() []layerModule {
	byName := map[string]int{}
	var out []layerModule
	for i := range d.in.base[len(d.in.Shards)] {
		name := moduleOf(d.in.source(i).Name)
		k, ok := byName[name]
		if !ok {
			k = len(out)
			byName[name] = k
			out = append(out, layerModule{name: name})
		}
		out[k].tensors = append(out[k].tensors, i)
	}
	slices.SortFunc(out, func(a, b layerModule) int { return strings.Compare(a.name, b.name) })
	return out
}

// tensors are those of one file, in its order.
func (d *layers) tensors(m layerModule) []tensor {
	out := make([]tensor, len(m.tensors))
	for k, i := range m.tensors {
		out[k] = copied(d.in.source(i))
	}
	sortTensors(out)
	return out
}

// path is where the file of a module stands.
func (m layerModule) path() string { return "splitted_model/" + m.name + ".safetensors" }

func (d *layers) list() (plan.Dir, error) {
	var out []entry
	var index indexSize
	for _, m := range d.modules() {
		ts := d.tensors(m)
		header, data, err := headerLen(ts, ptMetadata, pageBytes)
		if err != nil {
			return nil, err
		}
		index.add(m.path(), len(ts), nameBytes(ts), data)
		out = append(out,
			entry{m.path(), plan.Node{Size: header + data, Open: func(context.Context) (*plan.Plan, error) {
				return safetensorsFile(d.tensors(m), ptMetadata, pageBytes)
			}}},
			entry{m.path() + ".done", plan.File("", literal("done", nil))})
	}
	out = append(out, index.entry(func(add func(string, []tensor)) error {
		for _, m := range d.modules() {
			add(m.path(), d.tensors(m))
		}
		return nil
	}))
	dir, _ := folder(append(out, d.in.keptFiles()...))
	return dir, nil
}

// safePath says whether every dotted component of a tensor's name may stand in a path: 1 to 200 letters, digits and _+@-.
func safePath(name string) bool {
	long := 0 // of the component
	for i := range len(name) {
		switch c := name[i]; {
		case c == '.' && long > 0:
			long = 0
		case long == 200 || !inPath[c]:
			return false
		default:
			long++
		}
	}
	return long > 0
}

// inPath has the bytes of a component.
var inPath = func() (ok [256]bool) {
	for c := range ok {
		ok[c] = isAlnum(byte(c)) || strings.IndexByte("_+@-", byte(c)) >= 0
	}
	return ok
}()
