package sources

import (
	"context"
	"sync"
)

// flight runs one call for everyone who asks meanwhile and remembers its success; a failure is told to those who waited and
// forgotten. The call ends early only when nobody waits for it any more.
type flight[T any] struct {
	mu   sync.Mutex // guards the fields below and the waiters of cur
	done *T
	cur  *call[T]
}

type call[T any] struct {
	ready   chan struct{} // closed when val and err are set
	val     T
	err     error
	waiters int
	cancel  context.CancelFunc
}

// do returns the remembered value, or that of the call in flight, or starts fn.
func (f *flight[T]) do(ctx context.Context, fn func(context.Context) (T, error)) (T, error) {
	f.mu.Lock()
	if f.done != nil {
		defer f.mu.Unlock()
		return *f.done, nil
	}
	c := f.cur
	if c == nil {
		c = f.start(ctx, fn)
	}
	c.waiters++
	f.mu.Unlock()

	select {
	case <-c.ready:
		return c.val, c.err
	case <-ctx.Done():
		f.leave(c)
		var zero T
		return zero, context.Cause(ctx)
	}
}

// start begins a call; f.mu is held.
func (f *flight[T]) start(ctx context.Context, fn func(context.Context) (T, error)) *call[T] {
	ctx, cancel := context.WithCancel(notAhead(context.WithoutCancel(ctx)))
	c := &call[T]{ready: make(chan struct{}), cancel: cancel}
	f.cur = c
	go func() {
		defer cancel()
		c.val, c.err = fn(ctx)
		f.mu.Lock()
		if f.cur == c {
			f.cur = nil
		}
		if c.err == nil {
			f.done = &c.val
		}
		f.mu.Unlock()
		close(c.ready)
	}()
	return c
}

// leave ends the call if the caller was the last that waited.
func (f *flight[T]) leave(c *call[T]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.waiters--; c.waiters == 0 {
		c.cancel()
		if f.cur == c {
			f.cur = nil
		}
	}
}

// forget drops the remembered value if stale reports that it is no longer good.
func (f *flight[T]) forget(stale func(T) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done != nil && stale(*f.done) {
		f.done = nil
	}
}
