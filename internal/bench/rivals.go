package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// rival is another program that mounts a release.
type rival struct {
	name string
	env  string // names the program, if it is not on the path
	file string // the program
	args func(h *hub, cache, dir string) []string
	at   string // where the release is below the mount
}

func mountedRivals() []rival {
	rclone := func(mode string) func(h *hub, cache, dir string) []string {
		return func(h *hub, cache, dir string) []string {
			return []string{"mount", "--config", "", "--cache-dir", cache, "--vfs-cache-mode", mode, "--read-only", ":http,url='" + h.url + "/plain/demo/" + fp8 + "/':", dir}
		}
	}
	return []rival{
		{"rclone", "WEIGHTFS_BENCH_RCLONE", "rclone", rclone("off"), ""},
		{"rclone full", "WEIGHTFS_BENCH_RCLONE", "rclone", rclone("full"), ""},
		{"hf-mount", "WEIGHTFS_BENCH_HFMOUNT", "hf-mount-fuse", func(h *hub, cache, dir string) []string {
			return []string{"--hub-endpoint", h.url, "--cache-dir", cache, "--poll-interval-secs", "0", "--read-only", "repo", "demo/" + fp8, dir, "--revision", "main"}
		}, ""},
	}
}

// program finds a program by environment variable or path.
func program(env, name string) (string, error) {
	if p := os.Getenv(env); p != "" {
		return p, nil
	}
	p, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w: %w; %s names it", errSkip, err, env)
	}
	return p, nil
}

// rivals lets other programs do what is done with weightfs elsewhere, on a server of the same shape. What cannot be had is noted.
func rivals(b *bench) error {
	s := far
	s.peers = true
	h, err := b.hub(s)
	if err != nil {
		return err
	}
	for _, v := range mountedRivals() {
		if err := b.rival(h, v); err != nil {
			if b.ctx.Err() != nil {
				return err
			}
			b.notes[v.name] = err.Error()
			b.note("  %s: %v", v.name, err)
		}
		b.endAll()
	}
	if err := b.downloaded(h); err != nil {
		b.notes["huggingface_hub"] = err.Error()
		b.note("  huggingface_hub: %v", err)
	}
	return b.ctx.Err()
}

// rival reads the beginning of the shard, which is enough to know a steady rate, then random tensors and pages.
func (b *bench) rival(h *hub, v rival) error {
	p, err := program(v.env, v.file)
	if err != nil {
		return err
	}
	m := &mount{bench: b, dir: b.fresh("mount"), label: v.name, cache: b.fresh("cache")}
	if err := b.ballast.take(); err != nil {
		return err
	}
	if err := m.start(nil, p, v.args(h, m.cache, m.dir)...); err != nil {
		return err
	}
	path := m.path(v.at, shard)
	if err := m.setReadAhead(userReadAhead); err != nil {
		return err
	}
	// What is read later lies behind what is read first.
	n := b.bytes(256 << 20)
	r, err := b.child(job{Op: "read", Path: path, Size: n})
	if err != nil {
		return err
	}
	b.add("rival "+v.name+" sequential", r.rate()/gb)
	if r, err = b.child(job{Op: "ranges", Path: path, Map: true, Ranges: b.some(b.count(12), 500e3, n)}); err != nil {
		return err
	}
	b.add("rival "+v.name+" tensors", median(r.Parts))
	if err := m.check(path, b.truth(fp8, shard)); err != nil {
		return err
	}
	m.end()
	return nil
}

// some are random tensors of the shard of at least that many bytes, behind offset from.
func (b *bench) some(n int, least, from int64) []span {
	all := b.tensors(fp8, b.shardSpan(fp8).End)
	var out []span
	for _, i := range shuffled(len(all), 1) {
		if s := all[i]; s.End-s.Start > least && s.Start >= from && len(out) < n {
			out = append(out, s)
		}
	}
	return out
}

const downloadScript = `import sys, time
from huggingface_hub import hf_hub_download
start = time.time()
path = hf_hub_download(sys.argv[1], sys.argv[2], cache_dir=sys.argv[3])
with open(path, "rb", buffering=0) as f:
    while f.read(1 << 20):
        pass
print(time.time() - start)
`

// downloaded is huggingface_hub: all of the file must be there before its first byte can be read. It is measured once: its rate is the server's.
func (b *bench) downloaded(h *hub) error {
	const key = "rival huggingface_hub sequential"
	if len(b.samples[key]) > 0 || b.opt.quick {
		return nil
	}
	python, err := program("WEIGHTFS_BENCH_PYTHON", "python3")
	if err != nil {
		return err
	}
	to := b.fresh("download")
	defer os.RemoveAll(to)
	out, err := b.run(h.env(), python, "-c", downloadScript, "demo/"+fp8, shard, filepath.Join(to, "hub"))
	if err != nil {
		if strings.Contains(err.Error(), "ModuleNotFoundError") {
			return errors.New("python has no huggingface_hub; WEIGHTFS_BENCH_PYTHON names one that has")
		}
		return err
	}
	var seconds float64
	if _, err := fmt.Sscan(string(out), &seconds); err != nil {
		return err
	}
	b.add(key, float64(b.shardSpan(fp8).End)/seconds/gb)
	return nil
}
