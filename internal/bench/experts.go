package main

import "fmt"

// expertReads are the ways to read an expert's file.
func expertReads() []struct {
	name string
	job  job
} {
	return []struct {
		name string
		job  job
	}{
		{"pread", job{}},
		{"O_DIRECT", job{Direct: true}},
		{"mmap", job{Map: true}},
	}
}

// experts reads whole experts that share no cell of the cache, each way others, one after another; the client fetches the spans of as
// many in parallel requests.
func experts(b *bench) error {
	h, err := b.hub(far)
	if err != nil {
		return err
	}
	for _, release := range []string{fp8, mxfp4} {
		if err := b.expertsOf(h, release); err != nil {
			return fmt.Errorf("%s: %w", release, err)
		}
	}
	return nil
}

// blockPath is an expert's file. Numbers are of every third expert, so that neighbours do not help each other.
func blockPath(i int) string { return fmt.Sprintf("experts/native/blocks/L%03d/E%03d.bin", i%2, i/2*3) }

func (b *bench) expertsOf(h *hub, release string) error {
	n := b.count(4)
	m, err := b.cold(h, release, "experts")
	if err != nil {
		return err
	}
	defer m.end()
	first, err := b.explained(h, release, blockPath(0))
	if err != nil {
		return err
	}
	next := 0
	for _, way := range expertReads() {
		j := way.job
		j.Op = "files"
		var bytes float64
		var parts []float64
		for range n {
			j.Paths = []string{m.path(blockPath(next))}
			mark := h.mark()
			r, err := b.child(j)
			if err != nil {
				return err
			}
			requests, fetched, err := h.data(mark)
			if err != nil {
				return err
			}
			if next == 0 {
				b.add("experts "+release+" requests", requests-float64(len(first.Requests)))
			}
			bytes += fetched / float64(first.Size)
			parts = append(parts, r.Parts...)
			next++
		}
		b.add("experts "+release+" "+way.name, median(parts))
		b.add("experts "+release+" fetched", bytes/float64(n))
	}
	return b.expertClient(h, release, n, next)
}

// expertClient fetches the spans of n experts from number first on, those of one in parallel.
func (b *bench) expertClient(h *hub, release string, n, first int) error {
	var groups [][]get
	for i := range n {
		path := blockPath(first + i)
		key := release + " " + path
		if b.spans[key] == nil {
			e, err := b.explained(h, release, path)
			if err != nil {
				return err
			}
			b.spans[key] = e.Spans
		}
		var g []get
		for _, s := range b.spans[key] {
			g = append(g, get{h.file(release, shard), s})
		}
		groups = append(groups, g)
	}
	r, err := b.child(job{Op: "get", Groups: groups})
	if err != nil {
		return err
	}
	b.add("experts "+release+" client", median(r.Parts))
	return nil
}
