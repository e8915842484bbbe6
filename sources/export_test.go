package sources

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
)

// SetDial makes o connect with dial.
func SetDial(o *Options, dial func(ctx context.Context, network, addr string) (net.Conn, error)) *Options {
	o.dial = dial
	return o
}

// SetPrivate makes o take the addresses that private names for those of private networks.
func SetPrivate(o *Options, private func(netip.Addr) bool) *Options {
	o.private = private
	return o
}

// SetNetwork makes a client that is in use connect with dial from now on.
func SetNetwork(o *Options, dial func(ctx context.Context, network, addr string) (net.Conn, error)) {
	c := o.net()
	c.open.DialContext, c.guarded.DialContext = dial, dial
}

// SetPageLimit makes a Hub source refuse replies of more than n bytes.
func SetPageLimit(s Source, n int64) { s.(*hub).pageLimit = n }

// SetRoots makes o trust the authorities of a pool.
func SetRoots(o *Options, pool *x509.CertPool) *Options {
	c := o.net()
	c.open.TLSClientConfig = &tls.Config{RootCAs: pool}
	c.guarded.TLSClientConfig = &tls.Config{RootCAs: pool}
	return o
}
