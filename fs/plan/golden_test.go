package plan

import (
	"bytes"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the goldens in testdata")

// golden compares text with testdata/name, or writes it with -update.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if text != string(want) {
		t.Errorf("%s differs; got:\n%s", path, text)
	}
}

// logStore has files of any size, all zeros, and writes down what reaches it.
type logStore struct {
	mu  sync.Mutex // guards log
	log bytes.Buffer
}

func (s *logStore) MaxGather() int64 { return 64 << 20 }

func (s *logStore) Gather(_ context.Context, reads []Read, ahead []Span) error {
	line, _ := describeGather(reads, ahead)
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(&s.log, "  "+line)
	return nil
}

const (
	kib = int64(1) << 10
	mib = int64(1) << 20
)

// shard is a release file that passes through with its tensors known: header, two norms, two tensors of moderate size, one large one.
func shard() *Plan {
	ends := []int64{4 * kib, 12 * kib, 20 * kib, 30 * mib, 60 * mib, 160 * mib}
	var pieces []Piece
	at := int64(0)
	for _, end := range ends {
		pieces = append(pieces, Copy{Span{0, at, end}})
		at = end
	}
	return New(pieces...)
}

// expertPlan is block i of a toy: a header of gate and up in one file and down in another, 3 MiB each, padded.
func expertPlan(i int64) *Plan {
	n := 3*mib - 100
	return NewBlock(
		Copy{Span{0, 8 + 2*i*n, 8 + (2*i+1)*n}}, Zero{100},
		Copy{Span{0, 8 + (2*i+1)*n, 8 + (2*i+2)*n}}, Zero{100},
		Copy{Span{1, 8 + i*n, 8 + (i+1)*n}}, Zero{100},
	)
}

func expertBlocks() *Plan {
	return New(Repeat{Name: "expert", N: 1000, Stride: 9 * mib, At: expertPlan})
}

// dequantized is a header of its own, a decoded tensor of moderate size and a decoded one that is cut.
func dequantized() *Plan {
	small := sumCodec{rows: 1000, row: 2000, tile: 2000}
	large := sumCodec{rows: 30_000, row: 10_000, tile: 10_000}
	return New(
		Literal{Name: "header", Size: 4096, Render: func() []byte { return make([]byte, 4096) }},
		Decode{Codec: small, Inputs: []Span{{0, 100, 100 + 1_000_000}, {0, 2_000_000, 2_001_000}}, Size: small.Len()},
		Decode{Codec: large, Inputs: []Span{{1, 100, 100 + 150_000_000}, {1, 150_000_100, 150_030_100}}, Size: large.Len()},
	)
}

// TestRecordedIO: what scripts of reads send to the store. A script line is "read OFF LEN" or "sweep OFF LEN STEP", which is reads of
// STEP bytes one after the other.
func TestRecordedIO(t *testing.T) {
	plain := New(Copy{Span{0, 0, 500 * mib}})
	for _, test := range []struct {
		name, why string
		p         *Plan
		script    []string
	}{
		{"stream", "a plain file from the start: units double, then the window", plain, []string{"sweep 0 4194304 131072"}},
		{"stream-1m", "the same units whatever the size of the reads", plain, []string{"sweep 0 4194304 1048576"}},
		{"lone", "lone touches of a plain file ask for themselves only", plain,
			[]string{"read 300000000 4096", "read 100000000 4096", "read 16777216 4096", "read 400000000 4096"}},
		{"two-readers", "two readers interleaved each have a stream", plain,
			[]string{"read 0 131072", "read 267255808 131072", "read 131072 262144", "read 267386880 131072", "read 393216 524288", "read 267517952 131072", "read 917504 131072"}},
		{"middle", "a reader that begins inside a unit gets as much again as it read, then units", plain, []string{"sweep 300023808 14680064 131072"}},
		{"shard", "norms together, tensors whole, the large one in steps when a reader arrives from before", shard(),
			[]string{"read 0 4096", "read 4096 100", "read 12288 100", "read 10000000 4096", "read 100000000 4096", "read 100004096 4096", "read 83886080 1048576", "read 62914560 131072"}},
		{"block", "touching a block in the middle asks for all of it, once; the neighbour is not asked for", expertBlocks(),
			[]string{"read 99614720 131072", "read 99745792 131072", "read 94371840 131072", "read 500000000 4096"}},
		{"blocks", "blocks one after the other: from the third on, those to come", expertBlocks(), []string{"sweep 0 31457280 1048576"}},
		{"decode", "header alone, then weights and scales together", dequantized(),
			[]string{"read 0 4096", "read 1000000 131072", "read 1131072 131072", "read 2004096 131072", "read 2135168 131072", "read 200000000 4096"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &logStore{}
			fmt.Fprintf(&s.log, "# %s\n", test.why)
			r := NewReader(s, 0)
			for _, line := range test.script {
				run(t, r, test.p, s, line)
			}
			golden(t, "io-"+test.name+".txt", s.log.String())
		})
	}
}

func run(t *testing.T, r *Reader, p *Plan, s *logStore, line string) {
	var off, n, step int64
	fmt.Fprintln(&s.log, line)
	if _, err := fmt.Sscanf(line, "sweep %d %d %d", &off, &n, &step); err != nil {
		if _, err := fmt.Sscanf(line, "read %d %d", &off, &n); err != nil {
			t.Fatalf("script line %q: %v", line, err)
		}
		step = n
	}
	for end := off + n; off < end; off += step {
		if _, err := r.ReadAt(t.Context(), p, make([]byte, step), off); err != nil {
			t.Fatal(err)
		}
	}
}

// TestText: the text of a plan with every kind of piece.
func TestText(t *testing.T) {
	c := sumCodec{rows: 4, row: 10, tile: 10}
	p := New(
		Literal{Name: "header", Size: 3, Bytes: []byte("abc")},
		Zero{5},
		Copy{Span{0, 10, 20}},
		Rows{First: Span{1, 100, 108}, Stride: 32, Count: 3},
		Decode{Codec: c, Inputs: []Span{{0, 0, 20}, {1, 4, 8}}, Off: 10, Size: 20},
		Repeat{Name: "expert", N: 2, Stride: 12, At: func(i int64) *Plan { return New(Copy{Span{2, 8 * i, 8*i + 8}}, Zero{4}) }},
	)
	names := func(i int) string { return []string{"a.safetensors", "b c.safetensors", "d\n.bin"}[i] }
	var b strings.Builder
	if err := Text(&b, p, names); err != nil {
		t.Fatal(err)
	}
	golden(t, "text.txt", b.String())

	sum, err := Digest(p, names)
	want := sha256.Sum256([]byte(strings.Replace(b.String(), "literal header\n", "literal header\nabc", 1)))
	if err != nil || sum != want {
		t.Errorf("digest %x, %v; want %x", sum, err, want)
	}
}

// TestDigestSeesContent: a literal's content is part of the digest, and a literal that does not keep to its size has none.
func TestDigestSeesContent(t *testing.T) {
	literal := func(s string) *Plan {
		return New(Literal{Name: "x", Size: 3, Render: func() []byte { return []byte(s) }})
	}
	a, _ := Digest(literal("abc"), fileNames)
	b, _ := Digest(literal("abd"), fileNames)
	if a == b {
		t.Error("the digest does not depend on the content")
	}
	if _, err := Digest(literal("abcd"), fileNames); err == nil {
		t.Error("a literal of 4 bytes stands for 3")
	}
}

// TestTilesAreDecodedOnce: sequential small reads of a codec with large tiles gather every tile's inputs once.
func TestTilesAreDecodedOnce(t *testing.T) {
	files := randomFiles(1, 1<<20)
	c := sumCodec{rows: 100, row: 10_000, tile: 100_000}
	p := New(Decode{Codec: c, Inputs: []Span{{0, 0, 500_000}, {0, 500_000, 500_100}}, Size: c.Len()})
	s := &memStore{files: files}
	r := NewReader(s, 100_000)
	want := write(p, files)
	for off := int64(0); off < p.Size; off += 10_000 {
		checkRead(t, r, p, want, make([]byte, 10_000), off)
	}
	var demanded int
	for _, line := range s.take() {
		if !strings.HasPrefix(line, "gather ahead") {
			demanded++
		}
	}
	if demanded != 10 {
		t.Errorf("%d gathers for 10 tiles", demanded)
	}
}

// TestReadAllocations: a read of 128 KiB costs a handful of small allocations.
func TestReadAllocations(t *testing.T) {
	files := randomFiles(2, 4<<20)
	c := sumCodec{rows: 1000, row: 2000, tile: 2000}
	r := NewReader(&quietStore{files}, 0)
	dst := make([]byte, 128<<10)
	for name, test := range map[string]struct {
		p   *Plan
		max float64
	}{
		"copy":   {New(Copy{Span{0, 0, 4 << 20}}), 1},
		"decode": {New(Decode{Codec: c, Inputs: []Span{{0, 0, 1_000_000}, {1, 0, 1000}}, Size: c.Len()}), 4},
		"rows":   {New(Rows{First: Span{0, 0, 512}, Stride: 1024, Count: 4000}), 1},
	} {
		ctx := t.Context()
		got := testing.AllocsPerRun(100, func() {
			if _, err := r.ReadAt(ctx, test.p, dst, 1<<20); err != nil {
				t.Fatal(err)
			}
		})
		if got > test.max {
			t.Errorf("%s: %v allocations a read, at most %v are allowed", name, got, test.max)
		}
	}
}

// quietStore is memStore without its log.
type quietStore struct{ files [][]byte }

func (quietStore) MaxGather() int64 { return 0 }

func (s *quietStore) Gather(_ context.Context, reads []Read, _ []Span) error {
	for _, r := range reads {
		copy(r.Dst, s.files[r.Span.File][r.Span.Start:r.Span.End])
	}
	return nil
}
