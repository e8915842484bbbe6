package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"weightfs/sources"
)

// paths are the shards of a release and the files it leaves out.
func paths(rel *Release) (set, leftOut string) {
	var a, b []string
	for _, s := range rel.Shards {
		a = append(a, s.Path)
	}
	for _, o := range rel.LeftOut {
		b = append(b, o.Path+": "+o.Reason)
	}
	return strings.Join(a, ", "), strings.Join(b, "; ")
}

// TestWeightSet chooses one set of weights from files of several.
func TestWeightSet(t *testing.T) {
	// shards adds files with one tensor each, named after the file.
	shards := func(f *fake, names ...string) *fake {
		for _, n := range names {
			f.shard(t, n, bf16("of "+n, 2))
		}
		return f
	}
	// indexed adds an index of files.
	indexed := func(f *fake, index string, names ...string) *fake {
		var entries []string
		for _, n := range names {
			entries = append(entries, fmt.Sprintf("%q: %q", "of "+n, n))
		}
		return f.file(index, `{"metadata": {}, "weight_map": {`+strings.Join(entries, ", ")+`}}`)
	}
	const a, b = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
	for _, c := range []struct {
		name         string
		f            *fake
		set, leftOut string
	}{
		{"single file", shards(newFake(), "model.safetensors").file("README.md", "x"), "model.safetensors", ""},
		{"shards with index", indexed(shards(newFake(), a, b), "model.safetensors.index.json", a, b), a + ", " + b, ""},
		{"shards without index", shards(newFake(), a, b), a + ", " + b, ""},
		{"shards counted from 0", shards(newFake(), "m-00000-of-00002.safetensors", "m-00001-of-00002.safetensors"), "m-00000-of-00002.safetensors, m-00001-of-00002.safetensors", ""},
		{"consolidated beside shards", indexed(shards(newFake(), a, b, "consolidated.safetensors"), "model.safetensors.index.json", a, b), a + ", " + b,
			"consolidated.safetensors: another copy of the weights: consolidated, not named by model.safetensors.index.json"},
		{"consolidated beside shards, no index", shards(newFake(), a, b, "consolidated.safetensors"), a + ", " + b,
			"consolidated.safetensors: another copy of the weights: consolidated, beside files of the usual layout"},
		{"consolidated alone", shards(newFake(), "consolidated.safetensors"), "consolidated.safetensors", ""},
		{"two indexes", indexed(indexed(shards(newFake(), a, b, "consolidated-00001-of-00001.safetensors"), "consolidated.safetensors.index.json", "consolidated-00001-of-00001.safetensors"), "model.safetensors.index.json", a, b),
			a + ", " + b, "consolidated-00001-of-00001.safetensors: another copy of the weights: consolidated, not named by model.safetensors.index.json"},
		{"two indexes of the usual layout", indexed(indexed(shards(newFake(), a, b, "draft.safetensors"), "draft.safetensors.index.json", "draft.safetensors"), "model.safetensors.index.json", a, b),
			a + ", " + b, "draft.safetensors: not named by model.safetensors.index.json"},
		{"original, metal and pickles", shards(newFake(), "model.safetensors", "original/model.safetensors").file("metal/model.bin", "x").file("pytorch_model.bin", "x").file("model.gguf", "x").file("config.json", "{}"),
			"model.safetensors", "metal/model.bin: not a safetensors file; model.gguf: not a safetensors file; " +
				"original/model.safetensors: another copy or part: in the folder original, beside the set at the root; pytorch_model.bin: not a safetensors file"},
		{"a variant", shards(newFake(), "model.safetensors", "model.fp16.safetensors"), "model.safetensors", "model.fp16.safetensors: a variant of model.safetensors"},
		{"separate parts", shards(newFake(), "model.safetensors", "mtp.safetensors"), "model.safetensors, mtp.safetensors", ""},
		{"a file the index does not name", indexed(shards(newFake(), a, b, "mtp.safetensors"), "model.safetensors.index.json", a, b), a + ", " + b, "mtp.safetensors: not named by model.safetensors.index.json"},
		{"index of a folder below", indexed(shards(newFake(), "model.safetensors", "sub/x.safetensors"), "sub/model.safetensors.index.json", "sub/x.safetensors"), "model.safetensors",
			"sub/x.safetensors: another copy or part: in the folder sub, beside the set at the root"},
		{"an index of another name", indexed(shards(newFake(), "w1.safetensors", "w2.safetensors"), "weights.safetensors.index.json", "w1.safetensors"), "w1.safetensors", "w2.safetensors: not named by weights.safetensors.index.json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			set, leftOut := paths(c.f.open(t))
			if set != c.set || leftOut != c.leftOut {
				t.Errorf("set %s\nwant %s\nleft out %s\nwant %s", set, c.set, leftOut, c.leftOut)
			}
		})
	}
}

// TestMalformed opens releases whose files are at fault. The error says that it is the release's fault, and where.
func TestMalformed(t *testing.T) {
	const index = "model.safetensors.index.json"
	good := func() *fake {
		return newFake().shard(t, "a.safetensors", bf16("x", 2, 3)).shard(t, "b.safetensors", bf16("y", 4))
	}
	truncated := func(f *fake, path string, by int64) *fake {
		f.sizes[path] -= by
		return f
	}
	for _, c := range []struct {
		name string
		f    *fake
		says []string
	}{
		{"no weights", newFake().file("model.gguf", "x"), []string{"no .safetensors file", "fake"}},
		{"truncated shard", truncated(good(), "a.safetensors", 5), []string{`shard "a.safetensors"`, "5 bytes are missing"}},
		{"shard with bytes after the data", truncated(good(), "b.safetensors", -3), []string{`shard "b.safetensors"`, "3 bytes are left over"}},
		{"header longer than the file", good().file("c.safetensors", "\xe8\x03\x00\x00\x00\x00\x00\x00{}"), []string{`shard "c.safetensors"`, "1000", "10"}},
		{"header over the cap", good().file("c.safetensors", "\x00\x00\x00\x00\x01\x00\x00\x00{}"), []string{`shard "c.safetensors"`, "4294967296"}},
		{"header is no JSON", good().file("c.safetensors", "\x02\x00\x00\x00\x00\x00\x00\x00{]"), []string{`shard "c.safetensors"`}},
		{"empty shard", good().file("c.safetensors", ""), []string{`shard "c.safetensors"`, "0 bytes"}},
		{"a numbered shard is missing", newFake().shard(t, "model-00001-of-00003.safetensors", bf16("x", 1)).shard(t, "model-00003-of-00003.safetensors", bf16("y", 1)), []string{`"model-00002-of-00003.safetensors" is missing`}},
		{"index names a missing shard", good().file(index, `{"weight_map": {"x": "a.safetensors", "z": "gone.safetensors"}}`), []string{index, `tensor "z"`, `shard "gone.safetensors"`}},
		{"index names a path", good().file(index, `{"weight_map": {"x": "../a.safetensors"}}`), []string{index, `"../a.safetensors"`}},
		{"index names a dirty path", good().file(index, `{"weight_map": {"x": "./a.safetensors"}}`), []string{index, `"./a.safetensors"`}},
		{"index names an absolute path", good().file(index, `{"weight_map": {"x": "/a.safetensors"}}`), []string{index, `"/a.safetensors"`}},
		{"index names another kind of file", good().file("w.bin", "x").file(index, `{"weight_map": {"x": "w.bin"}}`), []string{index, `"w.bin"`}},
		{"index without weight_map", good().file(index, `{"metadata": {}}`), []string{index, "no weight_map"}},
		{"index with an empty weight_map", good().file(index, `{"weight_map": {}}`), []string{index, "names no shard"}},
		{"index with two weight_maps", good().file(index, `{"weight_map": {"x": "a.safetensors"}, "weight_map": {}}`), []string{index, "weight_map occurs twice"}},
		{"index names a tensor twice", good().file(index, `{"weight_map": {"x": "a.safetensors", "x": "a.safetensors"}}`), []string{index, `tensor "x" occurs twice`}},
		{"index is cut", good().file(index, `{"weight_map": {"x": "a.safe`), []string{index, "at byte"}},
		{"index is empty", good().file(index, ``), []string{index, "at byte 0"}},
		{"index with text behind", good().file(index, `{"weight_map": {"x": "a.safetensors"}} {}`), []string{index, "after the end"}},
		{"index is an array", good().file(index, `[]`), []string{index, "expected '{'"}},
		{"weight_map of numbers", good().file(index, `{"weight_map": {"x": 1}}`), []string{index, `tensor "x"`}},
		{"weight_map is null", good().file(index, `{"weight_map": null}`), []string{index}},
		{"index with NaN", good().file(index, `{"metadata": NaN, "weight_map": {"x": "a.safetensors"}}`), []string{index, "expected a value"}},
		{"index with a comma too many", good().file(index, `{"weight_map": {"x": "a.safetensors",}}`), []string{index}},
		{"index with a lone surrogate", good().file(index, `{"weight_map": {"\ud800": "a.safetensors"}}`), []string{index, "surrogate"}},
		{"index that is not UTF-8", good().file(index, "{\"weight_map\": {\"\xff\": \"a.safetensors\"}}"), []string{index, "UTF-8"}},
		{"index nested without end", good().file(index, `{"metadata": {"a":`+strings.Repeat("[", 1000)), []string{index, "nested deeper"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Open(context.Background(), c.f.listing(), c.f)
			if !errors.Is(err, ErrBadRelease) {
				t.Fatalf("error %v is not ErrBadRelease", err)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("error %q does not say %q", err, s)
				}
			}
		})
	}
}

// TestIndexDisagrees opens a release whose index is wrong about tensors; the headers are right.
func TestIndexDisagrees(t *testing.T) {
	rel := newFake().shard(t, "a.safetensors", bf16("x", 2), bf16("moved", 3)).shard(t, "b.safetensors", bf16("y", 4), bf16("silent", 1)).
		file("model.safetensors.index.json", `{"metadata": {"total_size": 21, "format": "pt", "total_parameters": 1.5e1}, "other": [1, {"a": null}],
			"weight_map": {"x": "a.safetensors", "y": "b.safetensors", "moved": "b.safetensors", "gone": "a.safetensors", "\u0067one\n2": "b.safetensors"}}`).open(t)
	want := []string{
		`index model.safetensors.index.json names tensor "gone" in shard "a.safetensors", whose header does not have it`,
		`index model.safetensors.index.json names tensor "gone\n2" in shard "b.safetensors", whose header does not have it`,
		`index model.safetensors.index.json names tensor "moved" in shard "b.safetensors", but it is in "a.safetensors"`,
		`index model.safetensors.index.json does not name tensor "silent", which is in shard "b.safetensors"`,
		`index model.safetensors.index.json says total_size 21, the tensors have 20 bytes`,
	}
	if !slices.Equal(rel.Notes, want) {
		t.Errorf("notes\n%s\nwant\n%s", strings.Join(rel.Notes, "\n"), strings.Join(want, "\n"))
	}
	if ref, ok := rel.Lookup("moved"); !ok || rel.Shards[ref.Shard].Path != "a.safetensors" {
		t.Errorf("moved is at %v, %t", ref, ok)
	}
	if _, ok := rel.Lookup("gone"); ok {
		t.Error("a tensor that only the index has was found")
	}
}

// TestIndexInShort: what an index says is compared in short, and in full, which asks for it again, exactly if there is something to note.
func TestIndexInShort(t *testing.T) {
	const index = "model" + indexExt
	shards := []string{"a.safetensors", "b.safetensors"}
	rapid.Check(t, func(rt *rapid.T) {
		f := newFake()
		names := []string{"x", "y", "z", "x.y", "\u00e9"}
		var in [2][]ten
		var right []string // the entries of an index that is right
		for _, n := range names {
			k := rapid.IntRange(0, 1).Draw(rt, "shard")
			in[k] = append(in[k], bf16(n, 2))
			right = append(right, fmt.Sprintf("%q: %q", n, shards[k]))
		}
		for k, s := range shards {
			f.shard(t, s, append(in[k], bf16("of "+s, 1))...)
			right = append(right, fmt.Sprintf("%q: %q", "of "+s, s))
		}
		entries := rapid.Permutation(right).Draw(rt, "entries")
		for range rapid.IntRange(0, 2).Draw(rt, "changes") {
			at := rapid.IntRange(0, len(entries)-1).Draw(rt, "at")
			name, shard := rapid.SampledFrom(append(names, "gone")).Draw(rt, "name"), rapid.SampledFrom(shards).Draw(rt, "shard")
			entries[at] = fmt.Sprintf("%q: %q", name, shard)
		}
		size := rapid.SampledFrom([]string{"", `"total_size": 24`, `"total_size": 25`}).Draw(rt, "size")
		text := `{"metadata": {` + size + `}, "weight_map": {` + strings.Join(entries, ", ") + `}}`
		rel, err := Open(t.Context(), f.file(index, text).listing(), f)
		keys, twice := map[string]bool{}, false
		for _, e := range entries {
			key, _, _ := strings.Cut(e, ": ")
			twice = twice || keys[key] && key != `"gone"`
			keys[key] = true
		}
		if twice || err != nil {
			if !twice || !errors.Is(err, ErrBadRelease) {
				rt.Fatalf("%s: error %v", text, err)
			}
			return
		}
		want, err := rel.differences([]byte(text))
		if err != nil || !slices.Equal(rel.Notes, want) {
			rt.Fatalf("%s: notes %q, want %q, error %v", text, rel.Notes, want, err)
		}
		asked := 0
		for _, what := range f.asked {
			if what == "file "+index {
				asked++
			}
		}
		if again := len(want) > 0; again != (asked == 2) {
			rt.Fatalf("%s: asked for the index %d times, %d notes", text, asked, len(want))
		}
	})
}

// TestManyNotes bounds what a long disagreement writes.
func TestManyNotes(t *testing.T) {
	var entries []string
	for i := range 1000 {
		entries = append(entries, fmt.Sprintf(`"gone%d": "a.safetensors"`, i))
	}
	rel := newFake().shard(t, "a.safetensors", bf16("x", 2)).file("model.safetensors.index.json", `{"weight_map": {"x": "a.safetensors", `+strings.Join(entries, ",")+`}}`).open(t)
	if len(rel.Notes) != maxNotes+1 || rel.Notes[maxNotes] != "992 more notes about tensors that no header has" {
		t.Errorf("%d notes, the last one %q", len(rel.Notes), rel.Notes[len(rel.Notes)-1])
	}
}

// failing is a reader that fails at one file.
type failing struct {
	*fake
	path string
	err  error
}

func (f failing) Header(ctx context.Context, path string, buf []byte) ([]byte, error) {
	if path == f.path {
		return nil, f.err
	}
	return f.fake.Header(ctx, path, buf)
}

func (f failing) ReadFile(ctx context.Context, path string, max int64) ([]byte, error) {
	if path == f.path {
		return nil, f.err
	}
	return f.fake.ReadFile(ctx, path, max)
}

// TestReaderFails keeps the failures of fetching apart from faults of the release.
func TestReaderFails(t *testing.T) {
	base := newFake().shard(t, "a.safetensors", bf16("x", 2)).file("config.json", "{}").file("model.safetensors.index.json", `{"weight_map": {"x": "a.safetensors"}}`)
	for _, path := range []string{"a.safetensors", "config.json", "model.safetensors.index.json"} {
		f := failing{base, path, &sources.Error{Op: "read", Path: path, Err: sources.ErrTemporary}}
		_, err := Open(context.Background(), f.listing(), f)
		if !errors.Is(err, sources.ErrTemporary) || errors.Is(err, ErrBadRelease) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v", path, err)
		}
	}
	bad := failing{base, "a.safetensors", &sources.Error{Op: "read", Path: "a.safetensors", Len: 8, Err: sources.ErrCorrupt}}
	if _, err := Open(context.Background(), bad.listing(), bad); !errors.Is(err, ErrBadRelease) {
		t.Errorf("a header that the reader refuses: error %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	f := failing{base, "a.safetensors", ctx.Err()}
	if _, err := Open(ctx, f.listing(), f); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// TestAsksOnce counts what opening asks for: the index, the configuration and one header a shard.
func TestAsksOnce(t *testing.T) {
	f := newFake().shard(t, "a.safetensors", bf16("x", 2)).shard(t, "b.safetensors", bf16("y", 2)).file("config.json", "{}").file("tokenizer.json", "{}").file("hf_quant_config.json", "{}").
		file("model.safetensors.index.json", `{"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}`)
	f.open(t)
	slices.Sort(f.asked)
	want := []string{"file config.json", "file hf_quant_config.json", "file model.safetensors.index.json", "header a.safetensors", "header b.safetensors"}
	if !slices.Equal(f.asked, want) {
		t.Errorf("asked for %v", f.asked)
	}
}

// patient is a reader that has the index only when so many headers were asked for.
type patient struct {
	*fake
	left atomic.Int32
	all  chan struct{}
}

func (p *patient) Header(ctx context.Context, path string, buf []byte) ([]byte, error) {
	if p.left.Add(-1) == 0 {
		close(p.all)
	}
	return p.fake.Header(ctx, path, buf)
}

func (p *patient) ReadFile(ctx context.Context, path string, max int64) ([]byte, error) {
	if strings.HasSuffix(path, indexExt) {
		select {
		case <-p.all:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return p.fake.ReadFile(ctx, path, max)
}

// TestEarlyHeaders: the headers of the shards that an index most likely names are fetched while it is read, each once if it names these; what
// it names is the release.
func TestEarlyHeaders(t *testing.T) {
	const a, b, other = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "other.safetensors"
	for _, c := range []struct {
		name  string
		index []string
		early int
	}{{"all", []string{a, b}, 2}, {"one of them", []string{a}, 2}, {"another", []string{a, other}, 2}} {
		p := &patient{fake: newFake(), all: make(chan struct{})}
		p.left.Store(int32(c.early))
		var entries []string
		for _, name := range []string{a, b, other} {
			p.shard(t, name, bf16("of "+name, 2))
		}
		for _, name := range c.index {
			entries = append(entries, fmt.Sprintf("%q: %q", "of "+name, name))
		}
		p.file("model"+indexExt, `{"weight_map": {`+strings.Join(entries, ", ")+`}}`)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		rel, err := Open(ctx, p.listing(), p)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if set, _ := paths(rel); set != strings.Join(c.index, ", ") || rel.Len() != len(c.index) || len(rel.Notes) != 0 {
			t.Errorf("%s: shards %s, %d tensors, notes %q", c.name, set, rel.Len(), rel.Notes)
		}
		if slices.Equal(c.index, []string{a, b}) && len(p.asked) != 3 {
			t.Errorf("%s: asked for %v", c.name, p.asked)
		}
	}
}

// TestFacts reads side tensors in joined regions.
func TestFacts(t *testing.T) {
	f := newFake().shard(t, "a.safetensors", bf16("n0", 2), bf16("n1", 3), bf16("big", 1<<20), bf16("n2", 4), bf16("gap", 100), bf16("n3", 1)).shard(t, "b.safetensors", bf16("m", 5), bf16("none", 0))
	rel := f.open(t)
	f.asked = nil
	var refs []Ref
	for _, n := range []string{"m", "n3", "n0", "n2", "n1", "n0", "none"} {
		ref, _ := rel.Lookup(n)
		refs = append(refs, ref)
	}
	facts, err := rel.Facts(context.Background(), refs)
	if err != nil {
		t.Fatal(err)
	}
	if len(facts) != 6 {
		t.Errorf("%d facts", len(facts))
	}
	for ref, data := range facts {
		x := rel.Tensor(ref)
		if int64(len(data)) != x.End-x.Start {
			t.Errorf("%s has %d bytes", x.Name, len(data))
		}
		for i, b := range data {
			if b != dataByte(x.Start+int64(i)) {
				t.Fatalf("%s: byte %d is wrong", x.Name, i)
			}
		}
	}
	if len(f.asked) != 3 {
		t.Errorf("reads %v, want three regions", f.asked)
	}
	big, _ := rel.Lookup("big")
	many := one(t, "", bf16("x", 9<<20), bf16("y", 9<<20))
	x, _ := many.Lookup("x")
	y, _ := many.Lookup("y")
	if _, err := many.Facts(context.Background(), []Ref{x, y}); err == nil || !strings.Contains(err.Error(), `"y"`) {
		t.Errorf("36 MB of facts: error %v", err)
	}
	bad := failing{f, "", nil}
	rel.reader = badReads{bad, io.ErrUnexpectedEOF}
	if _, err := rel.Facts(context.Background(), []Ref{big}); !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "a.safetensors") {
		t.Errorf("error %v", err)
	}
}

type badReads struct {
	Reader
	err error
}

func (b badReads) ReadAt(context.Context, string, []byte, int64) error { return b.err }
