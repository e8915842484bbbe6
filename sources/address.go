package sources

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
)

var errRefusedAddress = errors.New("a public server may not redirect to a private address (see --allow-private-redirects)")

// notPublic are the address blocks that are not on the public internet (IANA special-purpose registries).
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.0.0.0/24"), netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("224.0.0.0/3"), netip.MustParsePrefix("::/127"), netip.MustParsePrefix("fc00::/7"),
	netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// privateAddr reports whether a is an address that a stranger's redirect must not lead to.
func privateAddr(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	for _, p := range notPublic {
		if p.Contains(a) {
			return true
		}
	}
	return !a.IsValid()
}

// refusePrivate is a net.Dialer.Control that refuses private addresses after the name was resolved and before anything is sent.
func refusePrivate(private func(netip.Addr) bool) func(network, address string, _ syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		a, err := netip.ParseAddrPort(address)
		if err != nil || private(a.Addr()) {
			return fmt.Errorf("%s: %w", address, errRefusedAddress)
		}
		return nil
	}
}
