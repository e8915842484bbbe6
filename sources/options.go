package sources

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Options are the settings of the remote sources and what those of one process share: connections, the pause of a host that asked
// for one, counters. Several sources are given the same *Options. The zero value is ready; nil means a zero value of the source's own.
// The exported fields are not changed after the first source was made.
type Options struct {
	// Endpoint is the Hub's base URL, "" for $HF_ENDPOINT, else https://huggingface.co.
	Endpoint string
	// TokenFile holds the Hub token, "" for the places that huggingface_hub looks in: HF_TOKEN, HUGGING_FACE_HUB_TOKEN,
	// $HF_TOKEN_PATH, $HF_HOME/token.
	TokenFile string
	// InsecureToken permits to send the token over plain http to another machine.
	InsecureToken bool
	// AllowPrivateRedirects permits a public server to redirect to loopback, link-local and private addresses.
	AllowPrivateRedirects bool
	// Offline sends no request at all: what is on disk is all there is, and the rest is [ErrOffline]. HF_HUB_OFFLINE, or TRANSFORMERS_OFFLINE
	// if that is not set, does the same for the Hub alone.
	Offline bool
	// HubCache is the cache directory of huggingface_hub, [HubCacheDir] for most, where listings are looked for; "" for none.
	HubCache string
	// Conns is the most requests to one host at a time, 0 for 16.
	Conns int
	// Stall ends a request that brings less than 64 KiB in this time, or no header; 0 for 15 s.
	Stall time.Duration
	// UserAgent, "" for "weightfs".
	UserAgent string
	// Getenv reads the environment, nil for os.Getenv.
	Getenv func(string) string
	// Keep has the listings of earlier runs: of a commit, so that another List only asks which commit a branch is at, and what an Offline
	// List finds; nil for none.
	Keep Keeper
	// Log gets warnings and the reasons of retries, never a secret; nil for none.
	Log *slog.Logger
	// Metrics counts; nil for none.
	Metrics *Metrics

	once   sync.Once
	client *client

	dial    func(ctx context.Context, network, addr string) (net.Conn, error) // nil for the net package's
	private func(netip.Addr) bool                                             // nil for privateAddr
}

// Metrics are the counters of the remote sources.
type Metrics struct {
	Requests atomic.Int64 // HTTP requests sent
	Bytes    atomic.Int64 // body bytes received of range requests
	Retries  atomic.Int64 // operations tried again after a temporary failure
	Pauses   atomic.Int64 // times a host asked all workers to wait
	Resolves atomic.Int64 // signed addresses asked for
	Stalls   atomic.Int64 // requests ended by the stall watchdog
	Refused  atomic.Int64 // replies refused because they break the range rule
}

const (
	defaultEndpoint = "https://huggingface.co"
	defaultConns    = 16
	defaultStall    = 15 * time.Second
	stallBytes      = 64 << 10
)

// Status is the counters of the remote sources, and the hosts that no request is sent to at the moment because they asked for that.
type Status struct {
	Requests int64   `json:"requests"`
	Bytes    int64   `json:"bytes"`
	Resolves int64   `json:"resolves"`
	Retries  int64   `json:"retries"`
	Stalls   int64   `json:"stalls"`
	Refused  int64   `json:"refused"`
	Pauses   int64   `json:"pauses"`
	Paused   []Pause `json:"paused,omitempty"`
}

// Pause is a host that wants everyone to wait.
type Pause struct {
	Host  string    `json:"host"` // scheme, host and port
	Until time.Time `json:"until"`
}

// Status is how things are now. Without Metrics the counters are zero.
func (o *Options) Status() Status {
	s := Status{Paused: o.net().paused()}
	if m := o.Metrics; m != nil {
		s.Requests, s.Bytes, s.Resolves, s.Retries = m.Requests.Load(), m.Bytes.Load(), m.Resolves.Load(), m.Retries.Load()
		s.Stalls, s.Refused, s.Pauses = m.Stalls.Load(), m.Refused.Load(), m.Pauses.Load()
	}
	return s
}

// Close closes idle connections. Sources that use the options go on working.
func (o *Options) Close() {
	o.net().closeIdle()
}

// net is the shared client, made at the first use.
func (o *Options) net() *client {
	o.once.Do(func() { o.client = newClient(o) })
	return o.client
}

func orDefaults(o *Options) *Options {
	if o == nil {
		return &Options{}
	}
	return o
}

func (o *Options) getenv(key string) string {
	if o.Getenv != nil {
		return o.Getenv(key)
	}
	return os.Getenv(key)
}

func (o *Options) conns() int {
	if o.Conns > 0 {
		return o.Conns
	}
	return defaultConns
}

func (o *Options) stall() time.Duration {
	if o.Stall > 0 {
		return o.Stall
	}
	return defaultStall
}

func (o *Options) log() *slog.Logger {
	if o.Log != nil {
		return o.Log
	}
	return slog.New(slog.DiscardHandler)
}

// count adds n to the counter that pick chooses, if there are counters.
func (o *Options) count(pick func(*Metrics) *atomic.Int64, n int64) {
	if o.Metrics != nil {
		pick(o.Metrics).Add(n)
	}
}

// retry tries a request of List or Open a few times.
func (o *Options) retry(ctx context.Context, op func(context.Context) error) error {
	return retry(ctx, apiTries, o.again, op)
}

// again counts and logs a failure that is tried again.
func (o *Options) again(err error, pause time.Duration) {
	o.count(func(m *Metrics) *atomic.Int64 { return &m.Retries }, 1)
	o.log().Info("trying again", "after", pause.Round(time.Millisecond), "because", err.Error())
}
