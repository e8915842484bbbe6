package transform

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"weightfs/fs/plan"
	"weightfs/sources/safetensors"
)

const (
	pageBytes = 4096
	// maxHeader is the longest header that a view's shard has.
	maxHeader = 16_000_000
)

// tensor is one tensor that a view shows. Begin and End are set where it has its place in a file.
type tensor struct {
	safetensors.Tensor
	size   int64
	pieces func() []plan.Piece
}

// mapping says what a view shows of tensor i of the release: nothing, the tensor itself, something made of it, or several. Every shown
// tensor belongs to the shard of the source tensor that it is emitted for. It is pure.
type mapping func(i int32, emit func(tensor)) error

// modelDir is a model directory: a view's shards and their index, and every file of the release that kept lets through. It scans the
// release for names and sizes when it is first listed, and holds numbers only.
type modelDir struct {
	in     *input
	show   mapping
	config func([]byte) ([]byte, error) // edits config.json; nil leaves it
	scan   func() (*shardList, error)
}

// shardList is the shards of a view and what its index says of them.
type shardList struct {
	shards []outShard
	index  indexSize
}

// outShard is one shard of a view: tensors [from, to) of what the view shows of a source shard, in file order.
type outShard struct {
	source, from, to int
	size, data       int64 // of the file, of its tensors
	names            int64 // bytes of the tensors' names as JSON
}

// newModelDir makes a model directory of what show emits.
func newModelDir(in *input, show mapping, config func([]byte) ([]byte, error)) plan.Dir {
	m := &modelDir{in: in, show: show, config: config}
	m.scan = sync.OnceValues(m.scanShards)
	return plan.Lazy{Load: once(m.list)}
}

// once makes a Load that does its pure work one time, success or failure.
func once(make func() (plan.Dir, error)) func(context.Context) (plan.Dir, error) {
	f := sync.OnceValues(make)
	return func(context.Context) (plan.Dir, error) { return f() }
}

func (m *modelDir) list() (plan.Dir, error) {
	list, err := m.scan()
	if err != nil {
		return nil, err
	}
	var files []entry
	for k := range list.shards {
		files = append(files, entry{shardName(k, len(list.shards)), plan.Node{
			Size: list.shards[k].size,
			Open: func(context.Context) (*plan.Plan, error) { return m.shard(list.shards[k]) },
		}})
	}
	files = append(files, list.index.entry(func(add func(string, []tensor)) error { return m.each(list, add) }))
	edited, err := m.edited()
	if err != nil {
		return nil, err
	}
	files = append(files, edited...)
	dir, _ := folder(append(files, m.in.keptFiles()...))
	return dir, nil
}

// configFiles are the files that tell a loader how the weights are to be read: transformers' and Mistral's.
var configFiles = []string{"config.json", "params.json"}

// edited are the configuration files that the view changes.
func (m *modelDir) edited() ([]entry, error) {
	var out []entry
	for _, name := range configFiles {
		text := m.in.Files[name]
		if m.config == nil || text == nil {
			continue
		}
		changed, err := m.config(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if !bytes.Equal(changed, text) {
			out = append(out, entry{name, plan.File("", literal(name, changed))})
		}
	}
	return out, nil
}

// keptFiles are the release's own files that belong into a model directory.
func (in *input) keptFiles() []entry {
	var out []entry
	for i := range in.Listing.Files {
		if kept(in.Listing.Files[i].Path) {
			out = append(out, sourceFile(in.Listing, i))
		}
	}
	return out
}

func literal(name string, text []byte) *plan.Plan {
	return plan.New(plan.Literal{Name: name, Size: int64(len(text)), Bytes: text})
}

// shardName is the name of shard k of n, from 0.
func shardName(k, n int) string { return fmt.Sprintf("model-%05d-of-%05d.safetensors", k+1, n) }

// tensors appends to out, which is empty, what the view shows of source shard s, in the order of its file.
func (m *modelDir) tensors(s int, out []tensor) ([]tensor, error) {
	out = slices.Grow(out, int(m.in.base[s+1]-m.in.base[s]))
	emit := func(t tensor) { out = append(out, t) }
	for i := m.in.base[s]; i < m.in.base[s+1]; i++ {
		if err := m.show(i, emit); err != nil {
			return nil, err
		}
	}
	sortTensors(out)
	return out, nil
}

// sortTensors puts tensors into the order of a file: those of whole pages first, so that each starts on a page; among these and among
// the others wide elements before narrow ones, then by name.
func sortTensors(ts []tensor) {
	slices.SortFunc(ts, func(a, b tensor) int {
		if x, y := a.size%pageBytes != 0, b.size%pageBytes != 0; x != y {
			if y {
				return -1
			}
			return 1
		}
		if x, y := a.DType.Bits(), b.DType.Bits(); x != y {
			return y - x
		}
		return strings.Compare(a.Name, b.Name)
	})
}

// placeTensors sets the offsets of tensors that follow each other from 0 and returns the header's entries and the bytes of data.
func placeTensors(ts []tensor) (entries []safetensors.Tensor, data int64) {
	entries = make([]safetensors.Tensor, len(ts))
	for i := range ts {
		entries[i] = ts[i].Tensor
		entries[i].Begin, entries[i].End = data, data+ts[i].size
		data += ts[i].size
	}
	return entries, data
}

// headerLen is the length of the header of a file with these tensors, and the bytes of their data.
func headerLen(ts []tensor, metadata map[string]string, align int64) (header, data int64, err error) {
	l := safetensors.NewLength(metadata)
	for i := range ts {
		t := ts[i].Tensor
		t.Begin, t.End = data, data+ts[i].size
		data = t.End
		if err := l.Add(&t); err != nil {
			return 0, 0, err
		}
	}
	header, err = l.Bytes(align)
	return header, data, err
}

var ptMetadata = map[string]string{"format": "pt"}

// scanShards finds the shards of every source shard, one on each processor at a time.
func (m *modelDir) scanShards() (*shardList, error) {
	found, errs := make([][]outShard, len(m.in.Shards)), make([]error, len(m.in.Shards))
	var next atomic.Int64
	var work sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		work.Go(func() {
			var ts []tensor
			for s := int(next.Add(1)) - 1; s < len(found); s = int(next.Add(1)) - 1 {
				found[s], ts, errs[s] = m.scanShard(s, ts[:0])
			}
		})
	}
	work.Wait()
	list := &shardList{}
	for s := range found {
		if errs[s] != nil {
			return nil, errs[s]
		}
		list.shards = append(list.shards, found[s]...)
	}
	for k, o := range list.shards {
		list.index.add(shardName(k, len(list.shards)), o.to-o.from, o.names, o.data)
	}
	return list, nil
}

// scanShard is what the view shows of source shard s, as shards; it finds that in the memory of ts, which it returns.
func (m *modelDir) scanShard(s int, ts []tensor) (shards []outShard, _ []tensor, err error) {
	if ts, err = m.tensors(s, ts); err != nil {
		return nil, ts, err
	}
	for from := 0; from < len(ts); {
		n, header, data, err := fit(ts[from:])
		if err != nil {
			return nil, ts, err
		}
		shards = append(shards, outShard{s, from, from + n, header + data, data, nameBytes(ts[from : from+n])})
		from += n
	}
	return shards, ts, nil
}

// fit is the longest run of the first tensors whose header is not longer than maxHeader, at least one tensor: how many they are, and
// the bytes of their header and data.
func fit(ts []tensor) (n int, header, data int64, err error) {
	header, data, err = headerLen(ts, ptMetadata, pageBytes)
	if err == nil && header <= maxHeader {
		return len(ts), header, data, nil
	}
	entries, _ := placeTensors(ts)
	total := int64(pageBytes) // frame, metadata and padding
	for ; n < len(entries); n++ {
		one, err := safetensors.EncodedLen(entries[n:n+1], nil, 1)
		if err != nil {
			return 0, 0, 0, err
		}
		if total += one; total > maxHeader && n > 0 {
			break
		}
	}
	header, data, err = headerLen(ts[:n], ptMetadata, pageBytes)
	return n, header, data, err
}

// shard makes the plan of one shard.
func (m *modelDir) shard(o outShard) (*plan.Plan, error) {
	ts, err := m.tensors(o.source, nil)
	if err != nil {
		return nil, err
	}
	return safetensorsFile(ts[o.from:o.to], ptMetadata, pageBytes)
}

// safetensorsFile is the plan of a file with these tensors in this order.
func safetensorsFile(ts []tensor, metadata map[string]string, align int64) (*plan.Plan, error) {
	entries, _ := placeTensors(ts)
	header, err := safetensors.Encode(entries, metadata, align)
	if err != nil {
		return nil, err
	}
	pieces := make([]plan.Piece, 1, 1+len(ts))
	pieces[0] = plan.Literal{Name: "header", Size: int64(len(header)), Bytes: header}
	for i := range ts {
		pieces = append(pieces, ts[i].pieces()...)
	}
	return plan.New(pieces...), nil
}

// each calls add with the tensors of every shard.
func (m *modelDir) each(list *shardList, add func(file string, ts []tensor)) error {
	var ts []tensor
	for k, o := range list.shards {
		if k == 0 || o.source != list.shards[k-1].source {
			var err error
			if ts, err = m.tensors(o.source, nil); err != nil {
				return err
			}
		}
		add(shardName(k, len(list.shards)), ts[o.from:o.to])
	}
	return nil
}
