//go:build !purego

package quant

import (
	"bytes"
	"context"
	"io"
	"sync/atomic"
	"testing"

	"weightfs/cache"
	"weightfs/fs/plan"
	"weightfs/sources"
)

// counted is a source whose files are in memory. It counts the bytes that are read.
type counted struct {
	listing sources.Listing
	files   [][]byte
	bytes   atomic.Int64
}

type countedBlob struct {
	*counted
	i int
}

func (c *counted) List(context.Context) (*sources.Listing, error) { return &c.listing, nil }

func (c *counted) Open(_ context.Context, path string) (sources.Blob, error) {
	return countedBlob{c, c.listing.Find(path)}, nil
}

func (b countedBlob) Size() int64    { return int64(len(b.files[b.i])) }
func (b countedBlob) ID() sources.ID { return sources.ID{byte(b.i + 1)} }
func (b countedBlob) Close() error   { return nil }
func (b countedBlob) Stream(_ context.Context, off, n int64) (io.ReadCloser, error) {
	b.bytes.Add(n)
	return io.NopCloser(bytes.NewReader(b.files[b.i][off : off+n])), nil
}

// TestSourceBytes reads the BF16 tensor of every format from start to end, as the kernel of an ordinary user asks for it, with twice the largest input as
// memory and nothing on disk: at most 1.1 times the inputs' bytes come from the source, whatever way the weights are packed.
func TestSourceBytes(t *testing.T) {
	for _, g := range benchGroups(1024, 4096) {
		t.Run(g.name, func(t *testing.T) {
			m, in := recognise(t, g.files, g.config, g.metadata)
			read, all := sequential(t, m.Codec, in)
			if want := whole(t, m.Codec, in); !bytes.Equal(read.data, want) {
				t.Error("what was read is not what the codec makes")
			}
			if float64(read.source) > 1.1*float64(all) {
				t.Errorf("%d bytes of the source for %d bytes of inputs", read.source, all)
			}
		})
	}
}

type reading struct {
	data   []byte
	source int64
}

// sequential reads a codec's output through a cache, and says how many bytes the inputs have.
func sequential(t *testing.T, c plan.Codec, in [][]byte) (r reading, all int64) {
	t.Helper()
	src := &counted{files: in, listing: sources.Listing{Name: "memory", Complete: true}}
	piece := plan.Decode{Codec: c, Size: c.Len()}
	var largest int64
	for i, b := range in {
		n := int64(len(b))
		src.listing.Files = append(src.listing.Files, sources.Entry{Path: string(rune('a' + i)), Size: n})
		piece.Inputs = append(piece.Inputs, plan.Span{File: i, End: n})
		largest, all = max(largest, n), all+n
	}
	store, err := cache.New(cache.Options{Memory: max(2*largest, cache.LeastMemory)})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	reader := plan.NewReader(store.Release(src, &src.listing), 2*largest/8)
	p := plan.New(piece)
	for off := int64(0); off < p.Size; off += 128 << 10 {
		window := make([]byte, min(128<<10, p.Size-off))
		if _, err := reader.ReadAt(context.Background(), p, window, off); err != nil {
			t.Fatal(err)
		}
		r.data = append(r.data, window...)
	}
	r.source = src.bytes.Load()
	return r, all
}
