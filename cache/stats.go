package cache

import "sync/atomic"

// counters are the running totals behind Stats.
type counters struct {
	fetched, served, diskBytes, localBytes                        atomic.Int64
	requests, retries, failed, badCells, corrupt, stored, evicted atomic.Int64
}

// request counts one request to a source; all but the first try are retries.
func (s *counters) request(try int) {
	s.requests.Add(1)
	if try > 0 {
		s.retries.Add(1)
	}
}

// Stats is a snapshot. Counts are since the cache opened.
type Stats struct {
	Requests     int64 `json:"requests"`     // sent to sources, retries included
	Retries      int64 `json:"retries"`      //
	BytesFetched int64 `json:"bytesFetched"` // received from sources
	BytesServed  int64 `json:"bytesServed"`  // given to readers, from memory
	BytesDisk    int64 `json:"bytesDisk"`    // read from the disk cache, and right
	BytesLocal   int64 `json:"bytesLocal"`   // read in place from local files
	BytesStored  int64 `json:"bytesStored"`  // written to the disk cache
	FailedCells  int64 `json:"failedCells"`  // never arrived
	BadCells     int64 `json:"badCells"`     // on disk, whose checksum was wrong
	CorruptBlobs int64 `json:"corruptBlobs"` // complete, whose SHA-256 was wrong
	Evictions    int64 `json:"evictions"`    // cells dropped from memory to make room
	BytesEvicted int64 `json:"bytesEvicted"` // dropped from disk to make room

	Memory     int64 `json:"memory"`     // the budget in bytes
	MemoryUsed int64 `json:"memoryUsed"` // held by cells now
	Pinned     int64 `json:"pinned"`     // of that, in use by readers and fetches
	Ahead      int64 `json:"ahead"`      // of that, fetched ahead and not read yet
	Waiting    int64 `json:"waiting"`    // gathers that wait for memory

	Dir      string `json:"dir,omitempty"` // the disk cache
	DiskSize int64  `json:"diskSize"`      // the most it may hold
	DiskUsed int64  `json:"diskUsed"`      // it holds now
}

// Stats is a snapshot of what the cache did and holds.
func (c *Cache) Stats() Stats {
	s := Stats{
		Requests: c.stats.requests.Load(), Retries: c.stats.retries.Load(),
		BytesFetched: c.stats.fetched.Load(), BytesServed: c.stats.served.Load(), BytesDisk: c.stats.diskBytes.Load(),
		BytesLocal: c.stats.localBytes.Load(), BytesStored: c.stats.stored.Load(), FailedCells: c.stats.failed.Load(),
		BadCells: c.stats.badCells.Load(), CorruptBlobs: c.stats.corrupt.Load(), BytesEvicted: c.stats.evicted.Load(),
	}
	c.mem.report(&s)
	c.disk.report(&s)
	return s
}

func (m *memory) report(s *Stats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	used := m.slots - len(m.arena.free)
	if m.arena.mem == nil {
		used = 0
	}
	s.Evictions = m.evicts
	s.Memory = int64(m.slots) * cellSize
	s.MemoryUsed = int64(used) * cellSize
	s.Pinned = int64(used-m.idle[0]-m.idle[1]) * cellSize
	s.Ahead = int64(m.ahead) * cellSize
	s.Waiting = int64(len(m.queue))
}
