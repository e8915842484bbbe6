package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"weightfs/internal/hubtest"
)

// The releases. Those of experts are one shard of a gigabyte.
const (
	fp8   = "bench-fp8"
	mxfp4 = "bench-mxfp4"
	gptq  = "bench-gptq"      // packed by columns, tensors of 29 MB
	huge  = "qwen3.8-max-fp8" // 287,119 tensors in 213 files; its content is made when it is asked for
	shard = "model-00001-of-00001.safetensors"
)

// shape is what a server simulates.
type shape struct {
	latency time.Duration
	rate    int64 // bytes a second of a connection, 0 is no limit
	peers   bool  // also what rivals need
}

// far is the shape of what bounds are for: 20 ms and 50 MB/s a connection.
var far = shape{latency: 20 * time.Millisecond, rate: 50e6}

// near answers at once.
var near = shape{}

func (s shape) String() string {
	rate := "unlimited"
	if s.rate > 0 {
		rate = fmt.Sprintf("%d MB/s", s.rate/1e6)
	}
	return fmt.Sprintf("%d ms, %s", s.latency.Milliseconds(), rate)
}

// hub is a running stand-in hub.
type hub struct {
	bench   *bench
	url     string
	log     string
	process *process
}

// hub is the server of that shape, started when it is first asked for.
func (b *bench) hub(s shape) (*hub, error) {
	key := fmt.Sprint(s, s.peers)
	if h := b.hubs[key]; h != nil {
		return h, nil
	}
	root, err := b.root()
	if err != nil {
		return nil, err
	}
	h := &hub{bench: b, log: filepath.Join(b.dir, "requests-"+strings.Map(letters, key)+".jsonl")}
	args := []string{"demo", "--hub", "127.0.0.1:0", "--root", root, "--log", h.log, "--latency", s.latency.String()}
	if s.rate > 0 {
		args = append(args, "--rate", fmt.Sprint(s.rate))
	}
	if s.peers {
		args = append(args, "--peers")
	}
	if h.process, err = b.start("hub", nil, b.weightfs, args...); err != nil {
		return nil, err
	}
	err = b.waitFor(h.process, "the stand-in hub", func() bool {
		h.url, _, _ = strings.Cut(h.process.output(), "\n")
		return strings.HasPrefix(h.url, "http://") && strings.Contains(h.process.output(), "stand-in")
	})
	if err != nil {
		h.process.end()
		return nil, err
	}
	b.hubs[key] = h
	return h, nil
}

func letters(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
		return r
	}
	return '-'
}

// env leads a program to the hub, and away from caches of the user.
func (h *hub) env() []string {
	return []string{"HF_ENDPOINT=" + h.url, "HF_HOME=" + filepath.Join(h.bench.dir, "hf-home"), "HF_HUB_DISABLE_TELEMETRY=1", "HF_HUB_DISABLE_XET=1"}
}

// mark is a place in the hub's log.
func (h *hub) mark() int64 {
	st, err := os.Stat(h.log)
	if err != nil {
		return 0
	}
	return st.Size()
}

// since is the requests after a mark.
func (h *hub) since(mark int64) ([]hubtest.Entry, error) {
	text, err := os.ReadFile(h.log)
	if err != nil {
		return nil, err
	}
	var out []hubtest.Entry
	for line := range strings.Lines(string(text[mark:])) {
		var e hubtest.Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return nil, fmt.Errorf("%s: %w", h.log, err)
		}
		out = append(out, e)
	}
	return out, nil
}

// data is the number and bytes of the requests for content after a mark.
func (h *hub) data(mark int64) (requests, bytes float64, err error) {
	all, err := h.since(mark)
	data := hubtest.Of("data", all)
	return float64(len(data)), float64(hubtest.BytesOf(data)), err
}

// dataBelow is the bytes of the same that lie before byte n of their files.
func (h *hub) dataBelow(mark, n int64) (bytes float64, err error) {
	all, err := h.since(mark)
	for _, e := range hubtest.Of("data", all) {
		bytes += float64(max(0, min(e.End, n)-e.Start))
	}
	return bytes, err
}

// file is the address of a file of a release.
func (h *hub) file(release, path string) string {
	return h.url + "/demo/" + release + "/resolve/main/" + path
}
