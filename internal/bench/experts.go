package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

// expertReads are the ways to read an expert.
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

// expertPlace is where experts are read: the key of its samples, and what to read of expert i.
type expertPlace struct {
	key  string
	open bool // the file goes on behind the expert
	job  func(m *mount, i int) (job, error)
}

func expertPlaces() []expertPlace {
	return []expertPlace{{"", false, blockFile}, {"by offset ", true, blockAtOffset}}
}

// expert says which expert of a release is number i: every third, so that neighbours do not help each other, of both layers in turn.
func expert(i int) (layer, expert int) { return i % 2, i / 2 * 3 }

// blockPath is an expert's file.
func blockPath(i int) string {
	layer, expert := expert(i)
	return fmt.Sprintf("experts/native/blocks/L%03d/E%03d.bin", layer, expert)
}

func blockFile(m *mount, i int) (job, error) {
	return job{Op: "files", Paths: []string{m.path(blockPath(i))}}, nil
}

// blockAtOffset is the same block in the file of all experts.
func blockAtOffset(m *mount, i int) (job, error) {
	text, err := os.ReadFile(m.path("experts/native/manifest.json"))
	if err != nil {
		return job{}, err
	}
	var all struct {
		File            string
		BlockByteLength int64
		Layers          []int
		ExpertsPerLayer int
	}
	if err := unmarshal(text, &all); err != nil {
		return job{}, err
	}
	layer, expert := expert(i)
	off := int64(slices.Index(all.Layers, layer)*all.ExpertsPerLayer+expert) * all.BlockByteLength
	return job{Op: "ranges", Path: m.path("experts/native", all.File), Ranges: []span{{off, off + all.BlockByteLength}}}, nil
}

// experts reads whole experts that share no cell of the cache, each way others, one after another; the client fetches the spans of as
// many in parallel requests.
func experts(b *bench) error {
	h, err := b.hub(far)
	if err != nil {
		return err
	}
	for _, release := range []string{fp8, mxfp4} {
		err := b.expertClient(h, release)
		for _, at := range expertPlaces() {
			err = errors.Join(err, b.expertsAt(h, release, at))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", release, err)
		}
	}
	return nil
}

func (b *bench) expertsAt(h *hub, release string, at expertPlace) error {
	m, err := b.cold(h, release, "experts")
	if err != nil {
		return err
	}
	defer m.end()
	key := "experts " + release + " " + at.key
	var times float64           // bytes of the block's
	extra := map[bool]float64{} // requests that explain does not tell of, by whether a kernel reads ahead of the reader beyond the block
	n, next := b.count(4), 0
	for _, way := range expertReads() {
		var parts []float64
		for range n {
			e, err := b.blockExplained(h, release, next)
			if err != nil {
				return err
			}
			j, err := at.job(m, next)
			if err != nil {
				return err
			}
			next++
			j.Direct, j.Map = way.job.Direct, way.job.Map
			mark := h.mark()
			r, err := b.child(j)
			if err != nil {
				return err
			}
			requests, fetched, err := h.data(mark)
			if err != nil {
				return err
			}
			extra[at.open && !way.job.Direct] += max(0, requests-float64(len(e.Requests)))
			times += fetched / float64(e.Size)
			parts = append(parts, r.Parts...)
		}
		b.add(key+way.name, median(parts))
	}
	b.add(key+"requests", extra[false])
	if at.open {
		b.add(key+"requests of the kernel's", extra[true]/float64(2*n)) // of pread and mmap
	}
	b.add(key+"fetched", times/float64(next))
	return nil
}

// blockExplained is what explain says of an expert's file. It is asked once.
func (b *bench) blockExplained(h *hub, release string, i int) (explanation, error) {
	key := release + " " + blockPath(i)
	if e, ok := b.blocks[key]; ok {
		return e, nil
	}
	e, err := b.explained(h, release, blockPath(i))
	if err == nil {
		b.blocks[key] = e
	}
	return e, err
}

// expertClient fetches the spans of some experts, those of one in parallel.
func (b *bench) expertClient(h *hub, release string) error {
	var groups [][]get
	for i := range b.count(4) {
		e, err := b.blockExplained(h, release, i)
		if err != nil {
			return err
		}
		var g []get
		for _, s := range e.Spans {
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
