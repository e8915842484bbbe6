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

// warm reads a shard that is in the disk cache, whose files are in the page cache: through a mount whose own page cache is empty, beside the plain
// server of the floor's file, and then again.
func warm(b *bench) error {
	h, err := b.hub(near)
	if err != nil {
		return err
	}
	cache, err := b.warmCache(h)
	if err != nil {
		return err
	}
	floor, err := b.floorFile()
	if err != nil {
		return err
	}
	m, err := b.mount(h, fp8, how{label: "warm", cache: cache, args: []string{"--passthrough", "off"}})
	if err != nil {
		return err
	}
	defer m.end()
	p, err := b.plain(floor)
	if err != nil {
		return err
	}
	defer p.end()
	read := func(path string, drop int) job { return job{Op: "read", Path: path, Drop: drop, Again: 6} }
	rates, err := b.inTurn(read(m.path("release", shard), 4), read(p.path(plainName), 4), read(floor, 0))
	if err != nil {
		return err
	}
	b.add("warm disk", rates[0].dropped/gb)
	b.add("warm disk plain", rates[1].dropped/gb)
	b.add("warm disk ratio", rates[0].dropped/rates[2].again)
	b.add("warm disk plain ratio", rates[1].dropped/rates[2].again)
	b.add("warm memory", rates[0].again/gb)
	b.add("warm memory plain", rates[1].again/gb)
	b.add("warm memory ratio", rates[0].again/rates[2].again)
	b.add("warm memory plain ratio", rates[1].again/rates[2].again)
	if rates, err = b.inTurn(job{Op: "read", Path: m.path("release", shard), Map: true, Again: 4}); err != nil {
		return err
	}
	b.add("warm memory mmap", rates[0].again/gb)
	m.end()
	return b.passedThrough(h, cache, floor)
}

// passedThrough reads the same file where the kernel reads the cache file itself.
func (b *bench) passedThrough(h *hub, cache, floor string) error {
	m, err := b.mount(h, fp8, how{label: "passthrough", cache: cache, args: []string{"--passthrough", "auto"}})
	if err != nil {
		return err
	}
	defer m.end()
	for _, mapped := range []bool{false, true} {
		key := "passthrough read"
		if mapped {
			key = "passthrough mmap"
		}
		read := func(path string) job { return job{Op: "read", Path: path, Map: mapped, Again: 6} }
		rates, err := b.inTurn(read(m.path("release", shard)), read(floor))
		if err != nil {
			return err
		}
		b.add(key, rates[0].again/gb)
		b.add(key+" ratio", rates[0].again/rates[1].again)
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
	m, err := b.mount(h, fp8, how{label: "view", cache: cache, args: []string{"--passthrough", "off"}})
	if err != nil {
		return err
	}
	defer m.end()
	n := b.bytes(1 << 30)
	rates, err := b.inTurn(job{Op: "read", Path: m.path("release", shard), Size: n, Drop: 3}, job{Op: "read", Path: m.path("bf16", shard), Size: n, Drop: 3})
	if err != nil {
		return err
	}
	b.add("view raw", rates[0].dropped/gb)
	b.add("view bf16", rates[1].dropped/gb)
	return nil
}
