package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

func unmarshal(text []byte, v any) error {
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("%.80s: %w", text, err)
	}
	return nil
}

// warmCache is a cache directory with a whole shard in it, verified, and in the page cache.
func (b *bench) warmCache(h *hub) (string, error) {
	dir := filepath.Join(b.dir, "warm")
	if _, err := os.Stat(dir); err != nil {
		m, err := b.mount(h, fp8, how{label: "filling the cache", cache: dir})
		if err != nil {
			return "", err
		}
		defer m.end()
		if _, err := b.child(job{Op: "read", Path: m.path("release", shard)}); err != nil {
			return "", err
		}
		m.end()
		if _, err := b.run(h.env(), b.weightfs, "cache", "verify", "--cache-dir", dir); err != nil {
			b.note("  %v", err)
		}
	}
	return dir, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".data") {
			err = inPageCache(path)
		}
		return err
	})
}

// warm reads a shard that is in the disk cache, whose files are in the page cache, through a new mount (the mount's own page cache is
// empty), then again.
func warm(b *bench) error {
	h, err := b.hub(near)
	if err != nil {
		return err
	}
	cache, err := b.warmCache(h)
	if err != nil {
		return err
	}
	passthrough := b.can("mount", "--passthrough")
	var off []string
	if passthrough {
		off = []string{"--passthrough", "off"}
	}
	m, err := b.mount(h, fp8, how{label: "warm", cache: cache, args: off})
	if err != nil {
		return err
	}
	j := job{Op: "read", Path: m.path("release", shard)}
	floor, err := b.pageCache()
	if err != nil {
		return err
	}
	for _, key := range []string{"warm disk", "warm memory"} {
		r, err := b.child(j)
		if err != nil {
			return err
		}
		b.add(key, r.rate()/gb)
		b.add(key+" ratio", r.rate()/floor)
	}
	j.Map = true
	r, err := b.child(j)
	if err != nil {
		return err
	}
	b.add("warm memory mmap", r.rate()/gb)
	m.end()
	if !passthrough {
		return nil
	}
	return b.passedThrough(h, cache)
}

// passedThrough reads the same file where the kernel reads the cache file itself.
func (b *bench) passedThrough(h *hub, cache string) error {
	m, err := b.mount(h, fp8, how{label: "passthrough", cache: cache, args: []string{"--passthrough", "auto"}})
	if err != nil {
		return err
	}
	defer m.end()
	path, err := b.floorFile()
	if err != nil {
		return err
	}
	for _, mapped := range []bool{false, true} {
		key := "passthrough read"
		if mapped {
			key = "passthrough mmap"
		}
		var rates [2][]float64
		for range 5 { // the first reading makes what later ones find
			for i, p := range []string{m.path("release", shard), path} {
				r, err := b.child(job{Op: "read", Path: p, Map: mapped})
				if err != nil {
					return err
				}
				rates[i] = append(rates[i], r.rate())
			}
		}
		b.add(key, median(rates[0])/gb)
		b.add(key+" ratio", median(rates[0])/median(rates[1]))
	}
	return nil
}

// view reads the BF16 view and the file that it is made of through one mount, both from the disk cache.
func view(b *bench) error {
	h, err := b.hub(near)
	if err != nil {
		return err
	}
	cache, err := b.warmCache(h)
	if err != nil {
		return err
	}
	var args []string
	if b.can("mount", "--passthrough") {
		args = []string{"--passthrough", "off"}
	}
	m, err := b.mount(h, fp8, how{label: "view", cache: cache, args: args})
	if err != nil {
		return err
	}
	defer m.end()
	n := b.bytes(1 << 30)
	raw, err := b.child(job{Op: "read", Path: m.path("release", shard), Size: n})
	if err != nil {
		return err
	}
	bf16, err := b.child(job{Op: "read", Path: m.path("bf16", shard), Size: n})
	if err != nil {
		return err
	}
	b.add("view raw", raw.rate()/gb)
	b.add("view bf16", bf16.rate()/gb)
	return nil
}
