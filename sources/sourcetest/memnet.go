package sourcetest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
)

// MemNet is a network in memory, for tests in virtual time (testing/synctest): real sockets would stop the clock.
type MemNet struct {
	mu        sync.Mutex // guards listeners
	listeners map[string]*memListener
}

// Listen accepts what is dialled to addr.
func (n *MemNet) Listen(addr string) net.Listener {
	l := &memListener{addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners == nil {
		n.listeners = map[string]*memListener{}
	}
	n.listeners[addr] = l
	return l
}

// Dial is for http.Transport.DialContext. An address without a listener refuses.
func (n *MemNet) Dial(ctx context.Context, _, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[addr]
	n.mu.Unlock()
	if l == nil {
		return nil, refused(addr)
	}
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.done:
		return nil, refused(addr)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// refused is what a system's own dialer says of an address where nobody listens.
func refused(addr string) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("%s: %w", addr, syscall.ECONNREFUSED)}
}

type memListener struct {
	addr  string
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *memListener) Addr() net.Addr  { return l }
func (l *memListener) Network() string { return "memory" }
func (l *memListener) String() string  { return l.addr }
