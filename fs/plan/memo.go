package plan

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"weak"
)

// errAbandoned is what is left of a build that panicked.
var errAbandoned = errors.New("the computation was abandoned")

// memo keeps decoded tiles and rendered literals, the least recently used going first when they are more than max bytes; the newest
// stays whatever its size. Each is built once, by the first who asks.
type memo struct {
	mu      sync.Mutex // guards everything below; nothing is built under it
	max     int64
	size    int64
	entries map[memoKey]*memoEntry
	lru     list.List // of finished entries, the latest used in front
}

// memoKey is a place in a file where something decoded or rendered begins.
type memoKey struct {
	plan weak.Pointer[Plan]
	at   int64
}

type memoEntry struct {
	key  memoKey
	done chan struct{} // closed when data and err are set
	data []byte
	err  error
	elem *list.Element
}

// get is the bytes under key, built if need be. If another's build fails because that other gave up waiting, the next in line builds.
func (m *memo) get(ctx context.Context, key memoKey, build func() ([]byte, error)) ([]byte, error) {
	for {
		e, mine := m.claim(key)
		if mine {
			return m.build(e, build)
		}
		select {
		case <-e.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if e.err == nil || ctx.Err() != nil || !gaveUp(e.err) {
			return e.data, e.err
		}
	}
}

func gaveUp(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// claim finds the entry of key, or makes one that the caller must build.
func (m *memo) claim(key memoKey) (e *memoEntry, mine bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[key]; e != nil {
		if e.elem != nil {
			m.lru.MoveToFront(e.elem)
		}
		return e, false
	}
	if m.entries == nil {
		m.entries = map[memoKey]*memoEntry{}
	}
	e = &memoEntry{key: key, done: make(chan struct{}), err: errAbandoned}
	m.entries[key] = e
	return e, true
}

func (m *memo) build(e *memoEntry, build func() ([]byte, error)) ([]byte, error) {
	defer m.finish(e)
	e.data, e.err = build()
	return e.data, e.err
}

// finish wakes who waits for e, keeps it if it is good, and makes room.
func (m *memo) finish(e *memoEntry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(e.done)
	if e.err != nil {
		delete(m.entries, e.key)
		return
	}
	e.elem = m.lru.PushFront(e)
	m.size += int64(len(e.data))
	for m.size > m.max && m.lru.Len() > 1 {
		old := m.lru.Remove(m.lru.Back()).(*memoEntry)
		m.size -= int64(len(old.data))
		delete(m.entries, old.key)
	}
}
