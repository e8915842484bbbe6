package sources

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestContentRange(t *testing.T) {
	for in, want := range map[string]bool{
		"bytes 0-0/1": true, "bytes 5-9/10": true, "Bytes 5-9/10": true, "bytes 0-9223372036854775806/9223372036854775807": true,
		"": false, "bytes": false, "bytes 0-0": false, "bytes 0-0/*": false, "bytes */1": false, "bytes 1-0/5": false, "bytes 0-5/5": false,
		"bytes  0-0/1": false, "bytes 0 -0/1": false, "bytes 0-0/1 ": false, "bytes=0-0/1": false, "bytes +0-0/1": false, "bytes -0-0/1": false,
		"bytes 0x0-0/1": false, "bytes 0-0/18446744073709551617": false, "items 0-0/1": false, "bytes 0-0/1, bytes 0-0/1": false,
	} {
		if a, b, n, ok := parseContentRange(in); ok != want {
			t.Errorf("%q: %d-%d/%d, %v", in, a, b, n, ok)
		}
	}
}

// FuzzRangeReply: an accepted reply says exactly the range, and its reader gives exactly the bytes of the body, or none.
func FuzzRangeReply(f *testing.F) {
	f.Add(206, "bytes 2-5/10", "", "", "", int64(4), []byte("abcd"), int64(2), int64(4), int64(10))
	f.Add(206, "bytes 2-5/10", "identity", `"x"`, "text/plain", int64(-1), []byte("abcde"), int64(2), int64(4), int64(10))
	f.Add(200, "", "", `W/"e"`, "", int64(10), []byte("0123456789"), int64(2), int64(4), int64(10))
	f.Add(416, "bytes */11", "", "", "", int64(0), []byte(""), int64(2), int64(4), int64(10))
	exact := regexp.MustCompile(`(?i)^bytes 0*(\d+)-0*(\d+)/0*(\d+)$`)
	f.Fuzz(func(t *testing.T, status int, contentRange, encoding, etag, contentType string, length int64, body []byte, off, n, size int64) {
		if off < 0 || n <= 0 || size <= 0 || n > 1<<20 || off > size-n || length < -1 || length >= 0 && length < int64(len(body)) {
			return // the transport never gives more than Content-Length
		}
		r := ranged{off: off, n: n, size: size, pin: validator{etag: `"e"`}}
		resp := &http.Response{StatusCode: status, ContentLength: length, Body: io.NopCloser(bytes.NewReader(body)), Header: http.Header{
			"Content-Range": {contentRange}, "Content-Encoding": {encoding}, "Etag": {etag}, "Content-Type": {contentType}}}
		skip, bodyLen, err := r.accept(resp)
		if err != nil {
			return
		}
		switch m := exact.FindStringSubmatch(contentRange); {
		case strings.TrimSpace(etag) != "" && bare(strings.TrimSpace(etag)) != "e":
			t.Fatalf("accepted with ETag %q", etag)
		case encoding != "" && !strings.EqualFold(encoding, "identity"):
			t.Fatalf("accepted with encoding %q", encoding)
		case status == 206 && (m == nil || fmt.Sprint(m[1:]) != fmt.Sprint([]string{strconv.FormatInt(off, 10), strconv.FormatInt(off+n-1, 10), strconv.FormatInt(size, 10)})):
			t.Fatalf("accepted %q for %d+%d of %d", contentRange, off, n, size)
		case status == 200 && n != size && size > maxWhole:
			t.Fatalf("accepted the whole of %d bytes for %d", size, n)
		case status != 200 && status != 206:
			t.Fatalf("accepted status %d", status)
		}
		rc, err := rangeBody(resp, skip, bodyLen, n)
		if err != nil {
			return
		}
		got, err := io.ReadAll(rc)
		if err == nil && !bytes.Equal(got, body[skip:skip+n]) || !bytes.HasPrefix(body[skip:], got) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	})
}

func TestNext(t *testing.T) {
	for _, c := range []struct{ from, location, want string }{
		{"https://a/x", "/y", "https://a/y"},
		{"https://a/x", "https://b/y?z#f", "https://b/y?z"},
		{"http://a/x", "https://b/y", "https://b/y"},
		{"http://a/x", "//b/y", "http://b/y"},
		{"https://a/x", "http://a/y", "!https to http"},
		{"https://a/x", "http://127.0.0.1/y", "!https to http"},
		{"https://a/x", "file:///etc/passwd", "!file: address"},
		{"https://a/x", "unix:/run/docker.sock", "!unix: address"},
		{"https://a/x", "javascript:alert(1)", "!javascript: address"},
	} {
		from, _ := url.Parse(c.from)
		r := &reply{url: from, Response: &http.Response{Header: http.Header{"Location": {c.location}}}}
		next, _, err := r.next()
		if why, refused := strings.CutPrefix(c.want, "!"); refused {
			if err == nil || !strings.Contains(err.Error(), why) {
				t.Errorf("%s → %s: %v, %v", c.from, c.location, next, err)
			}
		} else if err != nil || next.String() != c.want {
			t.Errorf("%s → %s: %v, %v", c.from, c.location, next, err)
		}
	}
}

func TestForeign(t *testing.T) {
	for _, c := range []struct {
		public, foreign bool
		location        string
		want            bool
	}{
		{true, false, "/y", false}, {true, false, "https://b/", true}, {false, false, "https://b/", false}, {false, true, "/y", true},
		{true, false, "https://a:443/y", false}, {true, false, "https://a:444/y", true}, {true, false, "https://x.a/y", true},
	} {
		from, _ := url.Parse("https://a/x")
		r := &reply{url: from, public: c.public, foreign: c.foreign, Response: &http.Response{Header: http.Header{"Location": {c.location}}}}
		if _, got, err := r.next(); err != nil || got != c.want {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
}

func TestPrivateAddr(t *testing.T) {
	for a, want := range map[string]bool{
		"127.0.0.1": true, "10.1.2.3": true, "172.31.0.1": true, "192.168.1.1": true, "169.254.169.254": true, "100.64.0.1": true, "0.0.0.0": true,
		"224.0.0.1": true, "255.255.255.255": true, "::1": true, "::": true, "fe80::1%eth0": true, "fc00::1": true, "ff02::1": true,
		"::ffff:127.0.0.1": true, "64:ff9b::7f00:1": true, "198.18.0.1": true,
		"8.8.8.8": false, "172.32.0.1": false, "100.128.0.1": false, "2606:4700::1111": false, "64:ff9b::808:808": false, "::ffff:8.8.8.8": false,
	} {
		if got := privateAddr(netip.MustParseAddr(a)); got != want {
			t.Errorf("%s: %v", a, got)
		}
	}
}

func TestExpiry(t *testing.T) {
	at := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	policy := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, `{"Statement":[{"Resource":"*>?","Condition":{"DateLessThan":{"AWS:EpochTime":%d}}}]}`, at.Unix()))
	policy = strings.NewReplacer("+", "-", "=", "_", "/", "~").Replace(policy)
	for query, want := range map[string]time.Time{
		fmt.Sprintf("Expires=%d&Signature=x", at.Unix()):           at,
		"X-Amz-Date=20260506T060809Z&X-Amz-Expires=3600":           at,
		"X-Goog-Date=20260506T060809Z&X-Goog-Expires=3600":         at,
		"Policy=" + url.QueryEscape(policy):                        at,
		"X-Amz-Date=20260506T060809Z&X-Amz-Expires=99999999999999": at.Add(mostLife - time.Hour),
		"":                          {},
		"Expires=never":             {},
		"Expires=-1":                {},
		"Expires=99999999999999999": {},
		"X-Amz-Expires=3600":        {},
		"Policy=e30":                {},
		"Policy=!!!":                {},
		"Policy=" + base64.URLEncoding.EncodeToString([]byte(`{"Statement":[]}`)): {},
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := expiry(q); ok != !want.IsZero() || ok && !got.Equal(want) {
			t.Errorf("%s: %v, %v; want %v", query, got, ok, want)
		}
	}
}

// TestRenewAt: a wrong clock on this machine does no harm, since a life is counted from the server's date.
func TestRenewAt(t *testing.T) {
	server := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	at := func(life time.Duration) *url.URL {
		return &url.URL{RawQuery: fmt.Sprintf("Expires=%d", server.Add(life).Unix())}
	}
	dated := http.Header{"Date": {server.Format(http.TimeFormat)}}
	for _, skew := range []time.Duration{0, -10 * 365 * 24 * time.Hour, 24 * time.Hour} {
		now := server.Add(skew)
		for life, want := range map[time.Duration]time.Duration{
			time.Hour: 48 * time.Minute, time.Second: 48 * time.Second, -time.Hour: 48 * time.Second, 1000 * time.Hour: mostLife * 4 / 5,
		} {
			if got := renewAt(at(life), dated, now).Sub(now); got != want {
				t.Errorf("skew %s, life %s: renewed after %s, want %s", skew, life, got, want)
			}
		}
	}
	if got := renewAt(&url.URL{}, dated, server).Sub(server); got != 8*time.Minute {
		t.Errorf("without an end: %s", got)
	}
	if got := renewAt(at(time.Hour), http.Header{}, server).Sub(server); got != 48*time.Minute {
		t.Errorf("without a date: %s", got)
	}
}

func TestStrongIn(t *testing.T) {
	date := "Tue, 06 Jan 2026 10:00:01 GMT"
	for _, c := range []struct{ etag, modified, want string }{
		{`"x"`, "", `"x"`}, {`W/"x"`, "", ""}, {`x`, "", ""}, {`""`, "", ""}, {"", "Tue, 06 Jan 2026 10:00:00 GMT", "Tue, 06 Jan 2026 10:00:00 GMT"},
		{"", date, ""}, {`W/"x"`, "Tue, 06 Jan 2026 09:00:00 GMT", "Tue, 06 Jan 2026 09:00:00 GMT"}, {"", "yesterday", ""}, {"", "", ""},
	} {
		h := http.Header{"Etag": {c.etag}, "Last-Modified": {c.modified}, "Date": {date}}
		if got := strongIn(h); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestHTTPID(t *testing.T) {
	u := func(s string) *url.URL {
		x, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	base := httpID(u("https://h/a"), `"x"`, 5)
	if base == (ID{}) || base != httpID(u("https://H:443/a"), `"x"`, 5) {
		t.Error("not the same for the same place")
	}
	if httpID(u("https://h/a"), "", 5) != (ID{}) {
		t.Error("an ID without a strong validator")
	}
	seen := map[ID]string{base: "base"}
	for name, id := range map[string]ID{
		"scheme": httpID(u("http://h:443/a"), `"x"`, 5), "host": httpID(u("https://i/a"), `"x"`, 5), "port": httpID(u("https://h:1/a"), `"x"`, 5),
		"path": httpID(u("https://h/b"), `"x"`, 5), "escape": httpID(u("https://h/%61%2f"), `"x"`, 5), "query": httpID(u("https://h/a?b"), `"x"`, 5),
		"validator": httpID(u("https://h/a"), `"y"`, 5), "size": httpID(u("https://h/a"), `"x"`, 6),
	} {
		if seen[id] != "" {
			t.Errorf("another %s has the ID of %s", name, seen[id])
		}
		seen[id] = name
	}
}

func TestNextPage(t *testing.T) {
	at, _ := url.Parse("https://h/api/x?y=1")
	for _, c := range []struct{ link, want string }{
		{`<https://h/api/x?cursor=a%3D>; rel="next"`, "https://h/api/x?cursor=a%3D"},
		{`</api/x?cursor=b>; rel=next`, "https://h/api/x?cursor=b"},
		{`<https://h/first>; rel="first", <https://h/api/x?cursor=c>; rel="next"`, "https://h/api/x?cursor=c"},
		{`<https://h/last>; rel="last"`, ""}, {"", ""}, {"garbage", ""}, {`<>; rel="nexti"`, ""},
		{`<https://other/x>; rel="next"`, "!"}, {`<http://h/x>; rel="next"`, "!"}, {`<https://h:444/x>; rel="next"`, "!"},
		{`<https://u@h/x>; rel="next"`, "!"}, {`<https://h.evil/x>; rel="next"`, "!"}, {`<://>; rel="next"`, "!"},
	} {
		got, err := nextPage(at, http.Header{"Link": {c.link}})
		switch {
		case c.want == "!":
			if err == nil {
				t.Errorf("%s: %v", c.link, got)
			}
		case err != nil, got == nil != (c.want == ""), got != nil && got.String() != c.want:
			t.Errorf("%s: %v, %v", c.link, got, err)
		}
	}
}

func TestAsked(t *testing.T) {
	now := time.Date(2026, 1, 6, 10, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		status                    int
		limit, policy, retryAfter string
		want                      time.Duration
		pace                      bool
	}{
		{429, `"api";r=0;t=172`, "", "", 173 * time.Second, false},
		{429, `"api";r=0;t=172`, "", "5", 173 * time.Second, false},
		{429, `"api";r=7;t=60`, "", "5", 5 * time.Second, false},
		{429, `"api";r=7;t=60`, "", "", 61 * time.Second, false},
		{429, "", "", "Tue, 06 Jan 2026 10:00:09 GMT", 9 * time.Second, false},
		{429, "", "", "Tue, 06 Jan 2026 09:00:00 GMT", 0, false},
		{429, "garbage", "", "soon", 0, false},
		{503, "", "", "7", 7 * time.Second, false},
		{500, "", "", "7", 0, false},
		{200, `"api";r=0;t=20`, "", "", 21 * time.Second, false},
		{206, `"api";r=9;t=20`, `"w";"api";q=3000;w=300`, "", 2 * time.Second, true},
		{206, `"api";r=150;t=20`, `"w";"api";q=3000;w=300`, "", 0, false},
		{206, `"api";r=9;t=20`, "", "", 0, false},
		{206, `"api";r=-1;t=20`, "", "", 0, false},
	} {
		h := http.Header{"Ratelimit": {c.limit}, "Ratelimit-Policy": {c.policy}, "Retry-After": {c.retryAfter}}
		if got, pace := asked(c.status, h, now); got != c.want || pace != c.pace {
			t.Errorf("%+v: %s, %v", c, got, pace)
		}
	}
}

func TestScrub(t *testing.T) {
	u, _ := url.Parse("https://h/p?Expires=1234567&Signature=abc%2Bdefgh&x=1")
	got := scrub("at /p?Expires=1234567&Signature=abc%2Bdefgh&x=1 with abc+defgh and abc%2Bdefgh, 1", u)
	if want := "at /p?[redacted] with [redacted] and [redacted], 1"; got != want {
		t.Errorf("got %q", got)
	}
}

func TestIndexShards(t *testing.T) {
	for index, want := range map[string]string{
		`{"metadata":{"total_size":1},"weight_map":{"a":"x","b":"y","c":"x"}}`: "[x y]",
		`{"weight_map":{"a":"known"}}`:                                         "[]",
		`{}`:                                                                   "[]",
		`{"weight_map":{"a":"../x"}}`:                                          "!component",
		`{"weight_map":{"a":"/x"}}`:                                            "!begins",
		`{"weight_map":{"a":5}}`:                                               "!cannot unmarshal",
		`{"weight_map":{"a":null}}`:                                            "!empty",
		`{"weight_map":[]}`:                                                    "!not a JSON object",
		`[]`:                                                                   "!not a JSON object",
		`{"weight_map":{"a":"x"`:                                               "!EOF",
		`<html>`:                                                               "!invalid",
	} {
		got, err := indexShards(strings.NewReader(index), map[string]bool{"known": true})
		if why, bad := strings.CutPrefix(want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), why) || errors.Is(err, ErrTemporary) {
				t.Errorf("%s: %v, %v", index, got, err)
			}
		} else if err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s: %v, %v", index, got, err)
		}
	}
}

// FuzzIndex: an index gives names that may be asked for, or an error.
func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"x/y"}}`))
	f.Add([]byte(`{"weight_map":{"a":"../x"},"weight_map":{}}`))
	f.Fuzz(func(t *testing.T, index []byte) {
		names, err := indexShards(bytes.NewReader(index), nil)
		for i, n := range names {
			if err != nil || checkPath(n) != nil || i > 0 && names[i-1] >= n {
				t.Fatalf("%q, %v", names, err)
			}
		}
	})
}

// FuzzAddress: no Location, Link or signed URL of a server makes us panic or leave what is allowed.
func FuzzAddress(f *testing.F) {
	f.Add("https://cdn.example/x?Expires=5&Policy=e30_", `<https://hub.example/next?cursor=1>; rel="next"`)
	f.Add("//[::1%25eth0]:99999/", `<//hub.example:443/>;rel=next;rel=next`)
	f.Fuzz(func(t *testing.T, location, link string) {
		at, _ := url.Parse("https://hub.example/a")
		r := &reply{url: at, public: true, Response: &http.Response{Header: http.Header{"Location": {location}}}}
		if next, foreign, err := r.next(); err == nil {
			if next.Scheme != "https" || next.Host == "" || next.User != nil || !foreign && origin(next) != "https://hub.example:443" {
				t.Fatalf("%q leads to %v, foreign %v", location, next, foreign)
			}
			now := time.Now()
			if d := renewAt(next, http.Header{}, now).Sub(now); d < leastLife*4/5 || d > mostLife {
				t.Fatalf("%q is renewed after %s", location, d)
			}
		}
		if next, err := nextPage(at, http.Header{"Link": {link}}); err == nil && next != nil && origin(next) != origin(at) {
			t.Fatalf("%q leads to %v", link, next)
		}
	})
}
