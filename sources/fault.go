package sources

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// ErrBroken is a reply that breaks the rules of HTTP ranges: another range, a missing Content-Range, an encoding nobody asked for, a
// body of another length. It is temporary, since a proxy in the way may give such a reply, but [Retry] gives up at the third in a row of a
// server that never gave a right one.
var ErrBroken = errors.New("reply refused")

// temporary is a temporary failure with its reason.
func temporary(format string, a ...any) error {
	return fmt.Errorf("%w: %w", ErrTemporary, fmt.Errorf(format, a...))
}

// broken is a reply that is refused, with its reason.
func broken(format string, a ...any) error {
	return &brokenError{reason: fmt.Sprintf(format, a...)}
}

type brokenError struct {
	reason  string
	passing bool // the server knows better: it gave right replies before
}

func (e *brokenError) Error() string   { return "reply refused: " + e.reason }
func (e *brokenError) Unwrap() []error { return []error{ErrBroken, ErrTemporary} }

// changed is a pinned file that is another one now.
func changed(format string, a ...any) error {
	return fmt.Errorf("%w: %w", ErrChanged, fmt.Errorf(format, a...))
}

// place is a URL without what may be secret: user, query and fragment.
func place(u *url.URL) string {
	return printable((&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String())
}

// origin is scheme, host and port of a URL: what a token and a pause belong to.
func origin(u *url.URL) string {
	return u.Scheme + "://" + hostPort(u)
}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// transportError says what kind of failure err is that the transport gave instead of a reply or in the middle of a body. What the
// caller's own context ended stays as it is. A certificate that is not good is no reason to wait, but where the server had a good one before
// (known), someone is in the way who may go.
func transportError(ctx context.Context, u *url.URL, known bool, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", place(u), context.Cause(ctx))
	}
	var (
		dns       *net.DNSError
		cert      *tls.CertificateVerificationError
		unknown   x509.UnknownAuthorityError
		plainHTTP tls.RecordHeaderError
	)
	switch {
	case errors.Is(err, ErrTemporary), errors.Is(err, errRefusedAddress):
		return fmt.Errorf("%s: %w", place(u), err)
	case !known && (errors.As(err, &cert) || errors.As(err, &unknown) || errors.As(err, &plainHTTP)):
		return fmt.Errorf("%s: TLS: %w", place(u), err)
	case errors.As(err, &dns) && dns.IsNotFound:
		return temporary("%s: %w (no network?)", place(u), err)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return temporary("%s: the connection ended early", place(u))
	}
	return temporary("%s: %w", place(u), err)
}

// unreachable reports whether no connection could be made.
func unreachable(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// refusal is a reply with an error status.
type refusal struct {
	status int
	kind   error // a sentinel, nil for none
	text   string
}

func (e *refusal) Error() string {
	if e.kind == nil {
		return e.text
	}
	return e.kind.Error() + ": " + e.text
}

func (e *refusal) Unwrap() error { return e.kind }

// kindOf puts text under the sentinel of an HTTP status.
func kindOf(status int, text string) error {
	r := &refusal{status: status, text: text}
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusUnavailableForLegalReasons:
		r.kind = ErrDenied
	case status == http.StatusNotFound, status == http.StatusGone:
		r.kind = ErrNotFound
	case status == http.StatusPreconditionFailed:
		r.kind = ErrChanged
	case temporaryStatus(status):
		r.kind = ErrTemporary
	}
	return r
}

// statusOf is the error status behind err, 0 if it is another failure.
func statusOf(err error) int {
	var r *refusal
	if errors.As(err, &r) {
		return r.status
	}
	return 0
}

func temporaryStatus(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return false
	}
	return status >= 500
}

// statusText is the status of a reply and the headers that say more: the Hub's message and the request number that its support
// asks for.
func statusText(resp *http.Response) string {
	text := fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	if m := resp.Header.Get("X-Error-Message"); m != "" {
		text += ": " + printable(m)
	}
	for _, h := range []string{"X-Request-Id", "X-Amz-Request-Id", "X-Amz-Cf-Id"} {
		if id := resp.Header.Get(h); id != "" {
			return text + " (request " + printable(id) + ")"
		}
	}
	return text
}

// drain reads a little of a body that nobody wants, so that the connection can be used again, and closes it.
func drain(resp *http.Response) {
	io.CopyN(io.Discard, resp.Body, maxErrorBody)
	resp.Body.Close()
}

const maxErrorBody = 4 << 10
