package main

import (
	"context"
	"slices"
	"sync"
	"testing"

	"weightfs/cache"
	"weightfs/fs/plan"
	"weightfs/internal/hubtest"
	"weightfs/internal/testrel"
)

// gathers is a store that writes down what it is asked for.
type gathers struct {
	plan.Store
	mu    sync.Mutex // guards asked
	asked []gathered
}

type gathered struct{ demanded, ahead []plan.Span }

func (g *gathers) Gather(ctx context.Context, reads []plan.Read, ahead []plan.Span) error {
	x := gathered{ahead: slices.Clone(ahead)}
	for _, r := range reads {
		x.demanded = append(x.demanded, r.Span)
	}
	g.mu.Lock()
	g.asked = append(g.asked, x)
	g.mu.Unlock()
	return g.Store.Gather(ctx, reads, ahead)
}

// TestFirstTouch: touching one byte of an expert block, in every family and encoding, is one gather of the requests that explain prints;
// they are what the hub sees, and reading the rest of the block sends nothing more.
func TestFirstTouch(t *testing.T) {
	h, ledger, err := testHub(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	t.Setenv("HF_ENDPOINT", h.URL)
	names := []string{"qwen-fp8", "kimi-mxfp4", "qwen-fused", "mixtral-single", "vl-fused"}
	for _, f := range testrel.Families() {
		names = append(names, f.Name)
	}
	for _, name := range names {
		for _, path := range []string{"experts/native/blocks/L001/E001.bin", "experts/bf16/blocks/L001/E001.bin", "experts/q4-asym-32/blocks/L001/E001.bin"} {
			t.Run(name+"/"+path, func(t *testing.T) { touch(t, ledger, "hf://demo/"+name, path) })
		}
	}
}

func touch(t *testing.T, ledger *hubtest.Ledger, source, path string) {
	set := settings{cacheDir: t.TempDir()}
	session, o, err := set.openOne(t.Context(), source)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	x, p, err := o.explain(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	headers := transfers(ledger.Take())
	store := &gathers{Store: o.files}
	reader := plan.NewReader(store, 1<<20)
	read := func(n, off int64) {
		if _, err := reader.ReadAt(t.Context(), p, make([]byte, n), off); err != nil {
			t.Fatal(err)
		}
	}
	read(1, p.Size/3)
	if len(store.asked) != 1 {
		t.Fatalf("the first touch is %d gathers: %v", len(store.asked), store.asked)
	}
	sizes := make([]int64, len(o.listing.Files))
	for i, f := range o.listing.Files {
		sizes[i] = f.Size
	}
	first := store.asked[0]
	want := sorted(slices.Clone(x.Requests))
	if got := sorted(o.ranges(cache.NewAsker(sizes).Ask(first.demanded, first.ahead))); !slices.Equal(got, want) {
		t.Errorf("the first touch asks for\n%v\nexplained\n%v", got, want)
	}
	read(p.Size, 0)
	if got := transfers(ledger.Take()); !slices.Equal(got, want) {
		t.Errorf("reading the block sent\n%v\nexplained\n%v\n(headers %v)", got, want, headers)
	}
}
