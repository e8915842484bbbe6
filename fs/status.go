package fs

import (
	"encoding/json"
	"os"
	"sync/atomic"
	"time"
)

// stats is what the core counts.
type stats struct {
	reads, served, opens, errors, panics atomic.Int64
	replying                             atomic.Int64 // bytes of buffers of replies that are being made
}

// Counters is what lies below the FS: bytes that came from the source, bytes found in the disk cache, memory in use and its
// budget. Detail and Network are shown as they are.
type Counters struct {
	Fetched, Cached     int64
	Memory, MemoryLimit int64
	Detail              any
	Network             any
}

// Status is the content of .weightfs/status.json.
type Status struct {
	PID      int            `json:"pid"`
	Started  time.Time      `json:"started"`
	Sources  []SourceStatus `json:"sources"`
	Mount    *MountStatus   `json:"mount,omitempty"`
	Deadline string         `json:"deadline"`
	Bytes    ByteStatus     `json:"bytes"`
	Reads    int64          `json:"reads"`
	Opens    int64          `json:"opens"`
	Errors   int64          `json:"errors"`
	Panics   int64          `json:"panics"`
	Memory   MemoryStatus   `json:"memory"`
	Cache    any            `json:"cache,omitempty"`
	Network  any            `json:"network,omitempty"`
}

// SourceStatus is one source of the mount.
type SourceStatus struct {
	Path     string    `json:"path"` // below the root, "" if it is the root
	Source   string    `json:"source"`
	Revision string    `json:"revision,omitempty"`
	Time     time.Time `json:"time"`
	Bytes    int64     `json:"bytes"`
	Files    int64     `json:"files"`
}

// MountStatus is the FUSE door. Writing to /sys/fs/fuse/connections/<Connection>/abort ends a mount that hangs.
type MountStatus struct {
	Dir         string `json:"dir"`
	Connection  uint32 `json:"connection"`
	ReadAheadKB int    `json:"readAheadKB"` // in effect, 0 if unknown
	Direct      bool   `json:"direct"`      // mounted without fusermount3

	Passthrough PassthroughStatus `json:"passthrough"`
}

// PassthroughStatus says whether the kernel may read local files in place of the mount's, why not, how many were opened so, and how many
// the kernel refused.
type PassthroughStatus struct {
	On     bool   `json:"on"`
	Why    string `json:"why,omitempty"`
	Opens  int64  `json:"opens"`
	Failed int64  `json:"failed"`
}

// ByteStatus counts bytes: from the source, to readers, from the disk cache.
type ByteStatus struct {
	Fetched int64 `json:"fetched"`
	Served  int64 `json:"served"`
	Cached  int64 `json:"cached"`
}

// MemoryStatus is bytes of memory: of the cache and its limit, of open plans, of decoded tiles and rendered literals, of replies that
// are being made.
type MemoryStatus struct {
	Cache int64 `json:"cache"`
	Limit int64 `json:"limit"`
	Plans int64 `json:"plans"`
	Kept  int64 `json:"kept"`

	Replies int64 `json:"replies"`
}

// Status is how things are now.
func (f *FS) Status() Status {
	var c Counters
	if f.counters != nil {
		c = f.counters()
	}
	s := Status{
		PID: os.Getpid(), Started: f.started.UTC(), Deadline: f.deadline.String(),
		Bytes:  ByteStatus{c.Fetched, f.stats.served.Load(), c.Cached},
		Reads:  f.stats.reads.Load(),
		Opens:  f.stats.opens.Load(),
		Errors: f.stats.errors.Load(),
		Panics: f.stats.panics.Load(),
		Memory: MemoryStatus{Cache: c.Memory, Limit: c.MemoryLimit, Plans: f.plans.memory(), Replies: f.stats.replying.Load()},
		Cache:  c.Detail, Network: c.Network,
	}
	for _, t := range f.trees {
		s.Sources = append(s.Sources, SourceStatus{t.At, t.Source, t.Revision, t.Time.UTC(), t.Bytes, t.Files})
		s.Memory.Kept += t.Reader.Kept()
	}
	if m := f.mount.Load(); m != nil {
		s.Mount = m.status()
	}
	return s
}

func (f *FS) statusJSON() []byte {
	b, err := json.MarshalIndent(f.Status(), "", "  ")
	if err != nil {
		f.failed(err)
		return nil
	}
	return append(b, '\n')
}
