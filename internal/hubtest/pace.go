package hubtest

import (
	"net"
	"time"
)

// paced is a listener whose connections send at most rate bytes a second; 0 is no limit.
type paced struct {
	net.Listener
	rate int64
}

func (l paced) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil || l.rate <= 0 {
		return c, err
	}
	return &pacedConn{Conn: c, rate: l.rate}, nil
}

// pacedConn is written by one goroutine at a time.
type pacedConn struct {
	net.Conn
	rate int64
	free time.Time // when the bytes sent so far have passed
}

const (
	paceStep = 32 << 10              // bytes sent in one go
	paceLead = 10 * time.Millisecond // an idle connection may be this far ahead
)

func (c *pacedConn) Write(p []byte) (int, error) {
	sent := 0
	for sent < len(p) {
		step := p[sent:min(sent+paceStep, len(p))]
		if floor := time.Now().Add(-paceLead); c.free.Before(floor) {
			c.free = floor
		}
		c.free = c.free.Add(time.Duration(float64(len(step)) / float64(c.rate) * float64(time.Second)))
		if d := time.Until(c.free); d > 0 {
			time.Sleep(d)
		}
		n, err := c.Conn.Write(step)
		sent += n
		if err != nil {
			return sent, err
		}
	}
	return sent, nil
}
