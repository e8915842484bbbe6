package sources_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weightfs/sources"
	"weightfs/sources/sourcetest"
)

// certificate is one for 127.0.0.1 that signs itself.
func certificate(t *testing.T) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// secureFront is an https server in front of a hub, with the certificate that cert points to.
func secureFront(t *testing.T, s *sourcetest.Server, cert *atomic.Pointer[tls.Certificate]) string {
	back, err := url.Parse(s.HubURL)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(httputil.NewSingleHostReverseProxy(back))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*cert.Load()}, NextProtos: []string{"h2", "http/1.1"}}, nil
	}}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv.URL
}

// TestTLS: the hub over https. A file of the hub itself is read; the CDN, which is plain http, is refused without a word to it. When someone
// else's certificate is in the way of a server that was known, that is waited out; a stranger's is refused at once.
func TestTLS(t *testing.T) {
	s := sourcetest.Start(t, &sourcetest.Server{Files: sourcetest.Small(), Token: token, PageSize: 100})
	good, bad := certificate(t), certificate(t)
	var cert atomic.Pointer[tls.Certificate]
	cert.Store(good)
	pool := x509.NewCertPool()
	pool.AddCert(good.Leaf)
	o := sources.SetRoots(options(t, "HF_TOKEN", token), pool)
	o.Endpoint = secureFront(t, s, &cert)
	src, err := sources.Hub(s.Repo, "", o)
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, src, "config.json")
	if _, err := read(t, s, b, "config.json", 0, 10); err != nil {
		t.Fatal(err)
	}
	if _, err := read(t, s, open(t, src, shard), shard, 0, 10); err == nil || !strings.Contains(err.Error(), "from https to http") {
		t.Errorf("got %v", err)
	}
	if n := count(s.Log(0), "data"); n > 0 {
		t.Errorf("%d requests over plain http", n)
	}

	cert.Store(bad)
	o.Close()
	if _, err := read(t, s, b, "config.json", 0, 10); !errors.Is(err, sources.ErrTemporary) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("with another certificate: %v", err)
	}
	cert.Store(good)
	if _, err := read(t, s, b, "config.json", 0, 10); err != nil {
		t.Errorf("with the right one again: %v", err)
	}

	cert.Store(bad)
	fresh := sources.SetRoots(options(t, "HF_TOKEN", token), pool)
	fresh.Endpoint = o.Endpoint
	src, err = sources.Hub(s.Repo, "", fresh)
	if err != nil {
		t.Fatal(err)
	}
	mark := len(s.Log(0))
	if _, err := src.List(t.Context()); err == nil || errors.Is(err, sources.ErrTemporary) || len(s.Log(mark)) > 0 {
		t.Errorf("a stranger: %v", err)
	}
}

// TestPlainToTLS: http where a server speaks https is told from an empty release.
func TestPlainToTLS(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	_, err := newHTTP(t, strings.Replace(srv.URL, "https", "http", 1), options(t)).List(t.Context())
	if !errors.Is(err, sources.ErrNotFound) || !strings.Contains(err.Error(), "400 Bad Request") {
		t.Errorf("got %v", err)
	}
}
